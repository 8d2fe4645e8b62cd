# SPDX-License-Identifier: Apache-2.0
"""The parser of each command, and what it is for in a few words."""

from __future__ import annotations

import argparse
import pkgutil
from collections.abc import Iterator, Mapping

LABEL_IMAGE, OPENCL, DELEGATE_TEST = "label_image", "tflite-opencl", "tflite-delegate-test"
# One line each, as `man -k` shows it.
COMMANDS: Mapping[str, str] = {
    LABEL_IMAGE: "classify pictures with a TFLite model, on the CPU and through OpenCL",
    OPENCL: "show what OpenCL drivers can do and how TFLite models run on them",
    DELEGATE_TEST: "test a TFLite delegate against the reference kernels",
}


# What makes each one's parser, imported when it is asked for: no command imports another.
_PARSERS = {
    LABEL_IMAGE: "label_image.flags:parser",
    OPENCL: "tflite_opencl.command:parser",
    DELEGATE_TEST: "tflite_opencl.conformance.flags:parser",
}


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return a new parser of one of COMMANDS."""
    made: argparse.ArgumentParser = pkgutil.resolve_name(_PARSERS[command])()
    return made


def subparsers(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the parser of each subcommand; nothing where a command has none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def all_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser, and those of its subcommands."""
    yield parser
    yield from subparsers(parser).values()

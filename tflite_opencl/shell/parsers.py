# SPDX-License-Identifier: Apache-2.0
"""The parser of each command, and its one-line description."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator, Mapping

from tflite_opencl.cli.command_line import subparsers

LABEL_IMAGE, OPENCL, DELEGATE_TEST = "label_image", "tflite-opencl", "tflite-delegate-test"
# As shown by `man -k`.
COMMANDS: Mapping[str, str] = {
    LABEL_IMAGE: "classify pictures with a TFLite model, on the CPU and through OpenCL",
    OPENCL: "show what OpenCL drivers can do and how TFLite models run on them",
    DELEGATE_TEST: "test a TFLite delegate against the reference kernels",
}
# Factories of the parsers, imported lazily: no command imports another.
_MODULES = {
    LABEL_IMAGE: "label_image.flags",
    OPENCL: "tflite_opencl.command",
    DELEGATE_TEST: "tflite_opencl.conformance.flags",
}


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return a new parser of one of COMMANDS."""
    made: argparse.ArgumentParser = importlib.import_module(_MODULES[command]).parser()
    return made


def all_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser, and those of its subcommands."""
    yield parser
    yield from subparsers(parser).values()

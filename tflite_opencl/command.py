# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl SUBCOMMAND`: the command line; the only file of the package that prints."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from tflite_opencl import info, library, obstacle, tune
from tflite_opencl.common.environment import prepare_environment
from tflite_opencl.common.errors import CommandError
from tflite_opencl.common.exit_codes import (
    EXIT_CODES,
    LOST,
    NOT_SO,
    NOTHING_RUN,
    SUCCESS,
    USAGE,
    codes_text,
)
from tflite_opencl.common.flags import add_flag, require_documents
from tflite_opencl.common.help import HelpFormatter, examples_text
from tflite_opencl.common.text import printable
from tflite_opencl.common.words import did_you_mean, version_lines, with_underscores
from tflite_opencl.compare import benchmark
from tflite_opencl.compare import subcommand as compare
from tflite_opencl.compilers import subcommand as kernels
from tflite_opencl.graph import subcommand as graph
from tflite_opencl.rewrites import subcommand as rewrite
from tflite_opencl.shell import completion, man
from tflite_opencl.verify import subcommand as verify

DESCRIPTION = "What this machine and its OpenCL drivers can do, and how models run on them."
EPILOG = (
    "Models are classified and timed by label_image; drivers are tested by tflite-delegate-test."
)
EXAMPLES = (
    ("tflite-opencl info", "what this machine is, what its drivers can do, and what to do next"),
    ("tflite-opencl compare -m model.tflite -i picture.jpg", "how fast, and how exact"),
    ("tflite-opencl verify --help", "each SUBCOMMAND has flags and examples of its own"),
)
CODES = [code for code in EXIT_CODES if code not in (LOST, NOTHING_RUN)]
SUBCOMMANDS = {
    "benchmark": benchmark,
    "compare": compare,
    "completion": completion,
    "graph": graph,
    "info": info,
    "kernels": kernels,
    "library": library,
    "man": man,
    "obstacle": obstacle,
    "rewrite": rewrite,
    "tune": tune,
    "verify": verify,
}


class _UsageError(Exception):
    """The command line is wrong; the text is one line that says what."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        word = re.search(r"invalid choice: '([^']*)'", message)
        meant = did_you_mean(word[1], SUBCOMMANDS) if word and "SUBCOMMAND" in message else ""
        raise _UsageError(f"{message}{meant} ({self.prog} --help shows all)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    prepare_environment()
    try:
        options = _parsed(sys.argv[1:] if arguments is None else arguments)
    except SystemExit:  # argparse has shown the help
        return SUCCESS
    except _UsageError as error:
        print(printable(f"ERROR: {error}"), file=sys.stderr)
        return USAGE
    if options.version:
        print(printable("\n".join(version_lines("tflite-opencl")), kept="\n"))
        return SUCCESS
    try:
        require_documents(vars(options))
        text = SUBCOMMANDS[options.subcommand].run(options)
    except CommandError as error:
        if error.code == NOT_SO:
            print(printable(str(error), kept="\n"))
        else:
            print(printable(f"ERROR: {error}"), file=sys.stderr)
        return error.code
    print(printable(text, kept="\n"))
    return SUCCESS


def parser() -> argparse.ArgumentParser:
    """Return a new parser of the command."""
    return _parsers()[0]


def _parsers() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Return a new parser of the command, and that of each subcommand."""
    parser = _Parser(
        prog="tflite-opencl",
        description=DESCRIPTION,
        epilog=f"{EPILOG} {codes_text(*CODES)}\n\n{examples_text(EXAMPLES)}",
        formatter_class=HelpFormatter,
    )
    add_flag(parser, "version")
    chosen = parser.add_subparsers(title="subcommands", dest="subcommand", metavar="SUBCOMMAND")
    subs: dict[str, argparse.ArgumentParser] = {}
    for name, module in SUBCOMMANDS.items():
        subs[name] = chosen.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=examples_text(module.EXAMPLES),
            formatter_class=HelpFormatter,
        )
        module.add_arguments(subs[name])
    return parser, subs


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options; --help ends in SystemExit. Raises _UsageError."""
    parser, subs = _parsers()
    options, unknown = parser.parse_known_args(with_underscores(arguments))
    if unknown:
        where = subs.get(options.subcommand, parser)
        meant = did_you_mean(unknown[0].partition("=")[0], where._option_string_actions)
        raise _UsageError(
            f"unrecognized arguments: {' '.join(unknown)}{meant} ({where.prog} --help shows all)"
        )
    if options.subcommand is None and not options.version:
        parser.error("a SUBCOMMAND is missing: " + ", ".join(SUBCOMMANDS))
    return options

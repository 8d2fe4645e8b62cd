# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl SUBCOMMAND`: the command line; the only module of the package that prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from delegate import DelegateError
from tflite_opencl.cli.command_line import Parser
from tflite_opencl.cli.flags import add_flag, prepare_environment
from tflite_opencl.cli.messages import printable, version_lines
from tflite_opencl.cli.outputs import keep_inputs, require_outputs
from tflite_opencl.console import bars
from tflite_opencl.console.errors import OneLineError, code_of, one_line
from tflite_opencl.console.exit_codes import (
    EXIT_CODES,
    LOST,
    NOT_SO,
    NOTHING_RUN,
    SUCCESS,
    codes_text,
)
from tflite_opencl.console.start import OutputError

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
# Module of each subcommand; only the one that runs is imported.
SUBCOMMANDS = {
    "benchmark": "compare.benchmark",
    "bringup": "bringup.subcommand",
    "cache": "cache",
    "compare": "compare.subcommand",
    "completion": "shell.completion",
    "cut": "cut",
    "generate": "generate.subcommand",
    "graph": "graph.subcommand",
    "info": "info",
    "kernels": "compilers.subcommand",
    "library": "library",
    "man": "shell.man",
    "obstacle": "obstacle",
    "plan": "plan",
    "rewrite": "rewrites.subcommand",
    "run": "run.subcommand",
    "serve": "serve.subcommand",
    "tune": "tune",
    "verify": "verify.subcommand",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    prepare_environment()
    try:
        words = sys.argv[1:] if arguments is None else arguments
        options = parser(*words[:1]).parse(words)
        if options.version:
            print(printable("\n".join(version_lines("tflite-opencl")), kept="\n"))
            return SUCCESS
        if options.subcommand is None:
            parser().error(
                f"a SUBCOMMAND is missing: {', '.join(SUBCOMMANDS)}; begin with `tflite-opencl "
                "info`, or classify a picture with `label_image --use_gpu --image FILE`"
            )
        bars.be_quiet(options.quiet)
        keep_inputs(vars(options))
        require_outputs(vars(options))
        print(printable(_module(options.subcommand).run(options), kept="\n"))
        return SUCCESS
    except SystemExit:  # argparse has printed the help
        return SUCCESS
    except OutputError:  # stdout and stderr cannot be written
        raise
    except (OneLineError, DelegateError) as error:
        if (code := code_of(error)) == NOT_SO:  # its text is the result
            print(printable(str(error), kept="\n"))
        else:
            print(printable(f"ERROR: {one_line(error)}"), file=sys.stderr)
        return code


def parser(first: str | None = None) -> Parser:
    """Return a new parser of the command, with its subcommands.

    `first`: the first word to be parsed. If it is a subcommand, the others are only listed by
    name.
    """
    made = Parser(
        prog="tflite-opencl",
        description=DESCRIPTION,
        notes=f"{EPILOG} {codes_text(*CODES)}",
        examples=EXAMPLES,
    )
    add_flag(made, "version")
    chosen = made.add_subparsers(title="subcommands", dest="subcommand", metavar="SUBCOMMAND")
    for name in SUBCOMMANDS:
        if first in SUBCOMMANDS and name != first:
            chosen.add_parser(name, examples=())
            continue
        module = _module(name)
        sub = chosen.add_parser(
            name, help=module.HELP, description=module.HELP, examples=module.EXAMPLES
        )
        module.add_arguments(sub)
        add_flag(sub, "quiet")
    return made


def _module(name: str) -> Any:
    return import_module(f"tflite_opencl.{SUBCOMMANDS[name]}")

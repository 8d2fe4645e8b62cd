# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl SUBCOMMAND`: the command line; the only file of the package that prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tflite_opencl import benchmark, compare, graph, info, kernels, library, obstacle, verify
from tflite_opencl.common.environment import prepare_environment
from tflite_opencl.common.text import printable
from tflite_opencl.errors import CommandError

SUCCESS, ERROR, USAGE = 0, 1, 2
SUBCOMMANDS = {
    "benchmark": benchmark,
    "compare": compare,
    "graph": graph,
    "info": info,
    "kernels": kernels,
    "library": library,
    "obstacle": obstacle,
    "verify": verify,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    prepare_environment()
    parser = argparse.ArgumentParser(prog="tflite-opencl", description=__doc__.splitlines()[0])
    chosen = parser.add_subparsers(dest="subcommand", required=True, metavar="SUBCOMMAND")
    for name, module in SUBCOMMANDS.items():
        sub = chosen.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(sub)
    try:
        options = parser.parse_args(arguments)
    except SystemExit as error:  # argparse has said why
        return SUCCESS if error.code == 0 else USAGE
    try:
        text = SUBCOMMANDS[options.subcommand].run(options)
    except CommandError as error:
        if error.is_answer:
            print(printable(str(error), kept="\n"))
        else:
            print(printable(f"ERROR: {error}"), file=sys.stderr)
        return ERROR
    print(printable(text, kept="\n"))
    return SUCCESS

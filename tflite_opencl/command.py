# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl SUBCOMMAND`: the command line; the only file of the package that prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from delegate import DelegateError
from tflite_opencl import cut, info, library, obstacle, tune
from tflite_opencl.common import bars
from tflite_opencl.common.command_line import Parser
from tflite_opencl.common.errors import OneLineError, code_of, one_line
from tflite_opencl.common.exit_codes import (
    EXIT_CODES,
    LOST,
    NOT_SO,
    NOTHING_RUN,
    SUCCESS,
    codes_text,
)
from tflite_opencl.common.flags import add_flag, prepare_environment, require_documents
from tflite_opencl.common.start import OutputError
from tflite_opencl.common.words import printable, version_lines
from tflite_opencl.compare import benchmark
from tflite_opencl.compare import subcommand as compare
from tflite_opencl.compilers import subcommand as kernels
from tflite_opencl.generate import subcommand as generate
from tflite_opencl.graph import subcommand as graph
from tflite_opencl.rewrites import subcommand as rewrite
from tflite_opencl.run import subcommand as run
from tflite_opencl.serve import subcommand as serve
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
    "cut": cut,
    "generate": generate,
    "graph": graph,
    "info": info,
    "kernels": kernels,
    "library": library,
    "man": man,
    "obstacle": obstacle,
    "rewrite": rewrite,
    "run": run,
    "serve": serve,
    "tune": tune,
    "verify": verify,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    prepare_environment()
    try:
        options = parser().parse(sys.argv[1:] if arguments is None else arguments)
        if options.version:
            print(printable("\n".join(version_lines("tflite-opencl")), kept="\n"))
            return SUCCESS
        if options.subcommand is None:
            parser().error(f"a SUBCOMMAND is missing: {', '.join(SUBCOMMANDS)}")
        bars.be_quiet(options.quiet)
        require_documents(vars(options))
        print(printable(SUBCOMMANDS[options.subcommand].run(options), kept="\n"))
        return SUCCESS
    except SystemExit:  # argparse has shown the help
        return SUCCESS
    except OutputError:  # no line of ours may be written
        raise
    except (OneLineError, DelegateError) as error:
        if (code := code_of(error)) == NOT_SO:  # its text is the answer
            print(printable(str(error), kept="\n"))
        else:
            print(printable(f"ERROR: {one_line(error)}"), file=sys.stderr)
        return code


def parser() -> Parser:
    """Return a new parser of the command, and of each subcommand."""
    made = Parser(
        prog="tflite-opencl",
        description=DESCRIPTION,
        notes=f"{EPILOG} {codes_text(*CODES)}",
        examples=EXAMPLES,
    )
    add_flag(made, "version")
    chosen = made.add_subparsers(title="subcommands", dest="subcommand", metavar="SUBCOMMAND")
    for name, module in SUBCOMMANDS.items():
        sub = chosen.add_parser(
            name, help=module.HELP, description=module.HELP, examples=module.EXAMPLES
        )
        module.add_arguments(sub)
        add_flag(sub, "quiet")
    return made

# SPDX-License-Identifier: Apache-2.0
"""`python -m tflite_opencl.verify.child`: the subcommand's run for other commands.

A request has its arguments; the answer is its text. The process may end in a driver.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from delegate import DelegateError
from delegate.guard.children.channel import serve
from tflite_opencl.cli.command_line import Parser
from tflite_opencl.console.errors import OneLineError
from tflite_opencl.verify import subcommand


def _answers(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the text of `tflite-opencl verify ARGUMENTS`, or of its error."""
    parser = Parser(prog="tflite-opencl verify", examples=())
    subcommand.add_arguments(parser)
    try:
        yield subcommand.run(parser.parse([*arguments]))
    except (OneLineError, DelegateError) as error:
        yield str(error)


if __name__ == "__main__":
    sys.exit(serve(_answers))

# SPDX-License-Identifier: Apache-2.0
"""How each command begins and ends: Ctrl-C from the first moment on, and streams of any kind.

It imports little, because Ctrl-C is heard only from here on.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
import traceback
from collections.abc import Callable, Sequence

from tflite_opencl.common import interrupts, standard_streams
from tflite_opencl.common.exit_codes import BUG, ERROR, INTERRUPTED, SUCCESS, USAGE
from tflite_opencl.common.standard_streams import OutputError


def start(module: str, arguments: Sequence[str] | None = None) -> int:
    """Import a command's module, run its `main` with the arguments, and return the exit code."""
    standard_streams.open_all()
    # Importing takes up to a second, so it is part of what Ctrl-C can end.
    code = run(lambda: importlib.import_module(module).main(arguments))
    # From here on Python only cleans up.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


def run(main: Callable[[], int]) -> int:
    """Return the exit code of a command's `main`, or how it was ended.

    130: Ctrl-C. 255: stdout or stderr takes no text, and one line says so. A reader that has gone
    is no error.
    """
    with interrupts.remembered():
        try:
            code = _code(main)
            interrupts.check()
            return code
        except KeyboardInterrupt:
            return INTERRUPTED
        except OutputError as error:
            with contextlib.suppress(OutputError):
                sys.stderr.write(f"ERROR: {error}\n")
            return ERROR
        except Exception:
            if interrupts.was_pressed():  # what Ctrl-C broke off may fail in its own way
                return INTERRUPTED
            traceback.print_exc()
            return BUG


def _code(main: Callable[[], int]) -> int:
    code = 0
    try:
        try:
            code = main()
        except SystemExit as end:  # argparse's, of --help or a wrong command line
            code = USAGE if end.code else SUCCESS
        standard_streams.flush()
    except BrokenPipeError:  # `| head` has seen enough
        standard_streams.lead_nowhere(sys.stdout)
    return code

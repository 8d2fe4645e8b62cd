# SPDX-License-Identifier: Apache-2.0
"""The exit codes of all commands, described in docs/reliability.md."""

SUCCESS, NOT_SO, NO_DEVICE, LOST = 0, 1, 2, 3
USAGE, BUG = 64, 70  # as in sysexits.h
NOTHING_RUN = 77  # as in Automake's tests
INTERRUPTED, ERROR = 130, 255
EXIT_CODES = {
    SUCCESS: "success",
    NOT_SO: "what was checked is not so: outputs differ or are not finite, a case fails, a path "
    "gives no result",
    NO_DEVICE: "no OpenCL device could run the model",
    LOST: "the CPU ran most nodes, because kernels had failed",
    USAGE: "the command line is wrong",
    BUG: "an error that nobody expected",
    NOTHING_RUN: "no case could run",
    INTERRUPTED: "Ctrl-C",
    ERROR: "the model, a picture or another file cannot be used",
}


def codes_text(*codes: int) -> str:
    """Return the help text about these exit codes."""
    return f"Exit codes: {'; '.join(f'{code}: {EXIT_CODES[code]}' for code in codes)}."

# SPDX-License-Identifier: Apache-2.0
"""Python code in a child process, so that it cannot end or change the test's process."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


# Without these capabilities root is subject to file modes.
_AS_A_USER = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


def run_python(code: str, *arguments: object, is_root: bool = True, **environment: str) -> str:
    """Return the code's stdout; assert that its exit code is 0.

    `is_root`: False drops root's capability to ignore file modes.
    """
    before = () if is_root or os.geteuid() != 0 else _AS_A_USER
    child = subprocess.run(
        [*before, sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        check=False,
    )
    assert child.returncode == 0, f"ended with {child.returncode}:\n{child.stdout}{child.stderr}"
    return child.stdout


def on_terminal(code: str, *arguments: object, **environment: str) -> str:
    """Return the code's output on a terminal, without escapes; assert that its exit code is 0."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", sent_to_terminal(code, *arguments, **environment))


def sent_to_terminal(code: str, *arguments: object, **environment: str) -> str:
    """Return the code's output on a terminal; assert that its exit code is 0."""
    own, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env={
            **os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100", **environment
        },
    ) as child:  # fmt: skip
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # EIO when the child has ended
            while part := os.read(own, 4096):
                shown += part
    os.close(own)
    text = shown.decode()
    assert child.returncode == 0, text
    return text

# SPDX-License-Identifier: Apache-2.0
"""Python in a process of its own, for what must not end or spoil the test's."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


# Root reads and writes what its modes forbid, but not without these two.
_AS_A_USER = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


def run_python(code: str, *arguments: object, is_root: bool = True, **environment: str) -> str:
    """Return what the code prints to stdout; assert that it ends well.

    `is_root`: where this process is root's, the code may read and write everything, too.
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
    """Return what the code shows on a terminal, without colours; assert that it ends well."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", sent_to_terminal(code, *arguments, **environment))


def sent_to_terminal(code: str, *arguments: object, **environment: str) -> str:
    """Return all that the code sends to a terminal; assert that it ends well."""
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
        with contextlib.suppress(OSError):  # the terminal is gone when the child is
            while part := os.read(own, 4096):
                shown += part
    os.close(own)
    text = shown.decode()
    assert child.returncode == 0, text
    return text

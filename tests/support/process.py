# SPDX-License-Identifier: Apache-2.0
"""Python in a process of its own, for what must not end or spoil the test's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_python(code: str, *arguments: object, **environment: str) -> str:
    """Return what the code prints to stdout; assert that it ends well."""
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        check=False,
    )
    assert child.returncode == 0, f"ended with {child.returncode}:\n{child.stdout}{child.stderr}"
    return child.stdout

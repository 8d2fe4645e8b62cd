# SPDX-License-Identifier: Apache-2.0
"""The child processes that execute plans."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from delegate import Model, OpenCLDelegate
from delegate.guard.isolation.device import IsolatedDevice
from delegate.guard.isolation.worker import IsolationProcess


def children(parent: int | None = None) -> set[int]:
    """Return the numbers of the children of a process, of this one if none is given."""
    tasks = Path(f"/proc/{parent or os.getpid()}/task").glob("*/children")
    found = [int(child) for task in tasks for child in task.read_text().split()]
    return {each for each in found if is_alive(each)}


def is_alive(child: int) -> bool:
    """Whether a process is one of these children, and runs."""
    try:
        return b"isolated_child" in Path(f"/proc/{child}/cmdline").read_bytes()
    except OSError:
        return False


def worker_of(thing: OpenCLDelegate | Model) -> IsolationProcess:
    """Return what has the child of a delegate, or of a model on one device."""
    on: Any = thing._on if isinstance(thing, Model) else thing
    device = on._engine.device
    assert isinstance(device, IsolatedDevice)
    return device.worker

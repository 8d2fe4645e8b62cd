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
    """Return the process ids of the isolated children of a process (default: this one)."""
    tasks = Path(f"/proc/{parent or os.getpid()}/task").glob("*/children")
    pids = [int(child) for task in tasks for child in task.read_text().split()]
    return {pid for pid in pids if is_alive(pid)}


def is_alive(child: int) -> bool:
    """Whether this is a running isolated child."""
    try:
        return b"isolated_child" in Path(f"/proc/{child}/cmdline").read_bytes()
    except OSError:
        return False


def worker_of(thing: OpenCLDelegate | Model) -> IsolationProcess:
    """Return the owner of the isolated child of a delegate, or of a model on one device."""
    on: Any = thing._on if isinstance(thing, Model) else thing
    device = on._engine.device
    assert isinstance(device, IsolatedDevice)
    return device.worker

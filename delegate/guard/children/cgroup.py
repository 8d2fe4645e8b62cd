# SPDX-License-Identifier: Apache-2.0
"""Processors and memory that Linux grants this process: its affinity, and its cgroup's limits.

A container's limit of processors hides none of them: all threads stop once its time is used up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

_MOUNT, _OWN = "/sys/fs/cgroup", "/proc/self/cgroup"


@lru_cache(maxsize=1)
def usable_processors() -> int:
    """Return the number of threads that can run at once: at least 1."""
    # Python 3.13's also follows PYTHON_CPU_COUNT.
    count = getattr(os, "process_cpu_count", lambda: None)() or len(os.sched_getaffinity(0))
    for folder in _folders("cpu"):
        quota, period = "max", "100000"
        if (version_2 := _words(folder / "cpu.max")) is not None and len(version_2) == 2:
            quota, period = version_2
        elif version_1 := _words(folder / "cpu.cfs_quota_us"):
            quota = version_1[0]
            period = (_words(folder / "cpu.cfs_period_us") or [period])[0]
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            count = min(count, -(-int(quota) // int(period)))
    return max(1, count)


def memory_limit_bytes() -> int | None:
    """Return the least limit of memory of this process's cgroups; None: there is none."""
    found = [
        int(words[0])
        for folder in _folders("memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (words := _words(folder / name)) and words[0].isdecimal()
    ]
    # Version 1 has a limit near 2**63 for none.
    return min((each for each in found if each < 1 << 60), default=None)


def _folders(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroup and those above, of both versions of cgroups."""
    try:
        lines = Path(_OWN).read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        mounts = ["", "unified"] if not controllers else [controllers, controller]
        if controllers and controller not in controllers.split(","):
            continue
        # In a container the path may be that of the host: then only the mount's root is there.
        parts = re.sub(r"/(\.\./?)+", "/", path).strip("/").split("/")
        for mount in mounts:
            for end in range(len(parts), -1, -1):
                yield Path(_MOUNT, mount, *parts[:end])


def _words(path: Path) -> list[str] | None:
    try:
        return path.read_text().split()
    except (OSError, ValueError):
        return None

# SPDX-License-Identifier: Apache-2.0
"""The resources of a process that repeats something many times: they must not grow."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from pathlib import Path

# Allowed growth in the second half, in all and for each round: pages of the C library and drivers.
_SLACK_BYTES, _BYTES_EACH = 4 << 20, 512
_SAMPLES, _BETWEEN_S = 20, 0.01


def soak(count: int, once: Callable[[], None]) -> None:
    """Repeat a function and print the process's resources. Raises: AssertionError: they grew."""
    seen = []
    for half in (count // 2, count - count // 2):
        for _ in range(half):
            once()
        gc.collect()
        seen.append(resources())
    middle, end = seen
    print(
        f"{count} rounds; {end[0] >> 20} MiB ({(end[0] - middle[0]) >> 10:+} KiB in the second",
        end="",
    )
    print(f" half), {end[1]} handles ({end[1] - middle[1]:+}), {end[2]} threads", end="")
    print(f" ({end[2] - middle[2]:+})", flush=True)
    assert end[0] - middle[0] <= _SLACK_BYTES + _BYTES_EACH * count, "memory grows"
    assert end[1] <= middle[1], "file handles grow"
    assert end[2] <= middle[2], "threads grow"


def resources() -> tuple[int, int, int]:
    """Return this process's bytes of memory, file handles and threads."""
    ctypes.CDLL(None).malloc_trim(0)  # memory that was freed does not count
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    samples = []
    for _ in range(_SAMPLES):  # what other threads open briefly does not count
        samples.append([len(list(Path(f"/proc/self/{name}").iterdir())) for name in ("fd", "task")])
        time.sleep(_BETWEEN_S)
    handles, threads = map(min, zip(*samples, strict=True))
    return pages * 4096, handles, threads

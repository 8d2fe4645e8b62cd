# SPDX-License-Identifier: Apache-2.0
"""What a process holds while it does something very often: it must not grow."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from pathlib import Path

# Pages that the C library and drivers keep, of all the second half together and of each round.
_SLACK_BYTES, _BYTES_EACH = 4 << 20, 512
_LOOKS, _BETWEEN_S = 20, 0.01


def soak(count: int, once: Callable[[], None]) -> None:
    """Do it so often, print what the process holds. Raises: AssertionError: it holds more."""
    seen = []
    for half in (count // 2, count - count // 2):
        for _ in range(half):
            once()
        gc.collect()
        seen.append(held())
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


def held() -> tuple[int, int, int]:
    """Return this process's bytes of memory, file handles and threads."""
    ctypes.CDLL(None).malloc_trim(0)  # freed memory that the C library keeps is not held
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    looks = []
    for _ in range(_LOOKS):  # what other threads open for a moment is not held
        looks.append([len(list(Path(f"/proc/self/{name}").iterdir())) for name in ("fd", "task")])
        time.sleep(_BETWEEN_S)
    handles, threads = map(min, zip(*looks, strict=True))
    return pages * 4096, handles, threads

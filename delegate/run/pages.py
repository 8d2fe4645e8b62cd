# SPDX-License-Identifier: Apache-2.0
"""Host memory pages: huge pages for CPU devices, and release of mapped file pages."""

from __future__ import annotations

import mmap
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.guard.cache import MappedFile
from delegate.plan.contents import owner_of
from delegate.plan.layout import Bytes

_SIZE_FILE = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"
_USUAL_BYTES = 2 << 20  # on x86, and on aarch64 with small pages of 4 KiB


def in_large_pages(size: int) -> Bytes | None:
    """Return zeros that Linux may back with huge pages; None: too small, or not supported.

    A token of a language model reads all weights once; with 4 KiB pages a core also waits for TLB
    misses. Linux grants huge pages on madvise unless configured otherwise.
    """
    advice = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux only
    page_bytes = huge_page_bytes()
    # Below that the TLB covers the small pages, and a partly used huge page wastes memory.
    if advice is None or size < 2 * page_bytes:
        return None
    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # shared memory follows other rules
        memory = mmap.mmap(-1, size + page_bytes, flags=flags)
        memory.madvise(advice)
    except OSError:  # out of memory, or a kernel without them
        return None
    values = np.frombuffer(memory, np.uint8)
    begin = -values.__array_interface__["data"][0] % page_bytes
    return values[begin : begin + size]


@lru_cache(maxsize=1)
def huge_page_bytes() -> int:
    """Return the size of a huge page: 32 MiB where small pages have 16 KiB, as on a Pi 5."""
    try:
        return int(Path(_SIZE_FILE).read_text())
    except (OSError, ValueError):  # a kernel without them
        return _USUAL_BYTES


def drop_pages(values: NDArray[Any]) -> None:
    """Release the pages of a mapped file that an array shows, if it shows one.

    Weights on the device are no longer needed, and TFLite maps the file as well.
    """
    file = owner_of(values)
    if isinstance(file, MappedFile):
        file.drop_pages(file.offset_of(values), values.nbytes)

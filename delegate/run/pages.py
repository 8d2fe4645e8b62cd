# SPDX-License-Identifier: Apache-2.0
"""Memory of the host: large pages for devices that compute in it, and pages of files."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.guard.cache import MappedFile
from delegate.plan.contents import owner_of
from delegate.plan.layout import Bytes

_PAGE_BYTES = 2 << 20  # x86's, and aarch64's where small pages have 4 KiB
# Below that a processor keeps the addresses of small pages, and a half-used large one is a waste.
_LEAST_BYTES = 2 * _PAGE_BYTES


def in_large_pages(size: int) -> Bytes | None:
    """Return zeros that Linux may keep in large pages; None: too few, or it has no such memory.

    A token of a language model reads all weights once. With pages of 4 KiB a core also waits for
    their addresses. Linux gives large ones to those who ask, unless it was told otherwise.
    """
    advice = getattr(mmap, "MADV_HUGEPAGE", None)  # other systems have none
    if advice is None or size < _LEAST_BYTES:
        return None
    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # shared memory has rules of its own
        memory = mmap.mmap(-1, size + _PAGE_BYTES, flags=flags)
        memory.madvise(advice)
    except OSError:  # no room, or a Linux without them
        return None
    values = np.frombuffer(memory, np.uint8)
    begin = -values.__array_interface__["data"][0] % _PAGE_BYTES
    return values[begin : begin + size]


def drop_pages(values: NDArray[Any]) -> None:
    """Keep no page of a file in this process whose bytes an array is, if it is of a mapped file.

    Weights that lie on the device are not needed, and TFLite maps the file, too.
    """
    file = owner_of(values)
    if isinstance(file, MappedFile):
        file.drop_pages(file.offset_of(values), values.nbytes)

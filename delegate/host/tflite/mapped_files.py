# SPDX-License-Identifier: Apache-2.0
"""Detects identical bytes of a file that is mapped twice, without reading them."""

from __future__ import annotations

import bisect
from contextlib import suppress
from functools import cached_property
from typing import Any

from numpy.typing import NDArray


class MappedFiles:
    """The read-only file mappings of this process.

    They are read on first use: PoCL maps at least one file for each kernel.
    """

    @cached_property
    def _pieces(self) -> list[tuple[int, int, str, int]]:
        """Memory range, file, and file offset of each mapping; ascending."""
        found = []
        with suppress(OSError), open("/proc/self/maps", errors="replace") as maps:
            for line in maps:
                span, mode, offset, device, inode, *_ = line.split(maxsplit=5)
                if mode.startswith("r-") and inode != "0":
                    low, high = (int(part, 16) for part in span.split("-"))
                    found.append((low, high, f"{device} {inode}", int(offset, 16)))
        return found

    def are_same(self, one: NDArray[Any], other: NDArray[Any]) -> bool:
        """Whether two arrays are certainly the same bytes: in a file, or in memory."""
        if one.nbytes != other.nbytes or not (one.flags.c_contiguous and other.flags.c_contiguous):
            return False
        first, second = (each.__array_interface__["data"][0] for each in (one, other))
        if first == second:
            return True
        place = self._place(first, one.nbytes)
        return place is not None and place == self._place(second, one.nbytes)

    def _place(self, address: int, size_bytes: int) -> tuple[str, int] | None:
        """Return the file and offset of a memory range."""
        at = bisect.bisect_right(self._pieces, address, key=lambda piece: piece[0]) - 1
        if at < 0:
            return None
        low, high, file, offset = self._pieces[at]
        is_inside = address + size_bytes <= high
        return (file, address - low + offset) if is_inside else None

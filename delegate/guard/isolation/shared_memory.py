# SPDX-License-Identifier: Apache-2.0
"""Shared memory of this process and a child, for the tensors of runs."""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
_ALIGNMENT = mmap.PAGESIZE  # a driver may copy whole pages faster
# Sealed against truncation: accessing a truncated mapping raises SIGBUS.
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class SharedMemory:
    """A mapped memfd.

    Attributes:
        path: for the child to open it; arrays: one of each size.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        """Create it; raises OSError: out of memory."""
        total = _places(sizes)[1]
        handle = os.memfd_create("tensors", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(handle, 0, total)  # an error here instead of SIGBUS later
            fcntl.fcntl(handle, fcntl.F_ADD_SEALS, _SEALS)
            self.arrays = _mapped(handle, sizes)
        except BaseException:
            os.close(handle)
            raise
        self.path = f"/proc/{os.getpid()}/fd/{handle}"
        # Only the descriptor: the arrays own the mapping.
        weakref.finalize(self, os.close, handle).atexit = False


def open_arrays(path: str, sizes: Sequence[int]) -> tuple[Bytes, ...]:
    """Return the arrays of another process' SharedMemory; raises OSError."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return _mapped(handle, sizes)
    finally:
        os.close(handle)


def _places(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Return the offset of each array, and the total size."""
    places, end = [], 0
    for size in sizes:
        places.append(end)
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return places, max(end, 1)


def _mapped(handle: int, sizes: Sequence[int]) -> tuple[Bytes, ...]:
    places, total = _places(sizes)
    whole = np.frombuffer(mmap.mmap(handle, total), np.uint8)
    return tuple(whole[place : place + size] for place, size in zip(places, sizes, strict=True))

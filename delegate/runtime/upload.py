# SPDX-License-Identifier: Apache-2.0
"""Constants are packed, and go up to a buffer of the device."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyopencl as cl

from delegate.errors import DeviceError
from delegate.launch import Constant
from delegate.runtime.layout import Bytes, as_bytes

_PIECE_BYTES = 1 << 20  # of host memory through which constants go up
_AHEAD = 8  # constants that may lie packed in the host's memory
_Made = TypeVar("_Made")


@dataclass(eq=False)
class Key:
    """A content. Constants of which one is known to be made as the other have the same one.

    Of others the digests are compared, which are not taken before there is another one to compare.
    """

    size_bytes: int
    digest: bytes | None = None


class Upload:
    """Fills a part of a buffer in order, and reads back what it wrote. Gaps are zeros."""

    def __init__(self, queue: cl.CommandQueue, buffer: cl.Buffer, begin: int, end: int) -> None:
        self._queue, self._buffer, self._end = queue, buffer, end
        self._piece = np.zeros(min(end - begin, _PIECE_BYTES), np.uint8)
        self._kept = np.empty_like(self._piece)
        self._begin = begin  # of the piece, in the buffer

    def add(self, values: Bytes, offset: int) -> None:
        """Write a constant behind those before it."""
        if values.size >= _PIECE_BYTES >> 4:  # from where it lies
            self._write(offset - self._begin)
            while values.size:
                self._write_from(values[:_PIECE_BYTES])
                values = values[_PIECE_BYTES:]
            return
        while values.size:
            at = offset - self._begin
            if at >= self._piece.size:
                self._write(self._piece.size)
                continue
            part = values[: self._piece.size - at]
            self._piece[at : at + part.size] = part
            offset, values = offset + part.size, values[part.size :]

    def end(self) -> None:
        """Write what is left, to the part's end."""
        while self._begin < self._end:
            self._write(min(self._piece.size, self._end - self._begin))

    def _write(self, count: int) -> None:
        """Write so many bytes of the piece, and empty it."""
        while count > 0:
            piece = self._piece[:count]
            self._write_from(piece)
            count -= piece.size
            piece[:] = 0

    def _write_from(self, values: Bytes) -> None:
        kept = self._kept[: values.size]
        cl.enqueue_copy(self._queue, self._buffer, values, dst_offset=self._begin)
        # Kernels address memory by constants: wrong ones could end the process.
        cl.enqueue_copy(self._queue, kept, self._buffer, src_offset=self._begin)
        if not np.array_equal(kept, values):
            raise DeviceError("the device's memory does not hold what was written to it")
        self._begin += values.size


def packed_ahead(
    constants: Iterable[Constant], make: Callable[[Bytes], _Made]
) -> Generator[_Made, None, None]:
    """Yield what `make` makes of what each is packed to, while other threads do the next few."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "packing") as pool:
        ahead: deque[Future[_Made]] = deque()
        for constant in constants:
            ahead.append(pool.submit(lambda each: make(_packed(each)), constant))
            if len(ahead) > _AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _packed(constant: Constant) -> Bytes:
    values = as_bytes(constant.pack())
    if values.size != constant.size_bytes:
        raise ValueError(f"{values.size} bytes are packed, {constant.size_bytes} planned")
    return values


def digest_of(values: Bytes) -> bytes:
    """Return what tells contents apart."""
    return hashlib.blake2b(values.data, digest_size=32).digest()  # in less time than sha256

# SPDX-License-Identifier: Apache-2.0
"""Constants are packed, and go up to a buffer of the device."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyopencl as cl

from delegate.errors import DeviceError
from delegate.launch import Constant
from delegate.runtime.layout import SLACK_BYTES, Bytes, aligned, as_bytes
from delegate.runtime.mapping import unmap

_PIECE_BYTES = 1 << 20  # of host memory through which constants go up
_NOT_KEPT = "the device's memory does not hold what was written to it"
_AHEAD = 8  # constants that may lie packed in the host's memory
_Made = TypeVar("_Made")
Offsets = Mapping[Constant, int]  # in bytes


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
            raise DeviceError(_NOT_KEPT)
        self._begin += values.size


def upload(
    queue: cl.CommandQueue,
    buffer: cl.Buffer,
    begin: int,
    size: int,
    offsets: Offsets,
    done: Callable[[Constant], object],
) -> None:
    """Fill a part of a buffer with constants, by their offsets in it, and zeros between them.

    `done`: is called with each that was packed.

    Raises:
        DeviceError: the memory does not hold what was written to it.
    """
    filling = Upload(queue, buffer, begin, begin + size)
    packed = packed_ahead(offsets, lambda _, values: values)
    for (constant, offset), values in zip(offsets.items(), packed, strict=True):
        filling.add(values, begin + offset)
        done(constant)
    filling.end()


def pack_in_place(
    queue: cl.CommandQueue,
    buffer: cl.Buffer,
    begin: int,
    size: int,
    offsets: Offsets,
    done: Callable[[Constant], object],
) -> None:
    """Do what `upload` does where the host has the device's memory: nothing is copied twice."""

    @contextlib.contextmanager
    def mapped(flags: int) -> Iterator[Bytes]:
        found, _ = cl.enqueue_map_buffer(queue, buffer, flags, begin, (size,), np.uint8)
        try:
            yield found
        finally:
            unmap(found.base, queue)

    with mapped(cl.map_flags.WRITE_INVALIDATE_REGION) as memory:

        def put(constant: Constant, values: Bytes) -> int:
            part = memory[offsets[constant] :][: aligned(constant)]
            part[: values.size] = values
            part[values.size :] = 0
            done(constant)
            return _sum_of(values)

        memory[size - SLACK_BYTES :] = 0
        sums = [*packed_ahead(offsets, put)]
    with mapped(cl.map_flags.READ) as memory:
        kept = (_sum_of(memory[at:][: each.size_bytes]) for each, at in offsets.items())
        if [*kept] != sums:
            raise DeviceError(_NOT_KEPT)


def _sum_of(values: Bytes) -> int:
    """Return the sum of words, modulo 2^64, and of the bytes behind the last one."""
    words, rest = values[: values.size & -8].view(np.uint64), values[values.size & -8 :]
    return (int(words.sum()) + int(rest.sum())) % 2**64


def packed_ahead(
    constants: Iterable[Constant], make: Callable[[Constant, Bytes], _Made]
) -> Generator[_Made, None, None]:
    """Yield what `make` makes of what each is packed to, while other threads do the next few."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "packing") as pool:
        ahead: deque[Future[_Made]] = deque()
        for constant in constants:
            ahead.append(pool.submit(lambda each: make(each, _packed(each)), constant))
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

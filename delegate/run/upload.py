# SPDX-License-Identifier: Apache-2.0
"""Packs constants and uploads them to a device buffer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyopencl as cl

from delegate.errors import DeviceError
from delegate.guard.children.cgroup import usable_processors
from delegate.launch import Constant
from delegate.plan.layout import SLACK_BYTES, Bytes, aligned_bytes, as_bytes
from delegate.run.mapping import mapped

_PIECE_BYTES = 1 << 20  # size of the host staging buffer
MEMORY_MISMATCH = "the device's memory does not hold what was written to it"
_AHEAD = 8  # packed constants held in host memory at once
_Made = TypeVar("_Made")


@dataclass(eq=False)
class ContentKey:
    """Identity of a content. Constants known to be packed alike share one key.

    For others, digests are compared; they are computed only when there is something to compare.
    """

    size_bytes: int
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class BufferRange:
    """A range of a buffer, and the constants that fill it; gaps are zero."""

    buffer: cl.Buffer
    begin: int  # in the buffer, in bytes
    size_bytes: int
    offsets: Mapping[Constant, int]  # relative to the range, in bytes; ascending
    on_packed: Callable[[Constant], object]  # called after packing each


def upload(queue: cl.CommandQueue, part: BufferRange) -> None:
    """Fill a range of a buffer, and read it back.

    Raises:
        DeviceError: the memory does not hold what was written to it.
    """
    piece = np.zeros(min(part.size_bytes, _PIECE_BYTES), np.uint8)  # staging buffer
    kept = np.empty_like(piece)
    written = 0  # bytes of the range

    def write_next(values: Bytes) -> None:
        nonlocal written
        write(queue, part.buffer, part.begin + written, values, kept[: values.size])
        written += values.size

    def write_piece(end: int) -> None:
        """Write the staging buffer and then zeros up to an offset, and clear it."""
        while written < end:
            values = piece[: end - written]
            write_next(values)
            values[:] = 0

    packed = packed_ahead(part.offsets, lambda _, values: values)
    for (constant, offset), values in zip(part.offsets.items(), packed, strict=True):
        is_large = values.size >= _PIECE_BYTES >> 4
        if is_large or offset + values.size > written + piece.size:
            write_piece(offset)
        if is_large:  # directly, without staging
            for first in range(0, values.size, _PIECE_BYTES):
                write_next(values[first:][:_PIECE_BYTES])
        else:
            piece[offset - written :][: values.size] = values
        part.on_packed(constant)
    write_piece(part.size_bytes)


def write(
    queue: cl.CommandQueue, buffer: cl.Buffer, offset: int, values: Bytes, kept: Bytes
) -> None:
    """Write values to a buffer, and read them back into other host memory of the same size.

    Raises:
        DeviceError: the memory does not hold what was written to it.
    """
    cl.enqueue_copy(queue, buffer, values, dst_offset=offset)
    # Kernels compute addresses from constants and params: wrong ones could end the process.
    cl.enqueue_copy(queue, kept, buffer, src_offset=offset)
    if not np.array_equal(kept, values):
        raise DeviceError(MEMORY_MISMATCH)


def pack_in_place(queue: cl.CommandQueue, part: BufferRange) -> None:
    """Like `upload`, for devices that share host memory: packs without a second copy."""
    place = part.begin, part.size_bytes
    with mapped(queue, part.buffer, cl.map_flags.WRITE_INVALIDATE_REGION, *place) as memory:

        def put(constant: Constant, values: Bytes) -> int:
            own = memory[part.offsets[constant] :][: aligned_bytes(constant)]
            own[: values.size] = values
            own[values.size :] = 0
            part.on_packed(constant)
            return sum_of(values)

        memory[part.size_bytes - SLACK_BYTES :] = 0
        sums = [*packed_ahead(part.offsets, put)]
    with mapped(queue, part.buffer, cl.map_flags.READ, *place) as memory:
        kept = (sum_of(memory[at:][: each.size_bytes]) for each, at in part.offsets.items())
        if [*kept] != sums:
            raise DeviceError(MEMORY_MISMATCH)


def sum_of(values: Bytes) -> int:
    """Return the sum of the 64-bit words, modulo 2^64, and of the trailing bytes."""
    words, rest = values[: values.size & -8].view(np.uint64), values[values.size & -8 :]
    return (int(words.sum()) + int(rest.sum())) % 2**64


def packed_ahead(
    constants: Iterable[Constant], make: Callable[[Constant, Bytes], _Made]
) -> Generator[_Made, None, None]:
    """Yield `make` of each packed constant, while other threads pack the next few."""
    with ThreadPoolExecutor(usable_processors(), "packing") as pool:
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

# SPDX-License-Identifier: Apache-2.0
"""Buffers of constants as files, and files as buffers: what a plan has in the place of weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np
import pyopencl as cl

from delegate.errors import DeviceError
from delegate.launch import Constant
from delegate.plan.contents import Source, save
from delegate.plan.record import BufferPlan, SegmentPlan
from delegate.runtime.layout import SLACK_BYTES, Bytes
from delegate.runtime.mapping import mapped
from delegate.runtime.upload import NOT_KEPT, Part, sum_of, upload
from delegate.runtime.weights import Shelf, Taken, Weights

_SEGMENT_BYTES = 1 << 23  # of a file: several are checked side by side
_Result = TypeVar("_Result")


def saved(weights: Weights, queue: cl.CommandQueue, taken: Taken) -> tuple[BufferPlan, ...]:
    """Return plans of the buffers that an executor has, whose contents are kept in files.

    OpenCL's errors are the caller's to catch.
    """
    with weights.room.lock:
        for shelf in taken.shelves:
            begin = _planned_end(shelf)
            while begin < shelf.end:
                values = np.empty(min(shelf.end - begin, _SEGMENT_BYTES), np.uint8)
                cl.enqueue_copy(queue, values, shelf.buffer, src_offset=begin)
                shelf.segments.append(SegmentPlan(save(values), begin, values.nbytes))
                begin += values.nbytes
        return tuple(BufferPlan(s.size_bytes, tuple(s.segments)) for s in taken.shelves)


def leased(
    weights: Weights, queue: cl.CommandQueue, buffers: Sequence[BufferPlan], source: Source
) -> Taken:
    """Return the constants of a plan; what is not on the device is uploaded from its files.

    OpenCL's errors are the caller's to catch.

    Raises:
        MissingContent: as `source`. DeviceError: there is no room, or the memory does not hold what
            was written to it.
    """
    with weights.room.lock:
        found = Taken(weights, (), (), {})
        try:
            for plan in buffers:
                shelf = _filled(weights, queue, plan, source)
                shelf.users += 1
                weights.room.shelves.add(shelf)
                found.shelves.append(shelf)
        except BaseException:
            found.close()
            raise
        weights.room.taken.add(found)
        return found


def _planned_end(shelf: Shelf) -> int:
    return sum(segment.size_bytes for segment in shelf.segments)


def _has_room(shelf: Shelf, plan: BufferPlan) -> bool:
    """Whether a shelf has a plan's segments, or the first ones and room for the rest."""
    count = min(len(shelf.segments), len(plan.segments))
    return (
        count > 0
        and shelf.size_bytes == plan.size_bytes
        and shelf.segments[:count] == [*plan.segments[:count]]
        and (count == len(plan.segments) or shelf.end == _planned_end(shelf))
    )


def _filled(weights: Weights, queue: cl.CommandQueue, plan: BufferPlan, source: Source) -> Shelf:
    """Return the shelf that has a plan's segments."""
    device = weights.device
    shelf = next((each for each in [*weights.room.shelves] if _has_room(each, plan)), None)
    if shelf is None:
        buffer = device.buffer("constants", cl.mem_flags.READ_ONLY, plan.size_bytes)
        shelf = Shelf(buffer, plan.size_bytes)
    new = plan.segments[len(shelf.segments) :]
    if not new:
        return shelf
    try:
        _upload_segments(queue, shelf, new, source, device.shares_memory)
    except BaseException:
        if not shelf.users:
            shelf.buffer.release()
        raise
    shelf.segments += new
    shelf.end = _planned_end(shelf)
    return shelf


def _upload_segments(
    queue: cl.CommandQueue,
    shelf: Shelf,
    segments: Sequence[SegmentPlan],
    source: Source,
    is_shared: bool,
) -> None:
    """Put segments behind what a shelf has. `is_shared`: the host has the device's memory."""
    end = shelf.end
    for each in segments:
        if each.offset != end:
            raise ValueError("segments of constants that do not follow each other")
        end += each.size_bytes
    if is_shared:
        _read_in_place(queue, shelf, segments, source)
        return
    constants = {
        Constant(each.size_bytes, partial(source.content, each.digest, each.size_bytes)): (
            each.offset - shelf.end
        )
        for each in segments
    }
    size = end - shelf.end + SLACK_BYTES
    upload(queue, Part(shelf.buffer, shelf.end, size, constants, lambda _: None))


def _read_in_place(
    queue: cl.CommandQueue, shelf: Shelf, segments: Sequence[SegmentPlan], source: Source
) -> None:
    """Read files to the device's memory, and check there what they and the memory hold."""

    def slice_of(memory: Bytes, each: SegmentPlan) -> Bytes:
        return memory[each.offset - shelf.end :][: each.size_bytes]

    def put(each: SegmentPlan) -> int:
        content = source.content(each.digest, each.size_bytes)
        slice_of(memory, each)[:] = content
        return sum_of(content)

    size = sum(each.size_bytes for each in segments) + SLACK_BYTES
    flags = cl.map_flags
    with mapped(queue, shelf.buffer, flags.WRITE_INVALIDATE_REGION, shelf.end, size) as memory:
        memory[-SLACK_BYTES:] = 0
        sums = _in_parallel(segments, put)
    with mapped(queue, shelf.buffer, flags.READ, shelf.end, size) as kept:
        if _in_parallel(segments, lambda each: sum_of(slice_of(kept, each))) != sums:
            raise DeviceError(NOT_KEPT)


def _in_parallel(
    segments: Sequence[SegmentPlan], make: Callable[[SegmentPlan], _Result]
) -> list[_Result]:
    """Return what is made of each; reading and hashing let other threads run."""
    if len(segments) == 1:
        return [make(segments[0])]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "constants") as pool:
        return [*pool.map(make, segments)]

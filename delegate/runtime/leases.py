# SPDX-License-Identifier: Apache-2.0
"""Buffers of constants as files, and files as buffers: what a plan has in the place of weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from delegate.launch import Constant
from delegate.plan.contents import save
from delegate.plan.record import BufferPlan, SegmentPlan
from delegate.runtime.layout import SLACK_BYTES
from delegate.runtime.upload import Part, pack_in_place, upload
from delegate.runtime.weights import Shelf, Taken, Weights

_SEGMENT_BYTES = 1 << 23  # of a file: several are checked side by side
Load = Callable[[str, int], NDArray[np.uint8]]  # a content, by its digest and size


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
    weights: Weights, queue: cl.CommandQueue, buffers: Sequence[BufferPlan], load: Load
) -> Taken:
    """Return the constants of a plan; what is not on the device is uploaded from its files.

    OpenCL's errors are the caller's to catch.

    Raises:
        MissingContent: as `load`. DeviceError: there is no room, or the memory does not hold what
            was written to it.
    """
    with weights.room.lock:
        found = Taken(weights, (), (), {})
        try:
            for plan in buffers:
                shelf = _filled(weights, queue, plan, load)
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


def _filled(weights: Weights, queue: cl.CommandQueue, plan: BufferPlan, load: Load) -> Shelf:
    """Return the shelf that has a plan's segments."""
    device = weights.device
    shelf = next((each for each in [*weights.room.shelves] if _has_room(each, plan)), None)
    if shelf is None:
        buffer = device.buffer("constants", cl.mem_flags.READ_ONLY, plan.size_bytes)
        shelf = Shelf(buffer, plan.size_bytes)
    new = plan.segments[len(shelf.segments) :]
    if not new:
        return shelf
    constants = {
        Constant(each.size_bytes, partial(load, each.digest, each.size_bytes)): (
            each.offset - shelf.end
        )
        for each in new
    }
    size = sum(each.size_bytes for each in new)
    part = Part(shelf.buffer, shelf.end, size + SLACK_BYTES, constants, lambda _: None)
    try:
        (pack_in_place if device.shares_memory else upload)(queue, part)
    except BaseException:
        if not shelf.users:
            shelf.buffer.release()
        raise
    shelf.segments += new
    shelf.end += size
    return shelf

# SPDX-License-Identifier: Apache-2.0
"""Constant buffers saved to files and loaded from them, so that a plan needs no weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np
import pyopencl as cl

from delegate.errors import DeviceError
from delegate.guard.children.cgroup import usable_processors
from delegate.launch import Constant
from delegate.plan.contents import ContentSource, save
from delegate.plan.layout import SLACK_BYTES, Bytes
from delegate.plan.record import BufferPlan, SegmentPlan
from delegate.run.mapping import mapped
from delegate.run.upload import MEMORY_MISMATCH, BufferRange, sum_of, upload
from delegate.run.weights import ConstantBuffer, Lease, Weights

_SEGMENT_BYTES = 1 << 23  # of a file: segments are checked in parallel
_Result = TypeVar("_Result")


def save_constants(lease: Lease) -> tuple[BufferPlan, ...]:
    """Save the contents of an executor's constant buffers; return their plans.

    Raises: DeviceError: they cannot be read.
    """
    device = lease.weights.device
    queue = device.queue
    with lease.weights.pool.lock, device.calling("reading constants back"):
        for buffer in lease.buffers:
            begin = _planned_end(buffer)
            while begin < buffer.end:
                values = np.empty(min(buffer.end - begin, _SEGMENT_BYTES), np.uint8)
                cl.enqueue_copy(queue, values, buffer.cl_buffer, src_offset=begin)
                buffer.segments.append(SegmentPlan(save(values), begin, values.nbytes))
                begin += values.nbytes
        return tuple(BufferPlan(s.size_bytes, tuple(s.segments)) for s in lease.buffers)


def load_constants(
    weights: Weights, queue: cl.CommandQueue, buffers: Sequence[BufferPlan], source: ContentSource
) -> Lease:
    """Return the constants of a plan; uploads from files what the device does not have yet.

    OpenCL errors propagate to the caller.

    Raises:
        MissingContent: as `source`. DeviceError: out of memory, or the memory does not hold what
            was written to it.
    """
    with weights.pool.lock:
        lease = Lease(weights, (), (), {})
        try:
            for plan in buffers:
                buffer = _filled_buffer(weights, queue, plan, source)
                buffer.users += 1
                weights.pool.buffers.add(buffer)
                lease.buffers.append(buffer)
        except BaseException:
            lease.close()
            raise
        weights.pool.leases.add(lease)
        return lease


def _planned_end(buffer: ConstantBuffer) -> int:
    return sum(segment.size_bytes for segment in buffer.segments)


def _has_space(buffer: ConstantBuffer, plan: BufferPlan) -> bool:
    """Whether a buffer holds a plan's segments, or a prefix of them and space for the rest."""
    count = min(len(buffer.segments), len(plan.segments))
    return (
        count > 0
        and buffer.size_bytes == plan.size_bytes
        and buffer.segments[:count] == [*plan.segments[:count]]
        and (count == len(plan.segments) or buffer.end == _planned_end(buffer))
    )


def _filled_buffer(
    weights: Weights, queue: cl.CommandQueue, plan: BufferPlan, source: ContentSource
) -> ConstantBuffer:
    """Return a buffer that holds the plan's segments."""
    device = weights.device
    buffer = next((each for each in [*weights.pool.buffers] if _has_space(each, plan)), None)
    if buffer is None:
        cl_buffer = device.buffer("constants", cl.mem_flags.READ_ONLY, plan.size_bytes)
        buffer = ConstantBuffer(cl_buffer, plan.size_bytes)
    new = plan.segments[len(buffer.segments) :]
    if not new:
        return buffer
    try:
        _upload_segments(queue, buffer, new, source, device.shares_memory)
    except BaseException:
        if not buffer.users:
            buffer.cl_buffer.release()
        raise
    buffer.segments += new
    buffer.end = _planned_end(buffer)
    return buffer


def _upload_segments(
    queue: cl.CommandQueue,
    buffer: ConstantBuffer,
    segments: Sequence[SegmentPlan],
    source: ContentSource,
    is_shared: bool,
) -> None:
    """Append segments to a buffer. `is_shared`: device memory is host memory."""
    end = buffer.end
    for each in segments:
        if each.offset != end:
            raise ValueError("segments of constants that do not follow each other")
        end += each.size_bytes
    if is_shared:
        _read_in_place(queue, buffer, segments, source)
        return
    constants = {
        Constant(each.size_bytes, partial(source.content, each.digest, each.size_bytes)): (
            each.offset - buffer.end
        )
        for each in segments
    }
    size = end - buffer.end + SLACK_BYTES
    upload(queue, BufferRange(buffer.cl_buffer, buffer.end, size, constants, lambda _: None))


def _read_in_place(
    queue: cl.CommandQueue,
    buffer: ConstantBuffer,
    segments: Sequence[SegmentPlan],
    source: ContentSource,
) -> None:
    """Read files straight into device memory, and verify both the files and the memory."""

    def slice_of(memory: Bytes, each: SegmentPlan) -> Bytes:
        return memory[each.offset - buffer.end :][: each.size_bytes]

    def put(each: SegmentPlan) -> int:
        content = source.content(each.digest, each.size_bytes)
        slice_of(memory, each)[:] = content
        return sum_of(content)

    size = sum(each.size_bytes for each in segments) + SLACK_BYTES
    flags = cl.map_flags
    with mapped(queue, buffer.cl_buffer, flags.WRITE_INVALIDATE_REGION, buffer.end, size) as memory:
        memory[-SLACK_BYTES:] = 0
        sums = _in_parallel(segments, put)
    with mapped(queue, buffer.cl_buffer, flags.READ, buffer.end, size) as kept:
        if _in_parallel(segments, lambda each: sum_of(slice_of(kept, each))) != sums:
            raise DeviceError(MEMORY_MISMATCH)


def _in_parallel(
    segments: Sequence[SegmentPlan], make: Callable[[SegmentPlan], _Result]
) -> list[_Result]:
    """Map `make` over segments in threads; reading and hashing release the GIL."""
    if len(segments) == 1:
        return [make(segments[0])]
    with ThreadPoolExecutor(usable_processors(), "constants") as pool:
        return [*pool.map(make, segments)]

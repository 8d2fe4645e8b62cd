# SPDX-License-Identifier: Apache-2.0
"""A part of a buffer is mapped for the host, and given back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pyopencl as cl

from delegate.guard.children.process import never_free
from delegate.plan.layout import Bytes


@contextlib.contextmanager
def mapped(
    queue: cl.CommandQueue, buffer: cl.Buffer, access: int, offset: int, size: int
) -> Iterator[Bytes]:
    """Give a part of a buffer to the host while the context lasts; both numbers are in bytes."""
    view, _ = cl.enqueue_map_buffer(queue, buffer, access, offset, (size,), np.uint8)
    try:
        yield view
    finally:
        unmap(view.base, queue)


def unmap(mapping: cl.MemoryMap, queue: cl.CommandQueue) -> None:
    """Give mapped memory back.

    If the driver refuses that, pyopencl asks again where it frees the object, and a second refusal
    ends the process. So the object is never freed then.
    """
    try:
        mapping.release(queue)
    except cl.Error:
        never_free(mapping)
        raise


def unmap_if_possible(mapping: cl.MemoryMap, queue: cl.CommandQueue) -> None:
    """Give mapped memory back; a device that is lost may refuse."""
    with contextlib.suppress(cl.Error):  # of a lost device
        unmap(mapping, queue)

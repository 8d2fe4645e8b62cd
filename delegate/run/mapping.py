# SPDX-License-Identifier: Apache-2.0
"""Maps parts of buffers for the host, and unmaps them."""

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
    """Map a part of a buffer while the context lasts; offset and size are in bytes."""
    view, _ = cl.enqueue_map_buffer(queue, buffer, access, offset, (size,), np.uint8)
    try:
        yield view
    finally:
        unmap(view.base, queue)


def unmap(mapping: cl.MemoryMap, queue: cl.CommandQueue) -> None:
    """Unmap memory.

    If the driver refuses, pyopencl tries again when it frees the object, and a second refusal ends
    the process. So the object is leaked in that case.
    """
    try:
        mapping.release(queue)
    except cl.Error:
        never_free(mapping)
        raise


def unmap_if_possible(mapping: cl.MemoryMap, queue: cl.CommandQueue) -> None:
    """Unmap memory; a lost device may refuse."""
    with contextlib.suppress(cl.Error):  # of a lost device
        unmap(mapping, queue)

# SPDX-License-Identifier: Apache-2.0
"""Mapped memory is given back."""

from __future__ import annotations

import contextlib

import pyopencl as cl

from delegate.sandbox.process import keep_for_good


def unmap(mapping: cl.MemoryMap, queue: cl.CommandQueue) -> None:
    """Give mapped memory back.

    If the driver refuses that, pyopencl asks again where it frees the object, and a second refusal
    ends the process. So the object is never freed then.
    """
    try:
        mapping.release(queue)
    except cl.Error:
        keep_for_good(mapping)
        raise


def unmap_if_possible(mapping: cl.MemoryMap, queue: cl.CommandQueue) -> None:
    """Give mapped memory back; a device that is lost may refuse."""
    with contextlib.suppress(cl.Error):  # of a lost device
        unmap(mapping, queue)

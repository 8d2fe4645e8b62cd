# SPDX-License-Identifier: Apache-2.0
"""Guard bytes behind each tensor of an arena, which no kernel may write.

kernels/README.md: a kernel may read up to 64 bytes past a tensor's end; it never writes there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from numpy.typing import NDArray

from delegate.inspect import Tensor
from delegate.launch import size_bytes
from delegate.plan import layout
from delegate.run.executor import Executor

GUARD_BYTES = 64  # behind each tensor, in addition to the padding for alignment


@contextmanager
def guarded() -> Iterator[list[str]]:
    """Run programs with guard bytes; yields a list that gets a line for each overrun tensor.

    The layout stays real: tensors with disjoint lifetimes share bytes. A guard byte is a byte that
    never belongs to a tensor.
    """
    written: list[str] = []
    run, room = Executor.run, layout.padded_bytes
    guards_of: dict[Executor, tuple[Any, ...]] = {}

    def run_guarded(self: Executor, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        if self not in guards_of:  # no run writes guards, so they are written once
            guards_of[self] = _guard(self)
        offsets, is_guard, guards = guards_of[self]
        run(self, inputs, outputs)
        for slot in _bytes_of_arena(self).reshape(self.batch, -1):
            places = np.flatnonzero(is_guard & (slot != guards))
            written.extend(_lines(offsets, places))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "padded_bytes", lambda tensor: room(tensor) + GUARD_BYTES)
        patch.setattr(Executor, "run", run_guarded)
        yield written


def _guard(executor: Executor) -> tuple[Any, ...]:
    """Write guard bytes; return the tensors' places, which bytes are guards, and those bytes."""
    offsets = executor.plan.memory.offsets
    before = _bytes_of_arena(executor)
    slots = before.reshape(executor.batch, -1)
    is_guard = _guards(offsets, slots.shape[1])
    # Random, because a kernel that runs too far may copy guard bytes to guard bytes.
    guards = np.random.default_rng(0).integers(0, 256, slots.shape[1], np.uint8)
    slots[:, is_guard] = guards[is_guard]
    cl.enqueue_copy(executor.copy_strategy.queue, executor.copy_strategy.arena, before)
    return offsets, is_guard, guards


def _bytes_of_arena(executor: Executor) -> NDArray[np.uint8]:
    values = np.empty(executor.copy_strategy.arena.size, np.uint8)
    cl.enqueue_copy(executor.copy_strategy.queue, values, executor.copy_strategy.arena)
    return values


def _guards(offsets: Any, count: int) -> NDArray[np.bool_]:
    """Return which bytes of an arena belong to no tensor."""
    is_guard = np.ones(count, bool)
    for tensor, offset in offsets.items():
        is_guard[offset : offset + size_bytes(tensor)] = False
    return is_guard


def _lines(offsets: Any, places: NDArray[np.intp]) -> list[str]:
    """Return a line for each tensor with writes behind it."""
    behind: dict[Tensor, list[int]] = {}
    for place in places.tolist():
        tensor = max((t for t in offsets if offsets[t] <= place), key=lambda t: offsets[t])
        behind.setdefault(tensor, []).append(place - offsets[tensor] - size_bytes(tensor))
    return [
        f"{len(distances)} bytes written behind {tensor.name} ({tensor.dtype} {tensor.shape}), "
        f"the first {distances[0]} bytes past its end"
        for tensor, distances in behind.items()
    ]

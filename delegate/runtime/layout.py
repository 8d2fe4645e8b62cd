# SPDX-License-Identifier: Apache-2.0
"""Program + batch -> where every byte goes: arena, constants, parameter blocks. Only plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import Constant, Program, size_bytes
from delegate.runtime.memory import plan_arena, plan_constants

Bytes = NDArray[np.uint8]
_HEAD_INTS = 2  # before a launch's parameters, for KERNEL of kernel.clh


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """What lies where; offsets and sizes are in bytes."""

    batch: int
    slot_bytes: int  # the arena of one picture; the pictures' arenas follow each other
    inputs: tuple[tuple[int, int], ...]  # (offset, size) in each picture's arena
    outputs: tuple[tuple[int, int], ...]
    offsets: Mapping[Tensor, int]  # of every tensor, in each picture's arena
    stored: Mapping[Tensor, int]  # tensors with data that launches read from the arena -> offset
    blocks: tuple[int, ...]  # the parameter blocks of all launches
    firsts: tuple[int, ...]  # where each launch's own parameters begin in `blocks`
    constant_bytes: int
    constants: Mapping[Constant, int]  # -> offset

    @property
    def arena_bytes(self) -> int:
        """The arenas of all pictures."""
        return self.slot_bytes * self.batch

    def block(self, first: int, fields: int) -> Bytes:
        """Return a launch's parameters with the two ints before them; `first`: one of `firsts`."""
        return as_bytes(np.array(self.blocks[first - _HEAD_INTS : first + fields], np.int32))

    def packed_constants(self) -> Bytes:
        """Return the content of the constants' buffer."""
        content = np.zeros(self.constant_bytes, np.uint8)
        for constant, offset in self.constants.items():
            content[offset : offset + constant.size_bytes] = as_bytes(constant.pack())
        return content


def layout_of(program: Program, batch: int = 1) -> Layout:
    """Return the layout of a program that runs for `batch` pictures at once."""
    arena = plan_arena(program)
    constant_bytes, constants = plan_constants(program)

    def resolve(value: int | Tensor | Constant) -> int:
        if isinstance(value, Tensor):
            return arena.offsets[value]
        return constants[value] if isinstance(value, Constant) else value

    blocks: list[int] = []
    firsts: list[int] = []
    for launch in program.launches:
        blocks += [launch.tiles, arena.size_bytes]  # KERNEL of kernel.clh reads these two
        firsts.append(len(blocks))
        blocks.extend(resolve(value) for value in launch.params.values())
    return Layout(
        batch=batch,
        slot_bytes=arena.size_bytes,
        inputs=tuple((arena.offsets[tensor], size_bytes(tensor)) for tensor in program.inputs),
        outputs=tuple((arena.offsets[tensor], size_bytes(tensor)) for tensor in program.outputs),
        offsets=arena.offsets,
        stored={t: offset for t, offset in arena.offsets.items() if t.data is not None},
        blocks=tuple(blocks),
        firsts=tuple(firsts),
        constant_bytes=constant_bytes,
        constants=constants,
    )


def as_bytes(values: NDArray[np.generic]) -> Bytes:
    """Return an array's bytes in C order."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)

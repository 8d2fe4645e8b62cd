# SPDX-License-Identifier: Apache-2.0
"""Program + batch -> where every byte goes: arena, constants, parameter blocks. Only plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import Constant, Program, size_bytes

Bytes = NDArray[np.uint8]
ALIGNMENT = 64  # bytes: a vector of 16 ints, and a cache line of most devices
# Kernels may read a vector of 16 ints past a tensor's last element, never write there: what they
# find does not count, but it must be theirs to read behind the last tensor, too.
SLACK_BYTES = 64
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
    slot_bytes, offsets = plan_arena(program)
    constant_bytes, constants = plan_constants(program)

    def resolve(value: int | Tensor | Constant) -> int:
        if isinstance(value, Tensor):
            return offsets[value]
        return constants[value] if isinstance(value, Constant) else value

    blocks: list[int] = []
    firsts: list[int] = []
    for launch in program.launches:
        blocks += [launch.tiles, slot_bytes]  # KERNEL of kernel.clh reads these two
        firsts.append(len(blocks))
        blocks.extend(resolve(value) for value in launch.params.values())
    return Layout(
        batch=batch,
        slot_bytes=slot_bytes,
        inputs=tuple((offsets[tensor], size_bytes(tensor)) for tensor in program.inputs),
        outputs=tuple((offsets[tensor], size_bytes(tensor)) for tensor in program.outputs),
        offsets=offsets,
        stored={t: offset for t, offset in offsets.items() if t.data is not None},
        blocks=tuple(blocks),
        firsts=tuple(firsts),
        constant_bytes=constant_bytes,
        constants=constants,
    )


@dataclass(slots=True)
class _Block:
    tensor: Tensor
    size: int
    first: int  # step that writes it; -1 = before the run
    last: int  # step that reads it last
    offset: int = -1


def plan_arena(program: Program) -> tuple[int, Mapping[Tensor, int]]:
    """Return the arena's size and each tensor's offset, both in bytes.

    No two tensors that live at once overlap; the largest are placed first.
    A view shares its source's bytes. Constants that launches read as tensors live for ever.
    """
    root: dict[Tensor, Tensor] = {}
    blocks: dict[Tensor, _Block] = {}
    end = len(program.steps)

    def touch(tensor: Tensor, step: int) -> None:
        tensor = root.get(tensor, tensor)
        if tensor not in blocks:
            blocks[tensor] = _Block(tensor, room_of(tensor), step, step)
        block = blocks[tensor]
        block.first, block.last = min(block.first, step), max(block.last, step)

    for tensor in program.inputs:
        touch(tensor, -1)
    for step, entry in enumerate(program.steps):
        view = entry.alternative.view
        if view is not None:
            source, result = view
            touch(source, step)
            root[result] = root.get(source, source)
        for launch in entry.alternative.launches:
            for tensor in (*launch.reads, *launch.writes):
                touch(tensor, step)
    for tensor in program.outputs:
        touch(tensor, end)
    for tensor, block in blocks.items():
        if tensor.data is not None:
            block.first, block.last = -1, end

    placed: list[_Block] = []
    for block in sorted(blocks.values(), key=lambda b: (-b.size, b.first, b.tensor.index)):
        block.offset = 0
        for other in sorted(placed, key=lambda b: b.offset):
            apart = other.last < block.first or block.last < other.first
            if not apart and block.offset + block.size > other.offset:
                block.offset = max(block.offset, other.offset + other.size)
        placed.append(block)
    offsets = {tensor: block.offset for tensor, block in blocks.items()}
    offsets |= {tensor: offsets[source] for tensor, source in root.items()}
    size = max((block.offset + block.size for block in placed), default=0)
    return size + SLACK_BYTES, offsets


def room_of(tensor: Tensor) -> int:
    """Return the bytes that a tensor takes in an arena."""
    return max(-(-size_bytes(tensor) // ALIGNMENT), 1) * ALIGNMENT


def plan_constants(program: Program) -> tuple[int, Mapping[Constant, int]]:
    """Return the constant buffer's size and each constant's offset, both in bytes."""
    offsets: dict[Constant, int] = {}
    size = 0
    for launch in program.launches:
        for value in launch.params.values():
            if isinstance(value, Constant) and value not in offsets:
                offsets[value] = size
                size += -(-value.size_bytes // ALIGNMENT) * ALIGNMENT
    return size + SLACK_BYTES, offsets


def as_bytes(values: NDArray[np.generic]) -> Bytes:
    """Return an array's bytes in C order."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)

# SPDX-License-Identifier: Apache-2.0
"""Lifetimes of a program's tensors -> offsets in one arena. Plans bytes, allocates nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from delegate.graph.ir import Tensor
from delegate.launch import Constant, Program, size_bytes

ALIGNMENT = 64  # bytes: a vector of 16 ints, and a cache line of most devices
# Kernels may read a vector of 16 ints past a tensor's last element, never write there: what they
# find does not count, but it must be theirs to read behind the last tensor, too.
SLACK_BYTES = 64


@dataclass(frozen=True, slots=True, eq=False)
class ArenaPlan:
    """Where every tensor of a program lies."""

    size_bytes: int
    offsets: Mapping[Tensor, int]  # in bytes


@dataclass(slots=True)
class _Block:
    tensor: Tensor
    size: int
    first: int  # step that writes it; -1 = before the run
    last: int  # step that reads it last
    offset: int = -1


def plan_arena(program: Program) -> ArenaPlan:
    """Place tensors so that no two that live at once overlap, the largest first.

    A view shares its source's bytes. Constants that launches read as tensors live for ever.
    """
    root: dict[Tensor, Tensor] = {}
    blocks: dict[Tensor, _Block] = {}
    end = len(program.steps)

    def touch(tensor: Tensor, step: int) -> None:
        tensor = root.get(tensor, tensor)
        if tensor not in blocks:
            size = max(-(-size_bytes(tensor) // ALIGNMENT), 1) * ALIGNMENT
            blocks[tensor] = _Block(tensor, size, step, step)
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
    return ArenaPlan(size + SLACK_BYTES, offsets)


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

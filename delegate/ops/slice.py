# SPDX-License-Identifier: Apache-2.0
"""SLICE: a box out of a tensor; STRIDED_SLICE: every n-th element of one, forwards or backwards."""

from __future__ import annotations

from dataclasses import dataclass

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative
from delegate.ops._checks.node import ANY, integer, require_shape, shape_text, tensors_of, vector_of
from delegate.ops._launches.copy import Box, Move, moved, steps_of
from delegate.ops._numbers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("SLICE")
def lower_slice(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy so many elements from a place on, along each dimension; -1 are all that are left.

    Raises:
        Unsupported: a computed place or size, or one outside of the input.
    Source: tflite/kernels/slice.cc
    """
    source, place, amounts, result = tensors_of(node, 3, ANY)
    rank = len(source.shape)
    begin, sizes = vector_of(place, "begin", rank), vector_of(amounts, "sizes", rank)
    sizes = [
        whole - first if size == -1 else size
        for whole, first, size in zip(source.shape, begin, sizes, strict=True)
    ]
    for whole, first, size in zip(source.shape, begin, sizes, strict=True):
        if first < 0 or size < 0 or first + size > whole:
            raise Unsupported(f"{sizes} elements from {begin} on of {shape_text(source)}")
    require_shape(result, sizes)
    steps = steps_of(source.shape)
    start = sum(first * step for first, step in zip(begin, steps, strict=True))
    return moved([Move(source, result, Box(result.shape, steps, steps_of(sizes), start))], target)


@dataclass(frozen=True, slots=True)
class Entries:
    """What a node says of the dimensions: an entry is a begin, an end and a stride, by position."""

    begins: list[int]
    ends: list[int]
    strides: list[int]
    masks: dict[str, int]
    is_offset: bool  # ends count from the begins

    def marks(self, name: str, position: int) -> bool:
        """Tell if a mask has the bit of an entry."""
        return bool(self.masks[name] >> position & 1)


@lowers("STRIDED_SLICE")
def lower_strided_slice(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy what Python's source[begin:end:stride, ...] names, by bit masks as TensorFlow has them.

    Raises:
        Unsupported: computed places, a stride of 0, an axis to drop that is not in the input.
    Source: tflite/kernels/strided_slice.cc, internal/strided_slice_logic.h
    """
    source, first, last, by, result = tensors_of(node, 4, ANY)
    begins = vector_of(first, "begin")
    ends, strides = vector_of(last, "end", len(begins)), vector_of(by, "strides", len(begins))
    masks = {
        name: integer(node.options, f"{name}_mask", 0)
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    entries = Entries(begins, ends, strides, masks, bool(node.options.get("offset")))
    return moved([_move(source, result, entries)], target)


def _move(source: Tensor, result: Tensor, entries: Entries) -> Move:
    rank, in_steps = len(source.shape), steps_of(source.shape)
    shape: list[int] = []
    taken: list[tuple[int, int]] = []  # size and step of each dimension of the input
    start = 0
    for entry in _order(source, entries):
        if entry is not None and entries.marks("new_axis", entry):
            shape.append(1)
            continue
        axis = len(taken)
        if axis == rank:
            raise Unsupported(f"{len(entries.begins)} entries for {shape_text(source)}: too many")
        if entry is None:
            begin, number, stride = 0, source.shape[axis], 1
        else:
            begin, number = _part(source.shape[axis], entries, entry)
            stride = entries.strides[entry]
        if entry is None or not entries.marks("shrink_axis", entry):
            shape.append(number)
        start += begin * in_steps[axis]
        taken.append((number, stride * in_steps[axis]))
    require_shape(result, shape)
    sizes, steps = tuple(size for size, _ in taken), tuple(step for _, step in taken)
    return Move(source, result, Box(sizes, steps, steps_of(sizes), start))


def _order(source: Tensor, entries: Entries) -> list[int | None]:
    """Return the entry of each dimension, new ones included; None takes a dimension as a whole.

    As in TFLite, an ellipsis stands for at least one dimension. Where none is left for it, it
    pushes later entries off the end.
    """
    count, rank = len(entries.begins), len(source.shape)
    added = sum(
        entries.marks("new_axis", i) and not entries.marks("ellipsis", i) for i in range(count)
    )
    order: list[int | None] = []
    for i in range(count):
        if entries.marks("ellipsis", i):
            if None in order:
                raise Unsupported("two ellipses: at most one")
            order += [None] * max(1, rank + added - count + 1)
        else:
            order.append(i)
    if count > rank + added and None not in order:
        raise Unsupported(f"{count} entries for {shape_text(source)}: too many")
    order = (order + [None] * (rank + added))[: rank + added]
    # TFLite crashes on some of these.
    has_more = any(entries.masks.values()) or None in order
    if entries.is_offset and (has_more or min(entries.strides) < 1):
        raise Unsupported("ends as offsets: only for all dimensions, forwards and without masks")
    return order


def _part(size: int, entries: Entries, entry: int) -> tuple[int, int]:
    """Return the first element that an entry takes of a dimension, and how many."""
    stride, begin, end = entries.strides[entry], entries.begins[entry], entries.ends[entry]
    if stride == 0:
        raise Unsupported("a stride of 0")
    low, high = (0, size) if stride > 0 else (-1, size - 1)
    if entries.marks("begin", entry):
        begin = 0 if stride > 0 else size - 1
    begin += size if begin < 0 else 0
    if entries.marks("shrink_axis", entry):
        if not 0 <= begin < size or stride < 0:
            raise Unsupported(
                f"element {entries.begins[entry]} by {stride} of {size}: none is there"
            )
        return begin, 1
    begin = min(max(begin, low), high)
    if entries.marks("end", entry):
        end = high if stride > 0 else low
    elif entries.is_offset:
        if not begin <= (end := begin + end) <= size:
            raise Unsupported(f"elements {begin} to {end} of {size}: not all are there")
    elif end < 0:
        end += size
    return begin, max(0, ceil_div(min(max(end, low), high) - begin, stride))

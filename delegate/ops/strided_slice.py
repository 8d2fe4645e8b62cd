# SPDX-License-Identifier: Apache-2.0
"""STRIDED_SLICE: every so manieth element of a box, forwards or backwards; only bytes move."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.indices import vector_of
from delegate.ops._checks.node import inputs_of, integer, output_of
from delegate.ops._checks.shapes import shape_text
from delegate.ops._launches.copy import Box, Move, moved, require_shape, require_types, steps_of
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("STRIDED_SLICE")
def lower_strided_slice(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy what Python's source[begin:end:stride, ...] names, by bit masks as TensorFlow has them.

    Raises:
        Unsupported: computed places, a stride of 0, an axis to drop that is not in the input.
    Source: tflite/kernels/strided_slice.cc, internal/strided_slice_logic.h
    """
    (source, first, last, by), _ = inputs_of(node.inputs, 4)
    result = output_of(node.outputs)
    require_types(source, result)
    begins = vector_of(first, "begin")
    ends, strides = vector_of(last, "end", len(begins)), vector_of(by, "strides", len(begins))
    masks = {
        name: integer(node.options, f"{name}_mask", 0)
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }

    def marked(name: str, position: int) -> bool:
        return bool(masks[name] >> position & 1)

    # As TFLite counts: an ellipsis stands for one dimension at least, which pushes later entries
    # off the end where there is nothing for it.
    count = len(begins)
    rank = len(source.shape)
    added = sum(marked("new_axis", i) and not marked("ellipsis", i) for i in range(count))
    entries: list[int | None] = []  # of each dimension, None for one that is taken as a whole
    for i in range(count):
        if marked("ellipsis", i):
            if None in entries:
                raise Unsupported("two ellipses: at most one")
            entries += [None] * max(1, rank + added - count + 1)
        else:
            entries.append(i)
    if count > rank + added and None not in entries:
        raise Unsupported(f"{count} entries for {shape_text(source)}: too many")
    entries = (entries + [None] * (rank + added))[: rank + added]
    # TFLite crashes on some of these.
    if node.options.get("offset") and (any(masks.values()) or None in entries or min(strides) < 1):
        raise Unsupported("ends as offsets: only for all dimensions, forwards and without masks")
    in_steps = steps_of(source.shape)
    shape: list[int] = []
    taken: list[tuple[int, int]] = []  # size and step of each dimension of the input
    start = 0
    for entry in entries:
        if entry is not None and marked("new_axis", entry):
            shape.append(1)
            continue
        axis = len(taken)
        if axis == rank:
            raise Unsupported(f"{count} entries for {shape_text(source)}: too many")
        size = source.shape[axis]
        if entry is None:
            begin, number, stride = 0, size, 1
        else:
            stride = strides[entry]
            begin, end = begins[entry], ends[entry]
            if stride == 0:
                raise Unsupported("a stride of 0")
            low, high = (0, size) if stride > 0 else (-1, size - 1)
            if marked("begin", entry):
                begin = 0 if stride > 0 else size - 1
            begin += size if begin < 0 else 0
            if marked("shrink_axis", entry):
                if not 0 <= begin < size or stride < 0:
                    raise Unsupported(
                        f"element {begins[entry]} by {stride} of {size}: none is there"
                    )
                number = 1
            else:
                begin = min(max(begin, low), high)
                if marked("end", entry):
                    end = high if stride > 0 else low
                elif node.options.get("offset"):
                    if not begin <= (end := begin + end) <= size:
                        raise Unsupported(f"elements {begin} to {end} of {size}: not all are there")
                elif end < 0:
                    end += size
                number = max(0, -((begin - min(max(end, low), high)) // stride))
        if entry is None or not marked("shrink_axis", entry):
            shape.append(number)
        start += begin * in_steps[axis]
        taken.append((number, stride * in_steps[axis]))
    require_shape(result, shape)
    sizes, steps = tuple(size for size, _ in taken), tuple(step for _, step in taken)
    return moved([Move(source, result, Box(sizes, steps, steps_of(sizes), start))], target)

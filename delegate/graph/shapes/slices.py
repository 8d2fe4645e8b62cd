# SPDX-License-Identifier: Apache-2.0
"""Shapes of ops that take parts of a tensor.

Source: tflite/kernels/slice.cc, strided_slice.cc, gather.cc, gather_nd.cc, embedding_lookup.cc
"""

from __future__ import annotations

from delegate.graph.ir import Node
from delegate.graph.shapes.rule import Shape, axis_of, integers, output, replaced, shape


@output("SLICE")
def _slice(node: Node) -> list[int]:
    result = []
    for whole, begin, size in zip(shape(node), integers(node, 1), integers(node, 2), strict=True):
        end = whole if size == -1 else begin + size
        if not 0 <= begin <= end <= whole:
            raise ValueError("a slice beyond its tensor")
        result.append(end - begin)
    return result


@output("STRIDED_SLICE")
def _strided_slice(node: Node) -> list[int]:
    begins, ends, strides = (integers(node, position) for position in (1, 2, 3))
    left = list(shape(node))
    result = []
    for entry in _entries(node, len(begins)):
        if entry is not None and _marks(node, "new_axis", entry):
            result.append(1)
            continue
        size = left.pop(0)
        if entry is None:
            result.append(size)
            continue
        if _marks(node, "shrink_axis", entry):
            continue
        begin = None if _marks(node, "begin", entry) else begins[entry]
        end = None if _marks(node, "end", entry) else ends[entry]
        if node.options.get("offset"):
            end = begins[entry] + ends[entry]
        result.append(len(range(*slice(begin, end, strides[entry]).indices(size))))
    return result


def _entries(node: Node, count: int) -> list[int | None]:
    """Return the entry of each dimension, new ones included; None takes a dimension as a whole.

    As in TFLite, an ellipsis stands for at least one dimension. Where none is left for it, it
    pushes later entries off the end.
    """
    rank = len(shape(node))
    ellipses = [entry for entry in range(count) if _marks(node, "ellipsis", entry)]
    added = sum(_marks(node, "new_axis", i) for i in range(count) if i not in ellipses)
    if len(ellipses) > 1 or (count > rank + added and not ellipses):
        raise ValueError("too many entries")
    order: list[int | None] = []
    for entry in range(count):
        order += [None] * max(1, rank + added - count + 1) if entry in ellipses else [entry]
    return (order + [None] * (rank + added))[: rank + added]


def _marks(node: Node, name: str, entry: int) -> bool:
    return bool(node.options[f"{name}_mask"] >> entry & 1)


@output("GATHER")
def _gather(node: Node) -> Shape:
    sizes, places = shape(node, 0), shape(node, 1)
    axis = axis_of(node.options.get("axis", 0), len(sizes))
    batch = node.options.get("batch_dims", 0)
    batch += len(places) if batch < 0 else 0
    if not 0 <= batch <= axis:
        raise ValueError("no such batch")
    return replaced(sizes, axis, *places[batch:])


@output("GATHER_ND")
def _gather_nd(node: Node) -> Shape:
    sizes, (*places, depth) = shape(node, 0), shape(node, 1)
    if depth > len(sizes):
        raise ValueError("more indices than dimensions")
    return (*places, *sizes[depth:])


@output("EMBEDDING_LOOKUP")
def _embedding_lookup(node: Node) -> Shape:
    (count,), (_, *row) = shape(node, 0), shape(node, 1)
    return (count, *row)

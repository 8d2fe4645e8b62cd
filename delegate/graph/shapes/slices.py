# SPDX-License-Identifier: Apache-2.0
"""Shapes of ops that take parts of a tensor.

Source: tflite/kernels/slice.cc, strided_slice.cc, gather.cc, gather_nd.cc, embedding_lookup.cc,
stablehlo_gather.cc
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

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


class AxisSlice(NamedTuple):
    """The part of an input dimension that STRIDED_SLICE takes, or a new dimension of size 1."""

    taken: range  # positions in the dimension
    is_dropped: bool = False  # the result lacks the dimension
    is_new: bool = False


@output("STRIDED_SLICE")
def _strided_slice(node: Node) -> list[int]:
    begins, ends, strides = (integers(node, position) for position in (1, 2, 3))
    is_offset = bool(node.options.get("offset"))
    parts = strided_parts(shape(node), begins, ends, strides, node.options, is_offset)
    return [len(part.taken) for part in parts if not part.is_dropped]


def strided_parts(
    sizes: Shape,
    begins: Sequence[int],
    ends: Sequence[int],
    strides: Sequence[int],
    masks: Mapping[str, int],
    is_offset: bool,
) -> list[AxisSlice]:
    """Return the parts of each dimension, new ones included, in the result's order.

    An entry is a begin, an end and a stride, by position, with a bit in each mask.
    `is_offset`: ends are relative to begins. As in TFLite, an ellipsis covers at least one
    dimension. If none is left for it, it pushes later entries off the end.

    Raises:
        ValueError: too many entries, or one out of range; the text says which.
    """
    count, rank = len(begins), len(sizes)

    def marks(name: str, entry: int) -> bool:
        return bool(masks[f"{name}_mask"] >> entry & 1)

    ellipses = [entry for entry in range(count) if marks("ellipsis", entry)]
    added = sum(marks("new_axis", entry) for entry in range(count) if entry not in ellipses)
    if len(ellipses) > 1:
        raise ValueError("two ellipses: at most one")
    too_many = f"{count} entries for {'x'.join(map(str, sizes)) or 'scalar'}: too many"
    if count > rank + added and not ellipses:
        raise ValueError(too_many)
    order: list[int | None] = []  # the entry of each dimension; None takes it whole
    for entry in range(count):
        order += [None] * max(1, rank + added - count + 1) if entry in ellipses else [entry]
    left = list(sizes)
    parts = []
    for each in (order + [None] * (rank + added))[: rank + added]:
        if each is not None and marks("new_axis", each):
            parts.append(AxisSlice(range(1), is_new=True))
            continue
        if not left:
            raise ValueError(too_many)
        size = left.pop(0)
        if each is None:
            parts.append(AxisSlice(range(size)))
            continue
        if strides[each] == 0:
            raise ValueError("a stride of 0")
        begin = None if marks("begin", each) else begins[each]
        end = None if marks("end", each) else ends[each]
        if marks("shrink_axis", each):
            parts.append(
                AxisSlice(_place(size, begin, begins[each], strides[each]), is_dropped=True)
            )
            continue
        if is_offset:
            start = slice(begin, None, strides[each]).indices(size)[0]
            end = start + ends[each]
            if not start <= end <= size:
                raise ValueError(f"elements {start} to {end} of {size}: not all are there")
        parts.append(AxisSlice(range(*slice(begin, end, strides[each]).indices(size))))
    return parts


def _place(size: int, begin: int | None, given: int, stride: int) -> range:
    """Return the single position of an entry whose dimension is dropped."""
    place = 0 if begin is None else begin + size if begin < 0 else begin
    if not 0 <= place < size or stride < 0:
        raise ValueError(f"element {given} by {stride} of {size}: none is there")
    return range(place, place + 1)


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


@output("STABLEHLO_GATHER")
def _stablehlo_gather(node: Node) -> list[int]:
    names = ("offset_dims", "collapsed_slice_dims", "slice_sizes")
    offsets, dropped, slices = (tuple(node.options[name]) for name in names)
    sizes = iter([size for axis, size in enumerate(slices) if axis not in dropped])
    vectors = node.options["index_vector_dim"]
    places = iter([*shape(node, 1)[:vectors], *shape(node, 1)[vectors + 1 :]])
    rank = len(slices) - len(dropped) + len(shape(node, 1)) - 1
    found = [next(sizes if axis in offsets else places, None) for axis in range(rank)]
    # TFLite uses the recorded number of dimensions.
    if None in found or len(node.outputs[0].shape) != rank:
        raise ValueError("dimensions that do not fit")
    return [size for size in found if size is not None]

# SPDX-License-Identifier: Apache-2.0
"""Data movement ops, of every type."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tflite_opencl.conformance.cases import orders
from tflite_opencl.conformance.cases._rows import VERSIONS, Inputs, NodeTemplate, cases_of
from tflite_opencl.conformance.cases.orders import FEW, KINDS, Pairs, joined
from tflite_opencl.models.build import Case, Shape, numbers, sizes, tensor

_Edges = tuple[tuple[int, int], ...]  # elements before and after, per axis


def cases() -> Iterator[Case]:
    """Yield the cases of all data movement ops."""
    # The order is fixed, because samples depend on it.
    families = (
        *(_views, _joins, _slices, _pads, orders.permuted_and_repeated, _gathers, _updates),
        *(orders.filled, _blocks),
    )
    return cases_of([row for family in families for row in family()], KINDS)


_RESHAPES: Pairs = (
    ((2, 3, 4), (24,)), ((1, 7, 5, 3), (1, 105)), ((1,), (1, 1, 1)), ((6, 4), (2, 3, -1)),
)  # fmt: skip
_SQUEEZES: Pairs = (  # shape, dimensions to drop; (): all of size 1
    ((1, 5, 1, 3), ()), ((1, 5, 1, 3), (0,)), ((2, 1, 3), (-2,)),
)  # fmt: skip


def _views() -> Iterator[NodeTemplate]:
    """The same data in another shape."""
    for shape, wanted in _RESHAPES:
        out = np.zeros(shape).reshape(wanted).shape
        detail = f"in{sizes(shape)}-to{sizes(out)}" + "-computed" * (-1 in wanted)
        yield NodeTemplate("RESHAPE", detail, [shape, numbers(wanted)], {"new_shape": wanted})
    for shape, dims in _SQUEEZES:
        detail = f"in{sizes(shape)}-dims{joined(dims) or 'all'}"
        yield NodeTemplate("SQUEEZE", detail, [shape], {"squeeze_dims": dims})
    for shape, axis in (((5, 3), 0), ((5, 3), -1), ((2, 3, 4), 1)):
        yield NodeTemplate("EXPAND_DIMS", f"in{sizes(shape)}-axis{axis}", [shape, numbers(axis)])


_CONCATENATIONS: tuple[tuple[tuple[Shape, ...], int], ...] = (  # shapes, axis
    (((1, 4, 4, 3), (1, 4, 4, 5)), 3),
    (((1, 4, 4, 3), (1, 4, 4, 5)), -1),
    (((1, 2, 5, 7), (1, 3, 5, 7), (1, 1, 5, 7)), 1),
    (((2, 3), (1, 3)), 0),
    (((5,), (8,), (1,), (3,)), 0),
    (((1, 6, 6, 16), (1, 6, 6, 16)), 3),
    (((2, 3, 1, 33), (2, 3, 4, 33)), 2),
)
_Parts = tuple[tuple[Shape, int, int], ...]  # shape, axis, count
_STACKS: _Parts = (((5, 3), 0, 2), ((2, 3, 4), -1, 3), ((1, 7, 5, 3), 1, 2))
_EVEN_SPLITS: _Parts = (
    ((1, 4, 6, 8), 3, 2), ((1, 4, 6, 8), 1, 4), ((6, 5), 0, 3), ((2, 9), -1, 3),
)  # fmt: skip
_SPLITS: tuple[tuple[Shape, int, Shape], ...] = (  # shape, axis, sizes; -1: the rest
    ((1, 4, 6, 9), 3, (2, 7)),
    ((7, 5), 0, (1, 2, 4)),
    ((2, 3, 8), -1, (3, -1)),
)


def _joins() -> Iterator[NodeTemplate]:
    """Concatenation and splitting."""
    for shapes, axis in _CONCATENATIONS:
        detail = f"in{'_'.join(map(sizes, shapes))}-axis{axis}"
        options = {"axis": axis, "fused_activation_function": "NONE"}
        yield NodeTemplate("CONCATENATION", detail, shapes, options, VERSIONS, ("bool",))
    for shape, axis, count in _STACKS:
        detail = f"in{sizes(shape)}-axis{axis}-of{count}"
        pack = {"axis": axis, "values_count": count}
        yield NodeTemplate("PACK", detail, [shape] * count, pack, without=("bool",))
        whole = np.stack([np.zeros(shape)] * count, axis).shape
        detail, unpack = f"in{sizes(whole)}-axis{axis}", {"axis": axis, "num": count}
        yield NodeTemplate("UNPACK", detail, [whole], unpack, {}, ("int64",), count)
    for shape, axis, count in _EVEN_SPLITS:
        detail, options = f"in{sizes(shape)}-axis{axis}-of{count}", {"num_splits": count}
        yield NodeTemplate(
            "SPLIT", detail, [numbers(axis), shape], options, {}, ("int64", "bool"), count
        )
    for shape, axis, parts in _SPLITS:
        detail, options = (
            f"in{sizes(shape)}-axis{axis}-of{joined(parts)}",
            {"num_splits": len(parts)},
        )
        inputs: Inputs = [shape, numbers(parts), numbers(axis)]
        yield NodeTemplate("SPLIT_V", detail, inputs, options, {}, ("bool",), len(parts))


_SLICES: tuple[tuple[Shape, Shape, Shape], ...] = (  # shape, begin, size; -1: to the end
    ((1, 7, 5, 3), (0, 2, 1, 0), (1, 3, 4, 3)),
    ((1, 7, 5, 8), (0, 0, 0, 3), (1, 7, 5, -1)),
    ((9,), (4,), (5,)),
    ((4, 5, 6), (1, 0, 2), (2, -1, 3)),
)
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_STRIDED: tuple[tuple[Shape, Shape, Shape, Shape, Mapping[str, int]], ...] = (
    # shape, begin, end, strides, masks
    ((1, 7, 5, 3), (0, 1, 0, 0), (1, 6, 5, 3), (1, 2, 1, 1), {}),
    ((1, 7, 5, 3), (0, -1, 4, 0), (1, -8, 0, 3), (1, -2, -1, 1), {}),
    ((4, 9), (0, 0), (0, 0), (1, 3), {"begin_mask": 3, "end_mask": 3}),
    ((4, 9), (2, 1), (3, 8), (1, 2), {"shrink_axis_mask": 1}),
    ((2, 3, 8), (0, 0, 1), (2, 3, 8), (1, 1, 7), {"begin_mask": 1}),
)


def _slices() -> Iterator[NodeTemplate]:
    """Part of a tensor."""
    for shape, begin, size in _SLICES:
        out = tuple(n - b if s < 0 else s for n, b, s in zip(shape, begin, size, strict=True))
        detail = f"in{sizes(shape)}-from{joined(begin)}-to{sizes(out)}"
        yield NodeTemplate("SLICE", detail, [shape, numbers(begin), numbers(size)])
    for shape, begin, end, strides, masks in _STRIDED:
        detail = f"in{sizes(shape)}-from{joined(begin)}-steps{joined(strides)}"
        detail += "".join(f"-{name}{value}" for name, value in masks.items())
        inputs: Inputs = [shape, *map(numbers, (begin, end, strides))]
        options = {**dict.fromkeys(_MASKS, 0), **masks}
        yield NodeTemplate(
            "STRIDED_SLICE", detail, inputs, options, {"int8": 2, "bool": 3, "int16": 4}
        )


_PADS: tuple[tuple[Shape, _Edges], ...] = (
    ((1, 5, 4, 3), ((0, 0), (1, 1), (1, 1), (0, 0))),
    ((1, 5, 4, 3), ((0, 0), (0, 1), (2, 0), (0, 0))),
    ((1, 5, 4, 3), ((0, 0), (0, 0), (0, 0), (1, 2))),
    ((2, 3, 4, 17), ((1, 0), (0, 2), (3, 1), (0, 0))),
    ((6, 5), ((1, 2), (0, 3))),
)


def _pads() -> Iterator[NodeTemplate]:
    """Padding."""
    for shape, edges in _PADS:
        inputs: Inputs = [shape, numbers(edges)]
        detail = f"in{sizes(shape)}-by{_pairs(edges)}"
        yield NodeTemplate("PAD", detail, inputs, {}, {"int8": 2, "int16": 2}, ("bool",))
        yield NodeTemplate("PADV2", detail, [*inputs, 7], {}, {"int8": 2}, FEW)
        # TFLite mirrors at most as many elements as the axis has.
        if all(max(pair) < n for n, pair in zip(shape, edges, strict=True)):
            for mode in ("REFLECT", "SYMMETRIC"):
                named = f"{detail}-{mode.lower()}"
                yield NodeTemplate("MIRROR_PAD", named, inputs, {"mode": mode}, without=FEW)


_GATHERS: tuple[tuple[Shape, int, Any], ...] = (  # shape, axis, indices
    ((5, 7), 0, (4, 0, 0, 2)),
    ((1, 5, 4, 3), 2, (3, 1)),
    ((2, 3, 8), -1, ((0, 7), (1, 1))),
    ((9,), 0, 4),
)
_POINTS: tuple[tuple[Shape, Any], ...] = (  # shape, indices of its first dimensions
    ((4, 5), ((0, 0), (3, 4))),
    ((4, 5, 3), ((1,), (3,))),
    ((2, 6, 4), (((0, 1), (1, 5)),)),
)


def _gathers() -> Iterator[NodeTemplate]:
    """Values selected by indices."""
    for shape, axis, places in _GATHERS:
        detail = f"in{sizes(shape)}-axis{axis}-at{sizes(np.shape(places))}"
        options, versions = {"axis": axis, "batch_dims": 0}, {"int8": 2, "bool": 3, "int16": 4}
        yield NodeTemplate("GATHER", detail, [shape, numbers(places)], options, versions)
    for shape, places in _POINTS:
        detail = f"in{sizes(shape)}-at{sizes(np.shape(places))}"
        versions = {"int8": 2, "int16": 3, "bool": 5}
        yield NodeTemplate("GATHER_ND", detail, [shape, numbers(places)], {}, versions)
    for index in ("int32", "int64"):
        places = tensor((2, 3), index, limits=(0, 4))
        versions = {"int8": 2, "bool": 3, "int16": 4}
        options = {"axis": 0, "batch_dims": 0}
        yield NodeTemplate("GATHER", f"in5x7-computed_{index}", [(5, 7), places], options, versions)
    for shape, places in (((5, 7), (4, 0, 0, 2)), ((9, 2, 4), (8, 3)), ((2, 33), (1,))):
        detail = f"in{sizes(shape)}-at{sizes(np.shape(places))}"
        without = ("16x8", "int32", "int64", "bool")
        yield NodeTemplate("EMBEDDING_LOOKUP", detail, [numbers(places), shape], without=without)
    ids = tensor((6,), "int32", limits=(0, 4))
    yield NodeTemplate("EMBEDDING_LOOKUP", "in5x7-computed", [ids, (5, 7)], without=without)
    for shape, depth, axis in (((3,), 4, -1), ((2, 5), 3, 0), ((2, 3), 7, 1)):
        detail = f"in{sizes(shape)}-depth{depth}-axis{axis}"
        inputs: Inputs = [tensor(shape, "int32", limits=(-1, depth)), numbers(depth), 9, 0]
        yield NodeTemplate("ONE_HOT", detail, inputs, {"axis": axis}, without=("16x8",))


_UPDATES: tuple[tuple[Shape, Shape, Shape], ...] = (  # operand, update, indices
    ((9,), (3,), (4,)), ((9,), (3,), (8,)), ((5, 7), (2, 3), (-1, 2)), ((5, 7), (5, 7), (0, 3)),
    ((1, 8, 4, 16), (1, 1, 4, 16), (0, 5, 0, 0)),
    ((2, 3, 4, 5, 2), (1, 2, 2, 3, 1), (1, 1, 2, 9, 1)),
)  # fmt: skip
_SCATTERED: tuple[tuple[Shape, Any], ...] = (  # the result, indices
    ((8,), [[4], [3], [1], [7]]), ((4, 3), [[1], [3]]), ((5, 4, 3), [[0, 2], [4, 3], [0, 0]]),
    ((4, 3), [[1], [3], [1], [1]]), ((3, 2, 2), [[[0], [2]], [[2], [0]]]),
)  # fmt: skip


def _updates() -> Iterator[NodeTemplate]:
    """Elements scattered by indices: also out of bounds, or repeated."""
    for shape, part, where in _UPDATES:
        detail = f"in{sizes(shape)}-update{sizes(part)}-at{'_'.join(map(str, where))}"
        yield NodeTemplate("DYNAMIC_UPDATE_SLICE", detail, [shape, part, numbers(where)])
    for (shape, part, _), index in itertools.product(_UPDATES[1:], ("int32", "int64")):
        detail = f"in{sizes(shape)}-update{sizes(part)}-computed_{index}"
        starts = tensor((len(shape),), index, limits=(-2, max(shape)))
        yield NodeTemplate("DYNAMIC_UPDATE_SLICE", detail, [shape, part, starts])
    for shape, places in _SCATTERED:
        indices = np.array(places)
        detail = f"to{sizes(shape)}-from{sizes(indices.shape)}"
        updates = (*indices.shape[:-1], *shape[indices.shape[-1] :])
        # The sum of bools is unspecified.
        yield NodeTemplate(
            "SCATTER_ND", detail, [numbers(places), updates, numbers(shape)], without=FEW
        )
    places = tensor((6, 1), "int32", limits=(0, 4))
    inputs: Inputs = [places, (6, 7), numbers((5, 7))]
    yield NodeTemplate("SCATTER_ND", "to5x7-computed", inputs, without=FEW)


_BATCHES: tuple[tuple[Shape, Shape, _Edges], ...] = (
    # shape, block, pads or crops of height and width
    ((1, 4, 6, 3), (2, 2), ((0, 0), (0, 0))),
    ((2, 5, 4, 8), (3, 2), ((1, 0), (1, 1))),
    ((1, 7, 7, 5), (4, 4), ((1, 0), (0, 1))),
)


def _blocks() -> Iterator[NodeTemplate]:
    """Blocks of pixels moved to another axis, and back."""
    # Sizes are multiples of the block.
    for (n, *size, c), block in (((1, 4, 6, 3), 2), ((2, 6, 3, 5), 3), ((1, 8, 8, 16), 4)):
        h, w = (-(-side // block) for side in size)
        whole: Shape = (n, h * block, w * block, c)
        flat: Shape = (n, h, w, c * block * block)
        for op, source in (("SPACE_TO_DEPTH", whole), ("DEPTH_TO_SPACE", flat)):
            detail = f"in{sizes(source)}-block{block}"
            yield NodeTemplate(op, detail, [source], {"block_size": block}, without=FEW)
    for shape, blocks, edges in _BATCHES:
        n, *size, c = shape
        h, w = (side + sum(edge) for side, edge in zip(size, edges, strict=True))
        split: Shape = (n * blocks[0] * blocks[1], h // blocks[0], w // blocks[1], c)
        for op, source in (("SPACE_TO_BATCH_ND", shape), ("BATCH_TO_SPACE_ND", split)):
            detail = f"in{sizes(source)}-block{sizes(blocks)}-edges{_pairs(edges)}"
            inputs: Inputs = [source, numbers(blocks), numbers(edges)]
            yield NodeTemplate(op, detail, inputs, {}, {"int8": 2}, FEW)


def _pairs(values: _Edges) -> str:
    return "_".join(f"{a}{b}" for a, b in values)

# SPDX-License-Identifier: Apache-2.0
"""Ops that permute, repeat or fill: TRANSPOSE, REVERSE_V2, TILE, BROADCAST_TO, FILL, ADD_N."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tflite_opencl.conformance.cases._rows import NodeTemplate, cases_of
from tflite_opencl.models.build import Case, Shape, numbers, sizes

Pairs = tuple[tuple[Shape, Shape], ...]
FEW = ("16x8", "bool")  # types that several ops do not support
KINDS = ("uint8", "int8", "16x8", "float32", "int32", "int64", "bool")
_TRANSPOSES: Pairs = (
    ((1, 5, 4, 3), (0, 3, 1, 2)), ((1, 5, 4, 3), (0, 2, 3, 1)), ((7, 5), (1, 0)),
    ((2, 3, 4), (2, 0, 1)), ((2, 3, 4, 5, 6), (4, 2, 0, 1, 3)), ((1, 8, 8, 16), (0, 3, 1, 2)),
)  # fmt: skip
_REVERSALS: Pairs = (((1, 5, 4, 3), (1,)), ((2, 7), (0,)), ((6, 5, 4), (2,)), ((2, 3, 4), (0, 1)))
_TILES: Pairs = (((2, 3), (2, 3)), ((1, 4, 5, 3), (1, 2, 1, 2)), ((7,), (5,)))
_BROADCASTS: Pairs = (
    ((1, 1, 3), (4, 5, 3)), ((5,), (2, 5)), ((2, 1, 4), (2, 6, 4)), ((), (3, 2)),
)  # fmt: skip
# Large matrices, rows of 16 bytes, nothing that moves, and more dimensions.
_MORE_TRANSPOSES: Pairs = (
    ((67, 129), (1, 0)), ((5, 7, 16), (1, 0, 2)), ((1, 5, 1, 3), (2, 1, 0, 3)), ((3, 5), (0, 1)),
    ((2, 3, 2, 3, 2, 3), (5, 3, 1, 0, 2, 4)), ((2, 5, 7, 3), (0, -1, 1, -2)),
)  # fmt: skip
_MORE_REVERSALS: Pairs = (
    ((2, 5, 7, 16), (1,)), ((2, 5, 7, 3), (-1,)), ((2, 5, 7, 3), (1, 2)), ((5, 33), (0,)),
    ((2, 5, 7, 3), (3, 1, 2)), ((1, 5), (0,)), ((4097,), (0,)),
)  # fmt: skip
_MORE_TILES: Pairs = (
    ((3, 5), (3, 1)), ((1, 1, 1, 16), (2, 7, 5, 1)), ((2, 3, 1, 5), (2, 3, 4, 2)),
    ((2, 3), (1, 1)), ((4099,), (2,)),
)  # fmt: skip
_MORE_BROADCASTS: Pairs = (
    ((1, 1, 1, 16), (2, 7, 5, 16)), ((3, 1), (2, 3, 129)), ((3, 5), (3, 5)),
    ((2, 1, 3, 1, 5), (2, 3, 3, 4, 5)), ((2, 1, 2, 1, 2, 1, 2), (3, 2, 2, 2, 2, 2, 2, 2)),
)  # fmt: skip


def permuted_and_repeated() -> Iterator[NodeTemplate]:
    """Yield permutation, and repetition."""
    for shape, order in _TRANSPOSES:
        yield transpose(shape, order)
    for shape, axes in _REVERSALS:
        yield reverse(shape, axes)
    for shape, times in _TILES:
        yield tile(shape, times)
    for shape, out in _BROADCASTS:
        yield broadcast(shape, out)


def filled() -> Iterator[NodeTemplate]:
    """Yield a single value everywhere, and sums."""
    for shape in ((1,), (5, 7), (2, 3, 4, 5)):
        yield fill(shape)
        words = f"in{sizes(shape)}"
        yield NodeTemplate("ZEROS_LIKE", words, [shape], without=("uint8", "int8", *FEW))
        without = ("uint8", "int8", "int64", *FEW)
        for count in (2, 3):
            yield NodeTemplate("ADD_N", f"{words}-of{count}", [shape] * count, without=without)
        segments = numbers([row // 2 for row in range(shape[0])])
        yield NodeTemplate("SEGMENT_SUM", words, [shape, segments], without=without)


def edges() -> Iterator[Case]:
    """Yield more shapes, which matter by the size of an element alone, and indices of int64."""
    rows = [transpose(*row) for row in _MORE_TRANSPOSES]
    rows += [reverse(*row) for row in _MORE_REVERSALS]
    rows += [tile(*row) for row in _MORE_TILES]
    rows += [broadcast(*row) for row in _MORE_BROADCASTS]
    rows += [tile((7, 3), (1, 5), "int64"), broadcast((3, 1), (2, 3, 4), "int64")]
    rows += [fill((4097,)), fill((2, 3, 4), "int64")]
    yield from cases_of(rows, ("uint8", "float32"))


def transpose(shape: Shape, order: Shape) -> NodeTemplate:
    """Return a TRANSPOSE."""
    detail = f"in{sizes(shape)}-order{joined(order)}"
    return NodeTemplate("TRANSPOSE", detail, [shape, numbers(order)], {}, {"int8": 2})


def reverse(shape: Shape, axes: Shape) -> NodeTemplate:
    """Return a REVERSE_V2."""
    detail = f"in{sizes(shape)}-axes{joined(axes)}"
    return NodeTemplate("REVERSE_V2", detail, [shape, numbers(axes)])


def tile(shape: Shape, times: Shape, index: str = "int32") -> NodeTemplate:
    """Return a TILE; `index`: the type of its multiples."""
    detail = f"in{sizes(shape)}-times{sizes(times)}" + _index_suffix(index)
    return NodeTemplate("TILE", detail, [shape, numbers(times, index)], without=("16x8",))


def broadcast(shape: Shape, out: Shape, index: str = "int32") -> NodeTemplate:
    """Return a BROADCAST_TO; `index`: the type of its shape."""
    versions = {**dict.fromkeys((*KINDS, "float16"), 2), "int8": 3, "uint8": 3, "int16": 3}
    detail = f"in{sizes(shape)}-to{sizes(out)}" + _index_suffix(index)
    return NodeTemplate("BROADCAST_TO", detail, [shape, numbers(out, index)], {}, versions)


def fill(shape: Shape, index: str = "int32") -> NodeTemplate:
    """Return a FILL; `index`: the type of its shape."""
    detail = f"to{sizes(shape)}" + _index_suffix(index)
    return NodeTemplate("FILL", detail, [numbers(shape, index), ()], without=("uint8",))


def _index_suffix(index: str) -> str:
    return "" if index == "int32" else f"-{index}"


def joined(values: Iterable[int]) -> str:
    """Return "0_3_1", and "" for no number."""
    return "_".join(map(str, values))

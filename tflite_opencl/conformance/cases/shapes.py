# SPDX-License-Identifier: Apache-2.0
"""SHAPE, RANK, RANGE and WHERE, and nodes whose shapes these compute."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from delegate.inspect import Graph, Tensor
from tflite_opencl.conformance.cases._rows import step
from tflite_opencl.models.build import (
    Case,
    Shape,
    case,
    constant,
    dtype_of,
    graph,
    node,
    numbers,
    seeded,
    sizes,
    tensor,
    usual,
)


def computed_shapes() -> Iterator[Case]:
    """Yield the cases of SHAPE, RANK, RANGE and WHERE: inferred before a run, as here."""
    for kind, shape, index in itertools.product(
        ("uint8", "int8", "16x8", "float32"), ((2, 3, 4), (1, 5, 7, 3)), ("int32", "int64")
    ):
        detail = f"reshape-in{sizes(shape)}-{index}"
        yield case("shape", kind, detail, _computed_reshape, shape, dtype_of(kind), index)
    for shape in ((3,), (2, 3, 4), (1, 5, 7, 3, 2)):
        yield case("rank", "int32", f"add-in{sizes(shape)}", _add_rank, shape)
    for dtype, (start, limit, delta) in (
        ("int32", (0, 7, 1)),
        ("int32", (9, -4, -3)),
        ("float32", (0.5, 3.0, 0.1)),
        ("float32", (1.0, -1.0, -0.7)),
    ):
        detail = f"add-{start:g}_{limit:g}_{delta:g}"
        yield case("range", dtype, detail, _add_range, dtype, (start, limit, delta))

    for shape in ((7,), (2, 3, 4), (1, 5, 7, 3)):
        yield case("where", "int64", f"add-in{sizes(shape)}", _add_where, shape)


def _add_where(shape: Shape) -> Graph:
    holds = seeded(shape).random(shape) < 0.4
    count = int(np.count_nonzero(holds))
    source, places, result = (tensor((count, len(shape)), "int64", limits=(-9, 9)) for _ in "abc")
    nodes = [node("WHERE", [constant(holds)], [places])]
    return graph([*nodes, node("ADD", [source, places], [result], version=4)])


def _add_rank(shape: Shape) -> Graph:
    source, rank = tensor(shape, "int32", limits=(-1000, 1000)), tensor((), "int32")
    result = tensor(shape, "int32")
    return graph([node("RANK", [source], [rank]), node("ADD", [source, rank], [result])])


def _add_range(dtype: str, ends: tuple[float, float, float]) -> Graph:
    found = step("RANGE", [numbers(each, dtype) for each in ends], [tensor((1,), dtype)])
    (places,) = found.outputs
    source = tensor((2, *places.shape), dtype, limits=(-1000, 1000))
    return graph([found, step("ADD", [source, places], [tensor((1,), dtype)])])


def _computed_reshape(shape: Shape, dtype: str, index: str) -> Graph:
    """Return a RESHAPE to (batch, -1), computed in the graph from the input's shape.

    Converters emit this for Flatten layers. int64 shapes are cast to int32.
    """
    batch, rest = shape[0], int(np.prod(shape[1:]))
    source, computed = usual(shape, dtype), tensor((len(shape),), index)
    steps = [node("SHAPE", [source], [computed], {"out_type": index})]
    if index != "int32":
        steps.append(node("CAST", [computed], [tensor(computed.shape, "int32")]))
    first, both = tensor((), "int32"), tensor((2,), "int32")
    ends: list[Tensor] = [steps[-1].outputs[0], *(numbers([at]) for at in (0, 1, 1))]
    steps += [
        node("STRIDED_SLICE", ends, [first], {"shrink_axis_mask": 1}),
        node("PACK", [first, numbers(rest)], [both], {"axis": 0, "values_count": 2}),
        node("RESHAPE", [source, both], [usual((batch, rest), dtype)]),
    ]
    return graph(steps)

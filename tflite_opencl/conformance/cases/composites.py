# SPDX-License-Identifier: Apache-2.0
"""Composites: named groups of nodes (odml.*) that converters keep as a subgraph."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from delegate.inspect import Graph
from tflite_opencl.conformance.cases._rows import VERSIONS, step
from tflite_opencl.models.build import (
    Case,
    Shape,
    case,
    dtype_of,
    graph,
    node,
    numbers,
    sizes,
    usual,
)

_TURNED = {"uint8": 1, "int8": 2, "int16": 4, "float32": 1, "int32": 1}  # TRANSPOSE's versions


def cases() -> Iterator[Case]:
    """Yield the cases of STABLEHLO_COMPOSITE: alone and between other nodes."""
    for kind, shape, between in itertools.product(
        ("uint8", "int8", "16x8", "float32", "int32"), ((6, 8), (2, 3, 5)), (False, True)
    ):
        detail = f"in{sizes(shape)}" + "-between" * between
        yield case("stablehlo_composite", kind, detail, _composite, dtype_of(kind), shape, between)


def _composite(dtype: str, shape: Shape, is_between: bool) -> Graph:
    """Return the maximum of two tensors, transposed and flattened, as one composite node."""
    order = numbers([*range(len(shape))[::-1]])
    a, b = usual(shape, dtype), usual(shape, dtype)
    larger = step("MAXIMUM", [a, b], [usual((1,), dtype)], {}, VERSIONS.get(dtype, 1))
    turned = step("TRANSPOSE", [*larger.outputs, order], [usual((1,), dtype)], {}, _TURNED[dtype])
    sizes_of = numbers([int(np.prod(shape))])
    row = step("RESHAPE", [*turned.outputs, sizes_of], [usual((1,), dtype)])
    body = graph([larger, turned, row], [a, b])
    first = usual(shape, dtype)
    before = step("REVERSE_V2", [first, numbers([0])], [usual((1,), dtype)], {}, 3)
    given = [*before.outputs] if is_between else [first]
    made = node(
        "STABLEHLO_COMPOSITE",
        [*given, usual(shape, dtype)],
        [usual(tensor.shape, dtype) for tensor in body.outputs],
        {"name": "odml.test", "composite_attributes": b"\0\0\1"},
    )
    steps = [before] * is_between + [replace(made, body=body)]
    if is_between:
        steps.append(step("REVERSE_V2", [*made.outputs, numbers([0])], [usual((1,), dtype)], {}, 3))
    return graph(steps)

# SPDX-License-Identifier: Apache-2.0
"""Nodes with inferred output shapes, and tables of nodes that are instantiated for each type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from delegate.inspect import Graph, Node, Tensor, output_shapes
from tflite_opencl.models.build import Case, Shape, case, dtype_of, graph, node, usual

PICTURES = ("uint8", "int8", "16x8", "float32")  # columns of the matrix for ops on pictures
ENDS = {"uint8": (0, 255), "int8": (-128, 127)}  # the least and the largest zero point
# Most ops' version by their tensors' type; else 1.
VERSIONS = {"int8": 2, "int16": 3}
# The quantisation, by type, that TFLite requires for results from 0 to 1, and for SOFTMAX.
UNIT: dict[str, tuple[float, int]] = {
    "uint8": (1 / 256, 0), "int8": (1 / 256, -128), "int16": (2.0**-15, 0),
}  # fmt: skip
# A shape is an input of the case's type, a number a constant of that type. A Tensor, such as
# axes, sizes and indices, has a fixed type.
Inputs = Sequence[Shape | int | Tensor]


def step(
    op: str,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    options: Mapping[str, Any] | None = None,
    version: int = 1,
) -> Node:
    """Return a node; the given outputs get inferred shapes."""
    return shaped(node(op, inputs, outputs, options, version))


def shaped(rough: Node) -> Node:
    """Return a node whose outputs have inferred shapes."""
    shapes = output_shapes(rough)
    assert shapes is not None, rough.op
    pairs = zip(rough.outputs, shapes, strict=True)
    return replace(rough, outputs=tuple(replace(each, shape=shape) for each, shape in pairs))


def one(op: str, inputs: Sequence[Tensor | None], output: Tensor, *rest: Any) -> Graph:
    """Return the graph of a `step` with one output; `rest`: options and version."""
    return graph([step(op, inputs, [output], *rest)])


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """A node, independent of its values' type; all tensors share one quantisation."""

    op: str
    detail: str  # the last part of the cases' names
    inputs: Inputs
    options: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)  # by the tensors' type; else 1
    without: Sequence[str] = ()  # columns of the matrix without it
    outputs: int = 1  # their number

    def graph(self, dtype: str) -> Graph:
        """Return the model for one type."""

        def made(given: Shape | int | Tensor) -> Tensor:
            if isinstance(given, Tensor):
                return given
            if isinstance(given, int):
                return usual((), dtype, data=np.array(given).astype(dtype))
            return usual(given, dtype)

        # No scalars: runtimes differ in how they treat results recorded as scalars.
        outputs = [usual((1,), dtype) for _ in range(self.outputs)]
        inputs, version = [*map(made, self.inputs)], self.versions.get(dtype, 1)
        return graph([step(self.op, inputs, outputs, self.options, version)])


def cases_of(rows: Iterable[NodeTemplate], kinds: Sequence[str]) -> Iterator[Case]:
    """Yield the rows' cases, column by column of the matrix."""
    every = list(rows)
    for kind in kinds:
        for row in every:
            if kind not in row.without:
                yield case(row.op.lower(), kind, row.detail, row.graph, dtype_of(kind))

# SPDX-License-Identifier: Apache-2.0
"""A row of a table: one node of values with one quantisation, and a case for each of its types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from delegate.inspect import Graph, Tensor
from tflite_opencl.common.build import Case, Shape, case, dtype_of, one, same

# An op's version by its tensors' type, as most have it; else 1.
VERSIONS = {"int8": 2, "int16": 3}
# The one quantisation, by type, that TFLite takes of results from 0 to 1, and of SOFTMAX's.
UNIT: dict[str, tuple[float, int]] = {
    "uint8": (1 / 256, 0), "int8": (1 / 256, -128), "int16": (2.0**-15, 0),
}  # fmt: skip
# A shape is an input of the case's type, a number a constant of this type. A Tensor is the same in
# every type: axes, sizes, indices.
Inputs = Sequence[Shape | int | Tensor]


@dataclass(frozen=True, slots=True)
class Row:
    """A node, described without the type of its values; they all have one quantisation."""

    op: str
    detail: str  # the last part of the cases' names
    inputs: Inputs
    outputs: Sequence[Shape]  # all of the case's type
    options: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)  # by the tensors' type; else 1
    without: Sequence[str] = ()  # columns of the matrix that do not have it

    def graph(self, dtype: str) -> Graph:
        """Return the model of one type."""

        def made(given: Shape | int | Tensor) -> Tensor:
            if isinstance(given, Tensor):
                return given
            if isinstance(given, int):
                return same((), dtype, data=np.array(given).astype(dtype))
            return same(given, dtype)

        inputs, outputs = map(made, self.inputs), map(made, self.outputs)
        return one(self.op, [*inputs], [*outputs], self.options, self.versions.get(dtype, 1))


def cases_of(rows: Iterable[Row], kinds: Sequence[str]) -> Iterator[Case]:
    """Yield the rows' cases, one column of the matrix after the other."""
    every = list(rows)
    for kind in kinds:
        for row in every:
            if kind not in row.without:
                yield case(row.op.lower(), kind, row.detail, row.graph, dtype_of(kind))

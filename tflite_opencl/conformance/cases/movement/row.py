# SPDX-License-Identifier: Apache-2.0
"""A row of the tables of this folder: one node whose values move, for each of its types a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from delegate.inspect import Graph, Tensor
from tflite_opencl.common.build import Case, Shape, case, dtype_of, one, same

ALL = ("uint8", "int8", "16x8", "float32", "int32", "int64", "bool")


@dataclass(frozen=True, slots=True)
class Moved:
    """An input of the case's type; with a value it is a constant that has it everywhere."""

    shape: Shape
    value: int | None = None

    def tensor(self, dtype: str) -> Tensor:
        """Return the tensor."""
        if self.value is None:
            return same(self.shape, dtype)
        return same(self.shape, dtype, data=np.full(self.shape, self.value).astype(dtype))


# A Tensor among them is the same in every type: axes, sizes, indices.
Inputs = Sequence[Moved | Tensor]


@dataclass(frozen=True, slots=True)
class Row:
    """A node, described without the type of the values that it moves."""

    op: str
    kinds: Sequence[str]  # columns of the matrix that have it
    detail: str  # the last part of the cases' names
    inputs: Inputs
    outputs: Sequence[Shape]  # all of the case's type
    options: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)  # by the tensors' type; else 1

    def case(self, kind: str) -> Case:
        """Return the case of one type."""
        return case(self.op.lower(), kind, self.detail, self.graph, dtype_of(kind))

    def graph(self, dtype: str) -> Graph:
        """Return the model of one type."""
        inputs = [each.tensor(dtype) if isinstance(each, Moved) else each for each in self.inputs]
        outputs = [same(shape, dtype) for shape in self.outputs]
        return one(self.op, inputs, outputs, self.options, self.versions.get(dtype, 1))


def without(*kinds: str) -> tuple[str, ...]:
    """Return all types but these."""
    return tuple(kind for kind in ALL if kind not in kinds)


def joined(values: Sequence[int]) -> str:
    """Return "0_1_2", as names have it."""
    return "_".join(map(str, values))


def pairs(values: Sequence[Sequence[int]]) -> str:
    """Return "00_12" for two pairs of numbers, as names have it."""
    return "_".join(f"{a}{b}" for a, b in values)

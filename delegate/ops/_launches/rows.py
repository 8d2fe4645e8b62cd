# SPDX-License-Identifier: Apache-2.0
"""Ops on the rows of the last axis: their record, and the launch of a row a work-item."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Defines, Launch, Params
from delegate.ops._checks.node import shape_text
from delegate.ops._launches.tiles import Tiling, by_elements, launch_over
from delegate.ops._numbers import ceil_div
from delegate.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A checked op on rows as its kernels see it: all rows are computed alike."""

    source: Tensor
    result: Tensor
    family: str  # the types, as kernels' names have them
    numbers: Params = field(default_factory=dict)  # fields beside tensors and sizes
    defines: Defines = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """How many elements a row has."""
        return self.source.shape[-1]

    @property
    def count(self) -> int:
        """How many rows there are."""
        return math.prod(self.source.shape) // self.depth

    def params(self) -> Params:
        """The fields every kernel reads."""
        return {
            "input": self.source,
            "output": self.result,
            "rows": self.count,
            "depth": self.depth,
            **self.numbers,
        }

    def launch(self, op: str, tiling: Tiling) -> Launch:
        """Return the launch of the op's plain kernel, over tiles of rows."""
        return launch_over(op, f"{op}_{self.family}", tiling, self.params(), self.defines)

    def plain(self, op: str, least: int, target: Target) -> tuple[Alternative, ...]:
        """Return that launch as the one alternative; a tile has at least so many elements."""
        tiling = by_elements(self.count, target, ceil_div(least, self.depth))
        return (Alternative("plain", (self.launch(op, tiling),)),)


def require_rows(source: Tensor, most: int | None = None) -> None:
    """Check that a tensor has a last axis, of at most so many elements.

    Raises:
        Unsupported: it is a scalar, or its rows are longer.
    """
    if not source.shape:
        raise Unsupported(f"shape {shape_text(source)}: at least rank 1 is needed")
    if most is not None and source.shape[-1] > most:
        raise Unsupported(f"rows of {source.shape[-1]}: at most {most}")

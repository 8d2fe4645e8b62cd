# SPDX-License-Identifier: Apache-2.0
"""Products of two matrices of the arena, by batch_matmul.cl: over vectors of columns or of terms.

BATCH_MATMUL's, and FULLY_CONNECTED's where its weights are computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Defines, Params
from delegate.ops._launches.copy import turned
from delegate.ops._launches.tiles import (
    by_share,
    lanes_of,
    launch_over,
    most_rounds,
    one_each,
    product_rows,
    product_vectors,
)
from delegate.ops._numbers import ceil_div
from delegate.target import Target

MOST_TERMS = most_rounds(1, 1_000)
TILE = 4  # columns of a row, a work-item
_ROWS = 8  # of 8 bits, on a CPU: right rows are read half as often
_FILE = "batch_matmul"
_TURNED_ROWS = 16  # of the left matrix: fewer are multiplied sooner than the right one is turned


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MatrixProduct:
    """Two matrices, or several of them, and what their kernels read."""

    family: str  # the types, as kernels' names have them
    left: Tensor
    right: Tensor
    result: Tensor
    sizes: dict[str, int]  # see `sizes_of` of delegate/ops/_checks/matrices.py
    own: Params  # fields of the family: scales and zero points, bounds, a bias
    defines: Defines  # macros of the family

    def alternatives(self, target: Target) -> tuple[Alternative, ...]:
        """Return the ways to multiply, the plain one last, which alone is there for int16."""
        elements = self._elements()
        own = self._params() | {"elements": elements}
        kernel = f"{_FILE}_{self.family}"
        launch = launch_over(_FILE, kernel, one_each(elements), own, self.defines)
        fallback = Alternative("plain", (launch,))
        if self.family == "quant16":
            return (fallback,)
        return (*self._turned(target), *self._vectors(target), fallback)

    def _elements(self) -> int:
        return math.prod(self.result.shape)

    def _params(self) -> Params:
        tensors: Params = {"left": self.left, "right_at": self.right, "output": self.result}
        return tensors | self.sizes | self.own

    def _vectors(self, target: Target) -> tuple[Alternative, ...]:
        """Return the launch over vectors of columns, or of terms; none where they fill none."""
        m, k, n = (self.sizes[name] for name in ("m_size", "k_size", "n_size"))
        rows, vectors = self._elements() // n, 1
        if self.sizes["right_column"] == 1 and n > 1:
            name, side, lanes = "vector", "TILE_M", lanes_of(n, target)
            tile = product_rows(m, target)
            if self.family == "quant8":
                tile = _ROWS if target.group_items == 1 and m >= _ROWS else tile
            elif lanes:
                vectors = product_vectors(n, lanes, target)
            columns = lanes * vectors
            blocks = {"m_blocks": ceil_div(m, tile), "n_blocks": ceil_div(n, columns or 1)}
            items = rows // m * blocks["m_blocks"] * blocks["n_blocks"]
        else:
            name, side, lanes = "row", "TILE_N", lanes_of(k, target)
            tile = TILE if n >= TILE else 1
            blocks = {"n_blocks": ceil_div(n, tile)}
            items = rows * blocks["n_blocks"]
            is_beside = self.sizes["right_term"] == self.sizes["left_term"] == 1
            lanes = lanes if is_beside and self.family != "hybrid" else 0
        if not lanes:
            return ()
        kernel, own = f"{_FILE}_{name}_{self.family}", self._params() | blocks | {"items": items}
        defines = {**self.defines, "LANES": lanes, side: tile, "VECTORS": vectors}
        launch = launch_over(_FILE, kernel, by_share(items, target), own, defines)
        return (Alternative(f"{name} {lanes * vectors}x{tile}", (launch,)),)

    def _turned(self, target: Target) -> tuple[Alternative, ...]:
        """Return the launches that turn the right matrices first, so that columns make vectors.

        That is worth it where many rows read what is turned: queries and keys of an attention.
        """
        terms, columns = self.sizes["k_size"], self.sizes["n_size"]
        is_short = self.sizes["m_size"] < _TURNED_ROWS or min(terms, columns) < 2
        if self.sizes["right_term"] != 1 or is_short or target.group_items > 1:
            return ()
        matrices, first = turned(self.right, target)
        sizes = self.sizes | {"right_term": columns, "right_column": 1}
        (way,) = replace(self, right=matrices, sizes=sizes)._vectors(target) or (None,)
        if way is None:
            return ()
        return (Alternative(f"turned {way.name}", (*first, *way.launches)),)

# SPDX-License-Identifier: Apache-2.0
"""Products of two matrices in the arena, by batch_matmul.cl: vectors of columns or of terms.

For BATCH_MATMUL, and FULLY_CONNECTED with non-constant weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Defines, Params
from delegate.ops._launches.copy import transposed
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
TILE = 4  # columns per work-item
_ROWS = 8  # per tile of 8 bits, on a CPU: right rows are read half as often
_FILE = "batch_matmul"
_LEAST_ROWS = 16  # of the left matrix, to make transposing the right one pay


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MatrixProduct:
    """A product of two matrices, or of batches of them, and the fields of its kernels."""

    family: str  # the types, as in kernel names
    left: Tensor
    right: Tensor
    result: Tensor
    sizes: dict[str, int]  # see `sizes_of` of delegate/ops/_checks/matrices.py
    fields: Params  # fields of the family: scales and zero points, bounds, a bias
    defines: Defines  # macros of the family

    def alternatives(self, target: Target) -> tuple[Alternative, ...]:
        """Return the alternatives, the fallback last; for int16 there is only the fallback."""
        elements = self._elements()
        params = self._params() | {"elements": elements}
        kernel = f"{_FILE}_{self.family}"
        launch = launch_over(_FILE, kernel, one_each(elements), params, self.defines)
        fallback = Alternative("plain", (launch,))
        if self.family == "quant16":
            return (fallback,)
        return (*self._transposed(target), *self._vectors(target), fallback)

    def _elements(self) -> int:
        return math.prod(self.result.shape)

    def _params(self) -> Params:
        tensors: Params = {"left": self.left, "right_at": self.right, "output": self.result}
        return tensors | self.sizes | self.fields

    def _vectors(self, target: Target) -> tuple[Alternative, ...]:
        """Return the launch over vectors of columns, or of terms; none if there are too few."""
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
            is_contiguous = self.sizes["right_term"] == self.sizes["left_term"] == 1
            lanes = lanes if is_contiguous and self.family != "hybrid" else 0
        if not lanes:
            return ()
        kernel, params = f"{_FILE}_{name}_{self.family}", self._params() | blocks | {"items": items}
        defines = {**self.defines, "LANES": lanes, side: tile, "VECTORS": vectors}
        launch = launch_over(_FILE, kernel, by_share(items, target), params, defines)
        return (Alternative(f"{name} {lanes * vectors}x{tile}", (launch,)),)

    def _transposed(self, target: Target) -> tuple[Alternative, ...]:
        """Return the launches that transpose the right matrices first, for vectors of columns.

        This is worth it if many rows read the result, as with queries and keys of an attention.
        """
        terms, columns = self.sizes["k_size"], self.sizes["n_size"]
        is_short = self.sizes["m_size"] < _LEAST_ROWS or min(terms, columns) < 2
        if self.sizes["right_term"] != 1 or is_short or target.group_items > 1:
            return ()
        matrices, transposition = transposed(self.right, target)
        sizes = self.sizes | {"right_term": columns, "right_column": 1}
        (product,) = replace(self, right=matrices, sizes=sizes)._vectors(target) or (None,)
        if product is None:
            return ()
        return (Alternative(f"turned {product.name}", (*transposition, *product.launches)),)

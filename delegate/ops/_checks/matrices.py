# SPDX-License-Identifier: Apache-2.0
"""Products of matrices: sizes, and broadcasting of the outer dimensions."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.ops._checks.node import shape_text

MOST_DIMENSIONS = 5  # TFLite's own limit


def sizes_of(
    left: Tensor, right: Tensor, result: Tensor, adj_x: bool, adj_y: bool, most_terms: int
) -> dict[str, int]:
    """Return the sizes and strides of a product of matrices, as fields of batch_matmul.cl.

    Strides are in elements. A stride of 0: one matrix is used for all.

    Raises:
        Unsupported: mismatched shapes.
    """
    shapes = f"shapes {shape_text(left)} x {shape_text(right)} -> {shape_text(result)}"
    for tensor in (left, right):
        if not 2 <= len(tensor.shape) <= MOST_DIMENSIONS:
            raise Unsupported(f"{shapes}: 2 to {MOST_DIMENSIONS} dimensions are implemented")
        if 0 in tensor.shape:
            raise Unsupported(f"{shapes}: they are empty")
    m, k = reversed(left.shape[-2:]) if adj_x else left.shape[-2:]
    terms, n = reversed(right.shape[-2:]) if adj_y else right.shape[-2:]
    steps = {
        "left_row": 1 if adj_x else k,
        "left_term": m if adj_x else 1,
        "right_term": 1 if adj_y else n,
        "right_column": terms if adj_y else 1,
    }
    if terms != k:
        raise Unsupported(f"{shapes}: {k} columns of the left one, {terms} rows of the right one")
    if k > most_terms:
        raise Unsupported(f"{shapes}: {k} terms a sum, at most {most_terms} are implemented")
    rank = max(len(left.shape), len(right.shape))
    outer = [(1,) * (MOST_DIMENSIONS - len(t.shape)) + t.shape[:-2] for t in (left, right)]
    if any(1 not in pair and pair[0] != pair[1] for pair in zip(*outer, strict=True)):
        raise Unsupported(f"{shapes}: they cannot be broadcast together")
    sizes = tuple(max(pair) for pair in zip(*outer, strict=True))
    if result.shape != (*sizes[MOST_DIMENSIONS - rank :], m, n):
        expected = "x".join(map(str, (*sizes[MOST_DIMENSIONS - rank :], m, n)))
        raise Unsupported(f"{shapes}: the output must be {expected}")
    fields = {"m_size": m, "k_size": k, "n_size": n, "batch_1": sizes[1], "batch_2": sizes[2]}
    for name, batch_shape, matrix in (("left", outer[0], m * k), ("right", outer[1], k * n)):
        for axis in range(3):
            step = matrix * math.prod(batch_shape[axis + 1 :])
            fields[f"{name}_batch_{axis}"] = 0 if batch_shape[axis] == 1 else step
    return fields | steps

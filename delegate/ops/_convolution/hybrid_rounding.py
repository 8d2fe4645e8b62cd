# SPDX-License-Identifier: Apache-2.0
"""How often TFLite rounds where a hybrid op adds a scaled sum to a float: once or twice."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.target import Rules


def rounds_once(rules: Rules, rows: int, depth: int, units: int) -> bool:
    """Whether the calling TFLite rounds a scaled sum and what it is added to once.

    Raises:
        Unsupported: that is not known for so many rows.
    Source: tflite/kernels/internal/optimized/neon_tensor_utils.cc
    MatrixBatchVectorMultiplyAccumulate; seen on ai-edge-litert 2.3.0
    """
    if rules.processor != "aarch64":
        return False
    if not depends_on_dot_products(rows, depth, units):
        return True
    if rules.rounds_rows_twice is None:
        raise Unsupported(f"hybrid: how this TFLite rounds sums of {rows} rows is not known")
    return not rules.rounds_rows_twice


def depends_on_dot_products(rows: int, depth: int, units: int) -> bool:
    """Whether TFLite on aarch64 multiplies these sizes otherwise where it has dot products."""
    if rows < 2 or depth % 16 or units % 2 or units < rows:
        return False
    if rows % 4 and depth * units < 128 * 128:
        return False
    # Of many rows the product is a GEMM's, sooner the nearer the matrix is to a square.
    ratio = max(depth, units) // min(depth, units)
    return bool(units % 4) or rows < max(16, 8 << (ratio.bit_length() - 1))

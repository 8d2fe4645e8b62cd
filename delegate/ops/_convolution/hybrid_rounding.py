# SPDX-License-Identifier: Apache-2.0
"""Whether TFLite rounds once or twice when a hybrid op adds a scaled sum to a float."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.target import Rules


def rounds_once(rules: Rules, rows: int, depth: int, units: int) -> bool:
    """Whether the calling TFLite fuses the scaling and addition of a sum, so rounds once.

    Raises:
        Unsupported: unknown for this number of rows.
    Source: tflite/kernels/internal/optimized/neon_tensor_utils.cc
    MatrixBatchVectorMultiplyAccumulate; observed with ai-edge-litert 2.3.0
    """
    if rules.processor != "aarch64":
        return False
    if not depends_on_dot_products(rows, depth, units):
        return True
    if rules.rounds_rows_twice is None:
        raise Unsupported(f"hybrid: how this TFLite rounds sums of {rows} rows is not known")
    return not rules.rounds_rows_twice


def depends_on_dot_products(rows: int, depth: int, units: int) -> bool:
    """Whether TFLite on aarch64 uses another kernel for these sizes if it has dot products."""
    if rows < 2 or depth % 16 or units % 2 or units < rows:
        return False
    if rows % 4 and depth * units < 128 * 128:
        return False
    # With many rows it uses a GEMM, the earlier the closer the matrix is to a square.
    ratio = max(depth, units) // min(depth, units)
    return bool(units % 4) or rows < max(16, 8 << (ratio.bit_length() - 1))

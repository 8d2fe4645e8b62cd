# SPDX-License-Identifier: Apache-2.0
"""fully_connected_shifted, by passes/fuse_shifts.py: int4 weights in blocks with a shift each."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.float_results import EXACT
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.node import require_constant, shape_text
from delegate.ops._convolution.variants import blockwise
from delegate.ops._registry import lowers
from delegate.ops.fully_connected import in_blocks
from delegate.target import Target


@lowers("fully_connected_shifted", floats=EXACT)
def lower_fully_connected_shifted(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply rows by int4 weights in blocks, and add another product, a column a block.

    That is how weights with a minimum a block are written: passes/fuse_shifts.py.

    Shapes:
        input, weights and bias as of FULLY_CONNECTED, sums (rows, blocks), shifts (o, blocks)
        -> output (rows, o)
    Raises:
        Unsupported: as of FULLY_CONNECTED, shifts that do not fit.
    """
    *own, sums, shifts = node.inputs
    product = in_blocks(replace(node, inputs=tuple(own)), target.rules)
    assert sums is not None
    assert shifts is not None
    if (sums.dtype, shifts.dtype) != ("float32", "float32"):
        raise Unsupported(f"sums {sums.dtype}, shifts {shifts.dtype}: only float32 is implemented")
    values = require_constant(shifts, "shifts").astype(np.float32, copy=False)
    rows, blocks = product.batch, product.scales.shape[1]
    if values.shape != product.scales.shape or math.prod(sums.shape) != rows * blocks:
        raise Unsupported(
            f"shifts {shape_text(shifts)}, sums {shape_text(sums)}: "
            f"{rows} rows have {blocks} blocks each"
        )
    if not np.isfinite(values).all():
        raise Unsupported("a shift of a block is not finite")
    return blockwise(replace(product, shifts=(sums, values)), target)

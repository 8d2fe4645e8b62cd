# SPDX-License-Identifier: Apache-2.0
"""fully_connected_shifted, by passes/fuse_shifts.py: int4 blocks with a scale and a shift each."""

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
from delegate.ops.fully_connected import parse_blockwise
from delegate.target import Target


@lowers("fully_connected_shifted", floats=EXACT)
def lower_fully_connected_shifted(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply rows by blockwise int4 weights, and add sums x shifts, a column per block.

    This is how blockwise weights with a minimum are expressed: see passes/fuse_shifts.py.

    Shapes:
        input, weights and bias as of FULLY_CONNECTED, sums (rows, blocks), shifts (o, blocks)
        -> output (rows, o)
    Raises:
        Unsupported: as for FULLY_CONNECTED; shifts of a wrong shape or type.
    """
    *inputs, sums, shifts = node.inputs
    product = parse_blockwise(replace(node, inputs=tuple(inputs)), target.rules)
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

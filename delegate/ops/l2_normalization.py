# SPDX-License-Identifier: Apache-2.0
"""L2_NORMALIZATION over the last axis: floats, and 8 bits in the reference's fixed point."""

from __future__ import annotations

import numpy as np

from delegate.graph.ir import Node
from delegate.launch import Alternative, Defines, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import require_no_activation
from delegate.ops._checks.node import one_to_one
from delegate.ops._launches.rows import Rows, require_rows
from delegate.ops._launches.tiles import LEAST_ELEMENTS, most_rounds
from delegate.ops._launches.types import ELEM
from delegate.ops._registry import lowers
from delegate.target import Target

# A sum of so many squares of 8 bits stays below 2^31, too.
_MOST_DEPTH = most_rounds(2, 1_000)


@lowers("L2_NORMALIZATION")
def lower_l2_normalization(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Divide each row by the root of its sum of squares.

    Shapes:
        input (..., c) -> output (..., c), rows of c
    Raises:
        Unsupported: types other than uint8, int8 and float32, a fused activation, another output
            scale or zero point than TFLite's, longer rows.
    Source: tflite/kernels/l2norm.cc, internal/reference/l2normalization.h,
    integer_ops/l2normalization.h
    """
    source, result = one_to_one(node, ("float32", *quantized.QUANT8))
    require_no_activation(node)
    require_rows(source, _MOST_DEPTH)
    rows = Rows(source, result, "float")
    if source.dtype != "float32":
        _, in_zero = quantized.per_tensor(source)
        out_zero = 128 if result.dtype == "uint8" else 0
        quantized.require_fixed_output(result, 1 / 128, out_zero)
        limits = np.iinfo(result.dtype)
        numbers: Params = {
            "input_zero": in_zero,
            "output_zero": out_zero,
            "output_min": int(limits.min),
            "output_max": int(limits.max),
        }
        defines: Defines = {"ELEM": ELEM[source.dtype], "IS_SIGNED": int(source.dtype == "int8")}
        rows = Rows(source, result, "quant8", numbers, defines)
    return rows.plain("l2_normalization", LEAST_ELEMENTS, target)

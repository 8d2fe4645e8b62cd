# SPDX-License-Identifier: Apache-2.0
"""L2_NORMALIZATION over the last axis: floats, and 8 bits in the reference's fixed point."""

from __future__ import annotations

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative, Defines, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.shapes import elements_of, shape_text
from delegate.ops._launches.activation import one_to_one
from delegate.ops._launches.tiles import LEAST_ELEMENTS, by_elements, launch_over, most_rounds
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers.integers import ceil_div
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
    fused = node.options.get("fused_activation_function", "NONE")
    if fused != "NONE":
        raise Unsupported(f"fused activation {fused}: TFLite takes none here")
    if not source.shape:
        raise Unsupported(f"shape {shape_text(source)}: at least rank 1 is needed")
    depth = source.shape[-1]
    if depth > _MOST_DEPTH:
        raise Unsupported(f"rows of {depth}: at most {_MOST_DEPTH}")
    rows = elements_of(source) // depth
    tiling = by_elements(rows, target, ceil_div(LEAST_ELEMENTS, depth))
    params: Params = {
        "input": source,
        "output": result,
        "rows": rows,
        "depth": depth,
    }
    defines: Defines = {}
    family = "float"
    if source.dtype != "float32":
        family = "quant8"
        _, in_zero = quantized.per_tensor(source)
        out_zero = 128 if result.dtype == "uint8" else 0
        quantized.require_fixed_output(result, 1 / 128, out_zero)
        limits = np.iinfo(result.dtype)
        params |= {
            "input_zero": in_zero,
            "output_zero": out_zero,
            "output_min": int(limits.min),
            "output_max": int(limits.max),
        }
        defines = {"ELEM": ELEM[source.dtype], "IS_SIGNED": int(source.dtype == "int8")}
    launch = launch_over(
        "l2_normalization",
        f"l2_normalization_{family}",
        tiling,
        params,
        defines,
    )
    return (Alternative("plain", (launch,)),)

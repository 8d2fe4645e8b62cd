# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX over the last axis, 8 bit, through TFLite's table of exponentials."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative, Constant, Launch, Target
from delegate.ops import _quantize
from delegate.ops._geometry import shape_text
from delegate.ops._registry import lowers


@lowers("SOFTMAX")
def lower_softmax(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Turn each row's values into shares of one.

    Shapes:
        input (..., c) -> output (..., c), rows of c
    Raises:
        Unsupported: types other than uint8 and int8, a device whose float sums do not round to
            nearest even.
    Source: tflite/kernels/internal/optimized/optimized_ops.h Softmax, PopulateSoftmaxLookupTable
    """
    (source,), _ = _quantize.inputs_of(node.inputs, 1)
    result = node.outputs[0]
    if source.dtype != result.dtype:
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: they must be equal")
    if source.shape != result.shape or not source.shape or math.prod(source.shape) == 0:
        raise Unsupported(f"{shape_text(source)} -> {shape_text(result)}: the shape must stay")
    if not target.has_exact_float:
        raise Unsupported("this device does not round float sums and products to nearest even")
    in_scale, _ = _quantize.per_tensor(source)
    out_scale, out_zero = _quantize.per_tensor(result)
    beta = node.options.get("beta", 0.0)
    if not (math.isfinite(beta) and beta * in_scale > 0 and 2.0**-64 < out_scale < 2.0**64):
        raise Unsupported(f"beta {beta} with scales {in_scale}, {out_scale}: out of range")

    def table() -> NDArray[np.float32]:
        # Entry 255 - d belongs to a value d below the row's greatest.
        step = np.float32(-(np.float32(in_scale) * np.float32(beta)))
        entries = [target.rules.expf(float(step * np.float32(255 - i))) for i in range(256)]
        return np.array(entries, np.float32)

    depth = source.shape[-1]
    rows = math.prod(source.shape) // depth
    limits = np.iinfo(result.dtype)
    launch = Launch(
        "softmax",
        "softmax_quant8",
        tiles=-(-rows // target.group_items),
        group_items=target.group_items,
        params={
            "input": source,
            "output": result,
            "table": Constant(1024, table),
            "output_scale_bits": int(np.float32(out_scale).view(np.int32)),
            "output_zero": out_zero,
            "output_min": int(limits.min),
            "output_max": int(limits.max),
            "rows": rows,
            "depth": depth,
            "tile_items": target.group_items,
        },
        reads=(source,),
        writes=(result,),
        defines={"ELEM": _quantize.ELEM[source.dtype]},
    )
    return (Alternative("plain", (launch,)),)

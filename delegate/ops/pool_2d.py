# SPDX-License-Identifier: Apache-2.0
"""AVERAGE_POOL_2D and MAX_POOL_2D, 8 bit."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative, Launch, Target
from delegate.ops import _quantize
from delegate.ops._geometry import integer, window
from delegate.ops._registry import lowers


@lowers("AVERAGE_POOL_2D", "MAX_POOL_2D")
def lower_pool_2d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Reduce every window of an NHWC tensor over its in-bounds pixels.

    Shapes:
        input (n, h, w, c) -> output (n, oh, ow, c)
    Raises:
        Unsupported: types other than uint8 and int8, quantisation that differs across the op.
    Source: tflite/kernels/internal/reference/pooling.h, integer_ops/pooling.h
    """
    (source,), _ = _quantize.inputs_of(node.inputs, 1)
    result = _quantize.output_of(node.outputs)
    if source.dtype != result.dtype:
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: they must be equal")
    if _quantize.per_tensor(source) != _quantize.per_tensor(result):
        raise Unsupported("the scale or zero point changes: TFLite's kernel would not rescale")
    options = node.options
    kernel_h, kernel_w = integer(options, "filter_height", 0), integer(options, "filter_width", 0)
    area = window(source, result, kernel_h, kernel_w, options)
    depth = source.shape[3]
    if result.shape[3] != depth:
        raise Unsupported(f"{depth} channels in, {result.shape[3]} out: they must be equal")
    low, high = _quantize.activation_range(result, options.get("fused_activation_function", "NONE"))
    elements = math.prod(result.shape)
    launch = Launch(
        "pool_2d",
        "pool_2d_quant8",
        tiles=-(-elements // 64),
        group_items=64,
        params={
            "input": source,
            "output": result,
            **area.params(),
            "depth": depth,
            "output_min": low,
            "output_max": high,
            "elements": elements,
            "tile_items": 64,
        },
        reads=(source,),
        writes=(result,),
        defines={
            "ELEM": _quantize.ELEM[source.dtype],
            "TAKES_MAX": int(node.op == "MAX_POOL_2D"),
        },
    )
    return (Alternative("plain", (launch,)),)

# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions of int16 with int8 weights: plain, and over vectors of channels."""

from __future__ import annotations

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import quantized_bounds
from delegate.ops._checks.node import inputs_of, output_of, require_constant
from delegate.ops._checks.shapes import shape_text
from delegate.ops._checks.windows import window
from delegate.ops._launches.tiles import by_share, lanes_of
from delegate.ops._launches.wide_sums import TERMS_AN_INT, require_16x8, wide_sums
from delegate.target import Target

TILE_W = 4  # neighbouring output pixels a work-item, which share the weights they load


def lower(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve each channel of an NHWC tensor of int16 with constant 1HWO weights of int8.

    Shapes:
        input (n, h, w, i), weights (1, kh, kw, i * m), bias (i * m,) -> output (n, oh, ow, i * m)
    Raises:
        Unsupported: computed weights, channels that are no multiple, other types.
    Source: tflite/kernels/internal/reference/integer_ops/depthwise_conv.h, the int16 overload
    """
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    require_16x8(source, weights, result)
    if len(weights.shape) != 4 or weights.shape[0] != 1:
        raise Unsupported(f"weights {shape_text(weights)}: 1HWO is needed")
    _, kernel_h, kernel_w, out_c = weights.shape
    area = window(source, result, kernel_h, kernel_w, node.options)
    in_c = source.shape[3]
    if result.shape[3] != out_c or out_c % in_c:
        raise Unsupported(
            f"{in_c} input, {out_c} weight and {result.shape[3]} output channels: "
            "the last two must be equal and a multiple of the first"
        )
    if bias is not None and bias.dtype == "int32":
        raise Unsupported("bias int32 with int16 activations: TFLite takes int64 here")
    values = require_constant(weights, "weights").reshape(-1, out_c)
    sums = wide_sums(source, weights, bias, result, 3, target.rules)
    low, high = quantized_bounds(
        result, node.options.get("fused_activation_function", "NONE"), quantized.QUANT
    )
    elements = source.shape[0] * area.out_h * area.out_w * out_c
    common: dict[str, int | Tensor | Constant] = {
        "input": source,
        "output": result,
        **area.params(),
        "in_c": in_c,
        "out_c": out_c,
        "output_min": low,
        "output_max": high,
        "channels": sums.rows(),
    }
    rounding: dict[str, int | str] = {"ROUNDING": sums.rounding}
    plain = Launch(
        "depthwise_conv_2d_quant16",
        "depthwise_conv_2d_quant16",
        tiles=-(-elements // 64),
        group_items=64,
        params=common
        | {
            "weights": Constant(values.nbytes, lambda: values),
            "depth_multiplier": out_c // in_c,
            "elements": elements,
            "tile_items": 64,
        },
        reads=(source,),
        writes=(result,),
        defines=rounding,
    )
    plain_last = (Alternative("plain", (plain,)),)
    lanes = lanes_of(out_c, target)
    if not lanes or out_c != in_c or kernel_h * kernel_w > TERMS_AN_INT:
        return plain_last
    tile_w = TILE_W if area.out_w >= TILE_W else 1
    channel_blocks, row_blocks = -(-out_c // lanes), -(-area.out_w // tile_w)
    items = source.shape[0] * area.out_h * row_blocks * channel_blocks
    tile_items = by_share(items, target).tile_items
    vector = Launch(
        "depthwise_conv_2d_quant16",
        "depthwise_conv_2d_vector_quant16",
        tiles=-(-items // tile_items),
        group_items=target.group_items,
        params=common
        | {
            "weights": Constant(2 * values.size, lambda: values.astype(np.int16)),
            "zeros": Constant(2 * lanes, lambda: np.zeros(lanes, np.int16)),
            "items": items,
            "tile_items": tile_items,
            "channel_blocks": channel_blocks,
            "row_blocks": row_blocks,
        },
        reads=(source,),
        writes=(result,),
        defines=rounding | {"LANES": lanes, "TILE_W": tile_w},
    )
    return (Alternative(f"vector {lanes}x{tile_w}", (vector,)), *plain_last)

# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D, 8 bit: the plain kernel, and one over vectors of channels."""

from __future__ import annotations

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import quantized_bounds
from delegate.ops._checks.node import inputs_of, output_of, require_constant
from delegate.ops._checks.shapes import shape_text
from delegate.ops._checks.windows import window
from delegate.ops._convolution import (
    depthwise_conv_2d_float,
    depthwise_conv_2d_quant16,
    depthwise_conv_2d_x86,
)
from delegate.ops._convolution.depthwise_conv_2d_nvidia import dp4a_alternatives
from delegate.ops._convolution.depthwise_conv_2d_simt import float4_alternatives
from delegate.ops._convolution.records import (
    DepthwiseConvolution,
    channel_rows,
    require_quant8_weights,
    zeros_row,
)
from delegate.ops._launches.tiles import by_share
from delegate.ops._launches.types import ELEM
from delegate.ops._registry import lowers
from delegate.target import Target

TILE_W = 4  # neighbouring output pixels a work-item, which share the weights they load


@lowers("DEPTHWISE_CONV_2D")
def lower_depthwise_conv_2d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve each channel of an NHWC tensor with constant 1HWO weights of its own.

    Shapes:
        input (n, h, w, i), weights (1, kh, kw, i * m), bias (i * m,) -> output (n, oh, ow, i * m)
    Raises:
        Unsupported: computed weights, channels that are no multiple, other types.
    Source: tflite/kernels/internal/reference/depthwiseconv_uint8.h,
    integer_ops/depthwise_conv.h; the multiplier is the shapes' quotient, as in
    tflite/kernels/depthwise_conv.cc
    """
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    if source.dtype == result.dtype == "float32":
        return depthwise_conv_2d_float.lower(node, target)
    if source.dtype == result.dtype == "int16":
        return depthwise_conv_2d_quant16.lower(node, target)
    require_quant8_weights(source, weights, result)
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
    conv = DepthwiseConvolution(
        source=source,
        weights=require_constant(weights, "weights").reshape(-1, out_c),
        weight_zero=quantized.weight_scales(weights, 3)[1],
        bias=quantized.int32_bias(bias, out_c),
        scaling=quantized.convolution_multipliers(
            source, weights, result, 3, per_channel=source.dtype == "int8"
        ),
        clamp=quantized_bounds(result, node.options.get("fused_activation_function", "NONE")),
        result=result,
        batch=source.shape[0],
        area=area,
    )
    return every_alternative(conv, target)


def every_alternative(conv: DepthwiseConvolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches of an 8-bit convolution, those for a device's own instructions first."""
    return (
        *depthwise_conv_2d_x86.alternatives(conv, target),
        *dp4a_alternatives(conv, target),
        *float4_alternatives(conv, target),
        *alternatives(conv, target),
    )


def alternatives(conv: DepthwiseConvolution, target: Target) -> tuple[Alternative, ...]:
    """Return the portable launches: over vectors of channels where they fit, then plain."""
    out_c, area = conv.out_c, conv.area
    elem = ELEM[conv.source.dtype]
    elements = conv.batch * area.out_h * area.out_w * out_c
    plain = Launch(
        "depthwise_conv_2d",
        "depthwise_conv_2d_quant8",
        tiles=-(-elements // 64),
        group_items=64,
        params=conv.params()
        | {
            "weights": Constant(conv.weights.nbytes, lambda: conv.weights),
            "channels": channel_rows(lambda: conv.bias, conv.scaling),
            "depth_multiplier": conv.depth_multiplier,
            "input_zero": conv.input_zero,
            "weight_zero": conv.weight_zero,
            "elements": elements,
            "tile_items": 64,
        },
        reads=(conv.source,),
        writes=(conv.result,),
        defines={"ELEM": elem, "WEIGHT": elem},
    )
    plain_last = (Alternative("plain", (plain,)),)
    lanes = _lanes(out_c, target)
    if lanes == 0 or conv.depth_multiplier > 1:
        return plain_last

    tile_w = TILE_W if area.out_w >= TILE_W else 1
    channel_blocks, row_blocks = -(-out_c // lanes), -(-area.out_w // tile_w)
    items = conv.batch * area.out_h * row_blocks * channel_blocks
    tile_items = by_share(items, target).tile_items
    vector = Launch(
        "depthwise_conv_2d",
        "depthwise_conv_2d_vector_quant8",
        tiles=-(-items // tile_items),
        group_items=target.group_items,
        params=conv.params()
        | {
            "weights": Constant(2 * conv.weights.size, lambda: conv.centred().astype(np.int16)),
            "channels": channel_rows(conv.folded_bias, conv.scaling),
            "zeros": zeros_row(out_c, conv.input_zero, conv.source.dtype),
            "items": items,
            "tile_items": tile_items,
            "channel_blocks": channel_blocks,
            "row_blocks": row_blocks,
        },
        reads=(conv.source,),
        writes=(conv.result,),
        defines={"ELEM": elem, "LANES": lanes, "TILE_W": tile_w},
    )
    return (Alternative(f"vector {lanes}x{tile_w}", (vector,)), *plain_last)


def _lanes(channels: int, target: Target) -> int:
    widest = 4 if target.group_items > 1 else min(target.vector_width, 16)
    return max((lanes for lanes in (16, 8, 4) if lanes <= min(widest, channels)), default=0)

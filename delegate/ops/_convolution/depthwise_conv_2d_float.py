# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions of float32: plain, over vectors of channels, and the same for 3x3."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks.activations import float_bounds
from delegate.ops._checks.node import inputs_of, output_of, require_constant
from delegate.ops._checks.shapes import shape_text
from delegate.ops._checks.windows import Window, window
from delegate.ops._convolution import conv_2d_float
from delegate.ops._convolution.float_constants import float_bias, require_float_weights, zeros
from delegate.ops._launches.tiles import by_work, lanes_of, tile_w_of
from delegate.target import Target


def lower(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve each channel of an NHWC tensor of float32 with constant 1HWO weights of its own.

    Shapes:
        input (n, h, w, i), weights (1, kh, kw, i * m), bias (i * m,) -> output (n, oh, ow, i * m)
    Raises:
        Unsupported: computed weights, channels that are no multiple, weights of another type.
    Source: tflite/kernels/internal/reference/depthwiseconv_float.h; sums in another order, so
    within rounding
    """
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    require_float_weights(weights)
    if len(weights.shape) != 4 or weights.shape[0] != 1:
        raise Unsupported(f"weights {shape_text(weights)}: 1HWO is needed")
    _, kernel_h, kernel_w, out_c = weights.shape
    area = window(source, result, kernel_h, kernel_w, node.options)
    in_c, batch = source.shape[3], source.shape[0]
    if result.shape[3] != out_c or out_c % in_c:
        raise Unsupported(
            f"{in_c} input, {out_c} weight and {result.shape[3]} output channels: "
            "the last two must be equal and a multiple of the first"
        )
    values = cast(NDArray[np.float32], require_constant(weights, "weights"))
    values = values.reshape(-1, out_c)
    bias_values = float_bias(bias, out_c)
    clamp = float_bounds(node.options.get("fused_activation_function", "NONE"))
    if in_c == 1:  # then it is a convolution, and that has more ways
        return conv_2d_float.alternatives(
            conv_2d_float.Convolution(
                source=source,
                weights=values.T[:, :, None],
                bias=bias_values,
                clamp=clamp,
                result=result,
                batch=batch,
                area=area,
            ),
            target,
        )
    common: dict[str, int | Tensor | Constant] = {
        "input": source,
        "output": result,
        **area.params(),
        "in_c": in_c,
        "out_c": out_c,
        **clamp,
        "weights": Constant(values.nbytes, lambda: values),
        "bias": bias_values,
    }
    elements = batch * area.out_h * area.out_w * out_c
    plain = Launch(
        "depthwise_conv_2d_float",
        "depthwise_conv_2d_float",
        tiles=-(-elements // 64),
        group_items=64,
        params=common | {"depth_multiplier": out_c // in_c, "elements": elements, "tile_items": 64},
        reads=(source,),
        writes=(result,),
    )
    lanes = lanes_of(out_c, target)
    ways: list[Alternative] = []
    if lanes and out_c == in_c:
        most = 4 if target.group_items > 1 else min(target.vector_width, 16)
        tile_w = tile_w_of(area.out_w, most)
        channel_blocks, row_blocks = -(-out_c // lanes), -(-area.out_w // tile_w)
        items = batch * area.out_h * row_blocks * channel_blocks
        tile_items = by_work(items, tile_w * kernel_h * kernel_w, target).tile_items
        for name, defines in (("3x3", {"HOP": area.stride_w}), ("vector", {})):
            if name == "3x3" and not _leaves_by_one(area):
                continue
            launch = Launch(
                "depthwise_conv_2d_float",
                f"depthwise_conv_2d_{name}_float",
                tiles=-(-items // tile_items),
                group_items=target.group_items,
                params=common
                | {
                    "zeros": zeros(lanes),
                    "items": items,
                    "tile_items": tile_items,
                    "channel_blocks": channel_blocks,
                    "row_blocks": row_blocks,
                },
                reads=(source,),
                writes=(result,),
                defines={"LANES": lanes, "TILE_W": tile_w, **defines},
            )
            ways.append(Alternative(f"{name} {tile_w}x{lanes}", (launch,)))
    return (*ways, Alternative("plain", (plain,)))


def _leaves_by_one(area: Window) -> bool:
    """Whether windows are 3x3, not far apart, and at most one pixel beyond either end of a row."""
    last = (area.out_w - 1) * area.stride_w - area.pad_left + 2
    return (
        (area.kernel_h, area.kernel_w, area.dilation_w) == (3, 3, 1)
        and area.stride_w <= 2
        and area.pad_left <= 1
        and last <= area.in_w
    )

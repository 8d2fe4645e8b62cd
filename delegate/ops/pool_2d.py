# SPDX-License-Identifier: Apache-2.0
"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D: plain, and over vectors of channels."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import float_bounds, quantized_bounds
from delegate.ops._checks.node import inputs_of, integer, output_of
from delegate.ops._checks.windows import window
from delegate.ops._launches.tiles import by_work, lanes_of, most_rounds
from delegate.ops._launches.types import ELEM
from delegate.ops._registry import lowers
from delegate.target import Target

# Of a window in bounds: a round each. The window's sums fit 32 bits, too.
_MOST_PIXELS = most_rounds(1, 10_000)


@lowers("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def lower_pool_2d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Reduce every window of an NHWC tensor over its in-bounds pixels.

    Shapes:
        input (n, h, w, c) -> output (n, oh, ow, c)
    Raises:
        Unsupported: other types than uint8, int8, int16 and float32, of L2_POOL_2D than float32;
            quantisation that differs across the op; too large a window.
    Source: tflite/kernels/internal/reference/pooling.h, integer_ops/pooling.h
    """
    (source,), _ = inputs_of(node.inputs, 1)
    result = output_of(node.outputs)
    if source.dtype != result.dtype:
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: they must be equal")
    is_float = source.dtype == "float32"
    types = quantized.QUANT
    if node.op == "L2_POOL_2D" and not is_float:
        raise Unsupported(f"{source.dtype}: only float32 is implemented")
    if not is_float and quantized.per_tensor(source, types) != quantized.per_tensor(result, types):
        raise Unsupported("the scale or zero point changes: TFLite's kernel would not rescale")
    options = node.options
    kernel_h, kernel_w = integer(options, "filter_height", 0), integer(options, "filter_width", 0)
    area = window(source, result, kernel_h, kernel_w, options)
    pixels = min(kernel_h, area.in_h) * min(kernel_w, area.in_w)
    if pixels > _MOST_PIXELS:
        raise Unsupported(f"a window of {pixels} pixels: at most {_MOST_PIXELS} are implemented")
    depth = source.shape[3]
    if result.shape[3] != depth:
        raise Unsupported(f"{depth} channels in, {result.shape[3]} out: they must be equal")
    activation = options.get("fused_activation_function", "NONE")
    clamp: dict[str, int]
    defines: dict[str, int | str] = {"TAKES_MAX": int(node.op == "MAX_POOL_2D")}
    if is_float:
        family, clamp = "float", float_bounds(activation)
        defines["IS_L2"] = int(node.op == "L2_POOL_2D")
    else:
        low, high = quantized_bounds(result, activation, types)
        family, clamp = "quant8", {"output_min": low, "output_max": high}
        defines["ELEM"] = ELEM[source.dtype]
    common: dict[str, int | Tensor | Constant] = {
        "input": source,
        "output": result,
        **area.params(),
        "depth": depth,
        **clamp,
    }
    elements = math.prod(result.shape)
    plain = Launch(
        "pool_2d",
        f"pool_2d_{family}",
        tiles=-(-elements // 64),
        group_items=64,
        params=common | {"elements": elements, "tile_items": 64},
        reads=(source,),
        writes=(result,),
        defines=defines,
    )
    plain_last = (Alternative("plain", (plain,)),)
    lanes = lanes_of(depth, target, 16 if is_float else 8)
    if lanes == 0:
        return plain_last
    channel_blocks = -(-depth // lanes)
    items = elements // depth * channel_blocks
    tiling = by_work(items, pixels, target, _MOST_PIXELS // pixels)
    vector = Launch(
        "pool_2d",
        f"pool_2d_vector_{family}",
        tiles=tiling.tiles,
        group_items=tiling.group_items,
        params=common
        | {"items": items, "tile_items": tiling.tile_items, "channel_blocks": channel_blocks},
        reads=(source,),
        writes=(result,),
        defines=defines | {"LANES": lanes},
    )
    return (Alternative(f"vector {lanes}", (vector,)), *plain_last)

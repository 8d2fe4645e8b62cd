# SPDX-License-Identifier: Apache-2.0
"""AVERAGE_POOL_2D and MAX_POOL_2D, 8 bit and float32: plain, and over vectors of channels."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch, Target
from delegate.ops import _float, _quantize
from delegate.ops._geometry import integer, window
from delegate.ops._registry import lowers

_MOST_PIXELS = 2**22  # a window whose sums surely fit 32 bits, and their float quotient 24


@lowers("AVERAGE_POOL_2D", "MAX_POOL_2D")
def lower_pool_2d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Reduce every window of an NHWC tensor over its in-bounds pixels.

    Shapes:
        input (n, h, w, c) -> output (n, oh, ow, c)
    Raises:
        Unsupported: types other than uint8, int8 and float32, quantisation that differs across
            the op.
    Source: tflite/kernels/internal/reference/pooling.h, integer_ops/pooling.h
    """
    (source,), _ = _quantize.inputs_of(node.inputs, 1)
    result = _quantize.output_of(node.outputs)
    if source.dtype != result.dtype:
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: they must be equal")
    is_float = source.dtype == "float32"
    if not is_float and _quantize.per_tensor(source) != _quantize.per_tensor(result):
        raise Unsupported("the scale or zero point changes: TFLite's kernel would not rescale")
    options = node.options
    kernel_h, kernel_w = integer(options, "filter_height", 0), integer(options, "filter_width", 0)
    area = window(source, result, kernel_h, kernel_w, options)
    depth = source.shape[3]
    if result.shape[3] != depth:
        raise Unsupported(f"{depth} channels in, {result.shape[3]} out: they must be equal")
    activation = options.get("fused_activation_function", "NONE")
    clamp: dict[str, int]
    defines: dict[str, int | str] = {"TAKES_MAX": int(node.op == "MAX_POOL_2D")}
    if is_float:
        family, clamp = "float", _float.activation_params(activation)
    else:
        low, high = _quantize.activation_range(result, activation)
        family, clamp = "quant8", {"output_min": low, "output_max": high}
        defines["ELEM"] = _quantize.ELEM[source.dtype]
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
    lanes = _float.lanes_of(depth, target, 16 if is_float else 8)
    pixels = kernel_h * kernel_w
    if lanes == 0 or (not is_float and pixels > _MOST_PIXELS):
        return plain_last
    channel_blocks = -(-depth // lanes)
    items = elements // depth * channel_blocks
    tile_items = _float.tile_items(items, pixels, target)
    vector = Launch(
        "pool_2d",
        f"pool_2d_vector_{family}",
        tiles=-(-items // tile_items),
        group_items=target.group_items,
        params=common
        | {"items": items, "tile_items": tile_items, "channel_blocks": channel_blocks},
        reads=(source,),
        writes=(result,),
        defines=defines | {"LANES": lanes},
    )
    return (Alternative(f"vector {lanes}", (vector,)), *plain_last)

# SPDX-License-Identifier: Apache-2.0
"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D: vectors of channels, and plain."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.float_results import SELECTS, Growth, sums
from delegate.graph.ir import Node
from delegate.launch import Alternative, Defines, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import activation_of, bounds_of
from delegate.ops._checks.node import integer, tensors_of
from delegate.ops._checks.windows import window
from delegate.ops._launches.tiles import (
    by_work,
    lanes_of,
    launch_over,
    most_rounds,
    one_each,
    vectors_of,
)
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

# In-bounds pixels of a window: one loop round each. Sums of so many fit 32 bits, too.
_MOST_PIXELS = most_rounds(1, 10_000)


@lowers("AVERAGE_POOL_2D", "L2_POOL_2D", floats=sums(Growth.STEADY))
@lowers("MAX_POOL_2D", floats=SELECTS)
def lower_pool_2d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Reduce every window of an NHWC tensor over its in-bounds pixels.

    Shapes:
        input (n, h, w, c) -> output (n, oh, ow, c)
    Raises:
        Unsupported: types other than uint8, int8, int16 and float32 (L2_POOL_2D: float32); input
            and output quantisation that differ; too large a window.
    Source: tflite/kernels/internal/reference/pooling.h, integer_ops/pooling.h
    """
    source, result = tensors_of(node, 1)
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
    depth, takes_max = source.shape[3], int(node.op == "MAX_POOL_2D")
    if result.shape[3] != depth:
        raise Unsupported(f"{depth} channels in, {result.shape[3]} out: they must be equal")
    defines: Defines = {"TAKES_MAX": takes_max}
    if is_float:
        defines["IS_L2"] = int(node.op == "L2_POOL_2D")
    else:
        defines["ELEM"] = ELEM[source.dtype]
    params: Params = {
        "input": source,
        "output": result,
        **area.params(),
        "depth": depth,
        **bounds_of(result, activation_of(node)),
    }
    file, family = "pool_2d", "float" if is_float else "quant8"
    elements = math.prod(result.shape)
    fields = params | {"elements": elements}
    launch = launch_over(file, f"{file}_{family}", one_each(elements), fields, defines)
    fallback = Alternative("plain", (launch,))
    # 8-bit values have 32-bit sums.
    lanes = lanes_of(depth, target, 16 if is_float or takes_max else 8)
    if lanes == 0:
        return (fallback,)
    vectors = _vectors(depth, lanes) if takes_max and not is_float else 1
    blocks = ceil_div(depth, lanes * vectors)
    items = elements // depth * blocks
    tiling = by_work(items, pixels * vectors, target, _MOST_PIXELS // pixels)
    fields = params | {"items": items, "channel_blocks": blocks}
    defines = defines | vectors_of(depth, lanes, target)
    if not is_float:
        defines |= {"VECTORS": vectors}
    vector = launch_over(file, f"{file}_vector_{family}", tiling, fields, defines)
    return Alternative(f"vector {lanes}", (vector,)), fallback


def _vectors(depth: int, lanes: int) -> int:
    """Return the vectors of an item of an 8-bit maximum.

    Where a vector is one access, finding its window takes longer than the maximum of 3x3.
    """
    return next((n for n in (4, 2) if lanes > 4 and depth % (lanes * n) == 0), 1)

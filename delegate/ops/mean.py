# SPDX-License-Identifier: Apache-2.0
"""MEAN over height and width, 8 bit: plain, and over vectors of channels."""

from __future__ import annotations

import math

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch, Target
from delegate.ops import _quantize
from delegate.ops._convolution import items_a_tile
from delegate.ops._float import lanes_of
from delegate.ops._geometry import shape_text
from delegate.ops._registry import lowers

LEAST_BYTES = 8192  # a tile of one-item groups, so that claiming it costs less than its work


@lowers("MEAN")
def lower_mean(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Average an NHWC tensor over its pixels.

    Shapes:
        input (n, h, w, c), axes (1, 2) -> output (n, c) or (n, 1, 1, c)
    Raises:
        Unsupported: other axes or ranks, types other than uint8 and int8.
    Source: tflite/kernels/internal/reference/reduce.h QuantizedMeanOrSum
    """
    (source, axes), _ = _quantize.inputs_of(node.inputs, 2)
    result = _quantize.output_of(node.outputs)
    if source.dtype != result.dtype:
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: they must be equal")
    if len(source.shape) != 4:
        raise Unsupported(f"input {shape_text(source)}: only rank 4 (NHWC)")
    if 0 in source.shape:
        raise Unsupported(f"input {shape_text(source)}: it is empty")
    if axes.dtype != "int32":
        raise Unsupported(f"{axes.dtype} axes: only int32")
    values = np.ravel(_quantize.require_constant(axes, "axes")).tolist()
    if any(not -4 <= axis < 4 for axis in values) or {axis % 4 for axis in values} != {1, 2}:
        raise Unsupported(f"axes {values}: only height and width, 1 and 2")
    batch, height, width, depth = source.shape
    if math.prod(result.shape) != batch * depth:
        raise Unsupported(f"output {shape_text(result)}: {batch}x{depth} is computed")
    in_scale, in_zero = _quantize.per_tensor(source)
    out_scale, out_zero = _quantize.per_tensor(result)
    pixels = height * width
    multiplier, shift = _quantize.quantize_multiplier(in_scale / out_scale)
    if shift > 30:
        raise Unsupported(f"a scale ratio of 2^{shift}: more than 2^30")
    # The division joins the multiplier, at as many more bits as that leaves it.
    extra = min(pixels.bit_length() - 1, 32, 31 + shift)
    multiplier = (multiplier << extra) // pixels
    limits = np.iinfo(result.dtype)
    common: dict[str, int | Tensor | Constant] = {
        "input": source,
        "output": result,
        "pixels": pixels,
        "depth": depth,
        "input_zero": in_zero,
        "output_zero": out_zero,
        "output_min": int(limits.min),
        "output_max": int(limits.max),
        "multiplier": multiplier,
        "shift": shift - extra,
    }
    elem = _quantize.ELEM[source.dtype]
    plain = Launch(
        "mean",
        "mean_quant8",
        tiles=-(-batch * depth // 64),
        group_items=64,
        params=common | {"elements": batch * depth, "tile_items": 64},
        reads=(source,),
        writes=(result,),
        defines={"ELEM": elem},
    )
    plain_last = (Alternative("plain", (plain,)),)
    lanes = lanes_of(depth, target)
    if not lanes:
        return plain_last
    blocks = -(-depth // lanes)
    items = batch * blocks
    tile_items = items_a_tile(items, items, target)
    if target.group_items == 1:
        tile_items = max(tile_items, min(items, LEAST_BYTES // (pixels * lanes)))
    vector = Launch(
        "mean",
        "mean_vector_quant8",
        tiles=-(-items // tile_items),
        group_items=target.group_items,
        params=common | {"blocks": blocks, "items": items, "tile_items": tile_items},
        reads=(source,),
        writes=(result,),
        defines={"ELEM": elem, "LANES": lanes},
    )
    return (Alternative(f"vector {lanes}", (vector,)), *plain_last)

# SPDX-License-Identifier: Apache-2.0
"""ADD of two 8-bit tensors of one shape: plain, over vectors, and by floats where proven."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch, Target
from delegate.ops import _quantize
from delegate.ops._add_float import FloatSum, Rescaling, Sum, float_sum
from delegate.ops._convolution import items_a_tile
from delegate.ops._float import bits, lanes_of
from delegate.ops._geometry import shape_text
from delegate.ops._registry import lowers

LEFT_SHIFT = 20  # Source: tflite/kernels/add.cc, the 8-bit value
LEAST_BYTES = 4096  # a tile of one-item groups, so that claiming it costs less than its work


@lowers("ADD")
def lower_add(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Add two tensors that may differ in scale and zero point.

    Raises:
        Unsupported: broadcasting, types other than uint8 and int8.
    Source: tflite/kernels/add.cc PrepareGeneralQuantized, internal/reference/add.h
    """
    (left, right), _ = _quantize.inputs_of(node.inputs, 2)
    result = _quantize.output_of(node.outputs)
    if not left.dtype == right.dtype == result.dtype:
        raise Unsupported(f"{left.dtype} + {right.dtype} -> {result.dtype}: they must be equal")
    if not left.shape == right.shape == result.shape:
        raise Unsupported(
            f"broadcast {shape_text(left)} + {shape_text(right)}: only equal shapes are implemented"
        )
    left_scale, left_zero = _quantize.per_tensor(left)
    right_scale, right_zero = _quantize.per_tensor(right)
    scale, zero = _quantize.per_tensor(result)
    twice_widest = 2 * max(left_scale, right_scale)
    pairs = {
        "left": _quantize.quantize_multiplier(left_scale / twice_widest),
        "right": _quantize.quantize_multiplier(right_scale / twice_widest),
        "output": _quantize.quantize_multiplier(twice_widest / ((1 << LEFT_SHIFT) * scale)),
    }
    if pairs["output"][1] > 0:
        raise Unsupported(f"output scale {scale}: too small beside {twice_widest / 2}")
    low, high = _quantize.activation_range(
        result, node.options.get("fused_activation_function", "NONE")
    )
    elements = math.prod(result.shape)
    if elements == 0:
        raise Unsupported(f"shape {shape_text(result)}: it is empty")
    common: dict[str, int | Tensor | Constant] = {
        "left": left,
        "right": right,
        "output": result,
        "output_zero": zero,
        "output_min": low,
        "output_max": high,
        "elements": elements,
    }
    fixed = {
        "left_zero": left_zero,
        "right_zero": right_zero,
        **{f"{name}_multiplier": multiplier for name, (multiplier, _) in pairs.items()},
        **{f"{name}_shift": shift for name, (_, shift) in pairs.items()},
    }
    elem = _quantize.ELEM[result.dtype]
    tile_items = 64 if target.group_items > 1 else 1024
    plain = Launch(
        "add",
        "add_quant8",
        tiles=-(-elements // tile_items),
        group_items=target.group_items,
        params=common | fixed | {"tile_items": tile_items},
        reads=(left, right),
        writes=(result,),
        defines={"ELEM": elem},
    )

    def vector(lanes: int, floats: FloatSum | None) -> Alternative:
        items = -(-elements // lanes)
        tile_items = items_a_tile(items, items, target)
        if target.group_items == 1:
            tile_items = max(tile_items, min(items, LEAST_BYTES // lanes))
        launch = replace(
            plain,
            kernel="add_vector_quant8",
            tiles=-(-items // tile_items),
            params=common
            | (fixed if floats is None else {name: bits(v) for name, v in asdict(floats).items()})
            | {"items": items, "tile_items": tile_items},
            defines={"ELEM": elem, "LANES": lanes, "IS_FLOAT": int(floats is not None)},
        )
        return Alternative(f"{'vector' if floats is None else 'float'} {lanes}", (launch,))

    plain_last = (Alternative("plain", (plain,)),)
    lanes = lanes_of(elements, target)
    if not lanes:
        return plain_last
    floats = float_sum(
        Sum(
            zeros=(left_zero, right_zero, zero),
            scales=(left_scale, right_scale, scale),
            rescaling=(
                Rescaling(*pairs["left"]),
                Rescaling(*pairs["right"]),
                Rescaling(*pairs["output"]),
            ),
            left_shift=LEFT_SHIFT,
            clamp=(low, high),
            dtype=result.dtype,
        )
    )
    both = (vector(lanes, floats), vector(lanes, None)) if floats else (vector(lanes, None),)
    return (*both, *plain_last)

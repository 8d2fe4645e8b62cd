# SPDX-License-Identifier: Apache-2.0
"""ADD of two 8-bit tensors of one shape."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative, Launch, Target
from delegate.ops import _quantize
from delegate.ops._geometry import shape_text
from delegate.ops._registry import lowers

LEFT_SHIFT = 20  # Source: tflite/kernels/add.cc, the 8-bit value


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
    tile_items = 64 if target.group_items > 1 else 1024
    launch = Launch(
        "add",
        "add_quant8",
        tiles=-(-elements // tile_items),
        group_items=target.group_items,
        params={
            "left": left,
            "right": right,
            "output": result,
            "left_zero": left_zero,
            "right_zero": right_zero,
            "output_zero": zero,
            **{f"{name}_multiplier": multiplier for name, (multiplier, _) in pairs.items()},
            **{f"{name}_shift": shift for name, (_, shift) in pairs.items()},
            "output_min": low,
            "output_max": high,
            "elements": elements,
            "tile_items": tile_items,
        },
        reads=(left, right),
        writes=(result,),
        defines={"ELEM": _quantize.ELEM[result.dtype]},
    )
    return (Alternative("plain", (launch,)),)

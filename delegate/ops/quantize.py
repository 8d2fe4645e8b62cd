# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE from 8 bit to 8 bit: a requantisation, as a table of 256 bytes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative, Constant, Launch, Target
from delegate.ops import _quantize
from delegate.ops._geometry import shape_text
from delegate.ops._registry import lowers


@lowers("QUANTIZE")
def lower_quantize(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Bring 8-bit values to another scale, zero point or signedness.

    Raises:
        Unsupported: types other than uint8 and int8.
    Source: tflite/kernels/quantize.cc, internal/reference/requantize.h
    """
    (source,), _ = _quantize.inputs_of(node.inputs, 1)
    result = _quantize.output_of(node.outputs)
    in_scale, in_zero = _quantize.per_tensor(source)
    out_scale, out_zero = _quantize.per_tensor(result)
    if source.shape != result.shape:
        raise Unsupported(f"{shape_text(source)} -> {shape_text(result)}: the shape must stay")
    if 0 in source.shape:
        raise Unsupported(f"shape {shape_text(source)}: it is empty")
    multiplier, shift = _quantize.quantize_multiplier(in_scale / out_scale)
    if shift > 30:
        raise Unsupported(f"a scale ratio of 2^{shift}: more than 2^30")
    limits = np.iinfo(result.dtype)

    def table() -> NDArray[np.generic]:
        # Row i belongs to the byte i, whichever sign it has.
        values = np.arange(256, dtype=np.uint8).view(source.dtype)
        answers = [
            _quantize.multiply_by_quantized_multiplier(int(v) - in_zero, multiplier, shift)
            for v in values
        ]
        clamped = np.clip(np.array(answers) + out_zero, limits.min, limits.max)
        return np.asarray(clamped, result.dtype)

    elements = math.prod(source.shape)
    tile_items = 64 if target.group_items > 1 else 4096
    launch = Launch(
        "quantize",
        "quantize_quant8",
        tiles=-(-elements // tile_items),
        group_items=target.group_items,
        params={
            "input": source,
            "output": result,
            "table": Constant(256, table),
            "elements": elements,
            "tile_items": tile_items,
        },
        reads=(source,),
        writes=(result,),
    )
    return (Alternative("plain", (launch,)),)

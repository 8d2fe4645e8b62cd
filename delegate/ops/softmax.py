# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX over the last axis, 8 bit, in the reference kernel's fixed point."""

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

# Integer bits of the scaled distance that exp() takes, of 31. Source: reference/softmax.h
_DISTANCE_BITS = 5


@lowers("SOFTMAX")
def lower_softmax(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Turn each row's values into shares of one.

    Shapes:
        input (..., c) -> output (..., c), rows of c
    Raises:
        Unsupported: types other than uint8 and int8, an output scale other than 1/256.
    Source: tflite/kernels/internal/reference/softmax.h, quantization_util.cc
    PreprocessSoftmaxScaling; TFLite's optimised kernels use floats and differ in 1 of 10^5 values
    """
    (source,), _ = _quantize.inputs_of(node.inputs, 1)
    result = _quantize.output_of(node.outputs)
    if source.dtype != result.dtype:
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: they must be equal")
    if source.shape != result.shape:
        raise Unsupported(f"{shape_text(source)} -> {shape_text(result)}: the shape must stay")
    if not source.shape:
        raise Unsupported(f"shape {shape_text(source)}: at least rank 1 is needed")
    if 0 in source.shape:
        raise Unsupported(f"shape {shape_text(source)}: it is empty")
    in_scale, _ = _quantize.per_tensor(source)
    out_scale, out_zero = _quantize.per_tensor(result)
    limits = np.iinfo(result.dtype)
    if out_scale != 1 / 256 or out_zero != limits.min:
        raise Unsupported(
            f"output scale {out_scale}, zero point {out_zero}: TFLite's is 1/256, {limits.min}"
        )
    beta = node.options.get("beta", 0.0)
    if not isinstance(beta, float | int):
        raise Unsupported(f"beta is {beta!r}: a number is needed")
    real = beta * in_scale * (1 << (31 - _DISTANCE_BITS))
    if not 1 < real < math.inf:
        raise Unsupported(f"beta {beta} with scale {in_scale}: out of range")
    multiplier, left_shift = _quantize.quantize_multiplier(min(real, float((1 << 31) - 1)))

    def table() -> NDArray[np.int32]:
        # exp by the distance below the row's maximum; then the same as the sum takes it.
        farthest = ((1 << _DISTANCE_BITS) - 1 << (31 - _DISTANCE_BITS)) >> left_shift
        entries = [
            _exp_on_negative_values(
                _quantize.rounding_doubling_high_mul(-distance << left_shift, multiplier)
            )
            if distance <= farthest
            else 0
            for distance in range(256)
        ]
        sums = [_quantize.rounding_divide_by_pot(entry, 12) for entry in entries]
        return np.array(entries + sums, np.int32)

    depth = source.shape[-1]
    rows = math.prod(source.shape) // depth
    launch = Launch(
        "softmax",
        "softmax_quant8",
        tiles=-(-rows // target.group_items),
        group_items=target.group_items,
        params={
            "input": source,
            "output": result,
            "table": Constant(2048, table),
            "output_min": int(limits.min),
            "output_max": int(limits.max),
            "rows": rows,
            "depth": depth,
            "tile_items": target.group_items,
        },
        reads=(source,),
        writes=(result,),
        defines={"ELEM": _quantize.ELEM[source.dtype]},
    )
    return (Alternative("plain", (launch,)),)


def _exp_on_negative_values(a: int) -> int:
    """Return exp(a), a <= 0 with 5 integer bits, in 31 fractional bits.

    Source: gemmlowp fixedpoint.h exp_on_negative_values and
    exp_on_interval_between_negative_one_quarter_and_0_excl, with their constants
    """
    if a == 0:
        return (1 << 31) - 1
    high_mul, divide = _quantize.rounding_doubling_high_mul, _quantize.rounding_divide_by_pot
    quarter = 1 << (31 - _DISTANCE_BITS - 2)
    below_quarter = (a & (quarter - 1)) - quarter
    # Taylor's series around -1/8.
    x = (below_quarter << _DISTANCE_BITS) + (1 << 28)
    x2 = high_mul(x, x)
    x3, x4 = high_mul(x2, x), high_mul(x2, x2)
    tail = divide(high_mul(divide(x4, 2) + x3, 715827883) + x2, 1)  # 1/3
    result = 1895147668 + high_mul(1895147668, x + tail)  # exp(-1/8)
    # exp(-1/4), exp(-1/2), exp(-1), ... for each bit of what is left.
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for bit, factor in enumerate(factors):
        if (below_quarter - a) & (quarter << bit):
            result = high_mul(result, factor)
    return result

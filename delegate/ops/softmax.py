# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX over the last axis: 8 bit in the reference kernel's fixed point, and float32.

A row a work-item, or a row a work-group.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch, Target
from delegate.ops import _float, _quantize
from delegate.ops._geometry import shape_text
from delegate.ops._registry import lowers

# Integer bits of the scaled distance that exp() takes, of 31. Source: reference/softmax.h
_DISTANCE_BITS = 5


# From so many values on, a row is worth a work-group: below, making its table takes longer.
_LEAST_DEPTH = 32


@lowers("SOFTMAX")
def lower_softmax(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Turn each row's values into shares of one.

    Shapes:
        input (..., c) -> output (..., c), rows of c
    Raises:
        Unsupported: types other than uint8, int8 and float32, an 8-bit output's scale other than
            1/256.
    Source: tflite/kernels/internal/reference/softmax.h, quantization_util.cc
    PreprocessSoftmaxScaling; TFLite's optimised kernels use floats and differ in 1 of 10^5 values.
    Floats are within (c + 8) * 2^-23 of the reference's value, and 2e-38: both round c additions,
    and exp() here is off by up to 2^-22.
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
    beta = node.options.get("beta", 0.0)
    if not isinstance(beta, float | int):
        raise Unsupported(f"beta is {beta!r}: a number is needed")
    depth = source.shape[-1]
    rows = math.prod(source.shape) // depth
    common: dict[str, int | Tensor | Constant] = {
        "input": source,
        "output": result,
        "rows": rows,
        "depth": depth,
    }
    defines: dict[str, int | str] = {}
    if source.dtype == "float32":
        if not 0 <= beta < math.inf:
            raise Unsupported(f"beta {beta}: it must be finite and not negative")
        family, table_ints = "float", 0
        common["beta"] = _float.bits(beta)
    else:
        family, table_ints = "quant8", 256
        common |= _quant8_params(source, result, beta)
        defines["ELEM"] = _quantize.ELEM[source.dtype]
    plain = Launch(
        "softmax",
        f"softmax_{family}",
        tiles=-(-rows // target.group_items),
        group_items=target.group_items,
        params=common | {"tile_items": target.group_items},
        reads=(source,),
        writes=(result,),
        defines=defines,
    )
    plain_last = (Alternative("plain", (plain,)),)
    lanes = _float.lanes_of(depth, target, 16 if family == "float" else 8)
    if depth < _LEAST_DEPTH or lanes == 0:
        return plain_last
    defines = defines | {"LANES": lanes, "ALONE": int(target.group_items == 1)}
    if target.group_items > 1:
        defines["SCRATCH_INTS"] = table_ints + target.group_items
    row = Launch(
        "softmax",
        f"softmax_row_{family}",
        tiles=rows,
        group_items=target.group_items,
        params=common,
        reads=(source,),
        writes=(result,),
        defines=defines,
    )
    return (Alternative(f"row {lanes}", (row,)), *plain_last)


def _quant8_params(
    source: Tensor, result: Tensor, beta: float
) -> dict[str, int | Tensor | Constant]:
    """Return the table of exponentials and the output's range."""
    in_scale, _ = _quantize.per_tensor(source)
    out_scale, out_zero = _quantize.per_tensor(result)
    limits = np.iinfo(result.dtype)
    if out_scale != 1 / 256 or out_zero != limits.min:
        raise Unsupported(
            f"output scale {out_scale}, zero point {out_zero}: TFLite's is 1/256, {limits.min}"
        )
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

    return {
        "table": Constant(2048, table),
        "output_min": int(limits.min),
        "output_max": int(limits.max),
    }


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

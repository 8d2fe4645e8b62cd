# SPDX-License-Identifier: Apache-2.0
"""LOG_SOFTMAX over the last axis: floats, and 8 bits in the reference's fixed point."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import one_to_one
from delegate.ops._launches.rows import Rows, require_rows
from delegate.ops._launches.tiles import most_rounds
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import fixed_point
from delegate.ops._registry import lowers
from delegate.target import Target

_MOST_DEPTH = most_rounds(3, 10_000)
_LEAST_ELEMENTS = 1024  # of a tile: an exponential costs more than other functions
_MOST_DEPTH_8 = 4095  # sums of 12 integer bits hold so many ones


@lowers("LOG_SOFTMAX")
def lower_log_softmax(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the logarithms of each row's shares of one.

    Shapes:
        input (..., c) -> output (..., c), rows of c
    Raises:
        Unsupported: types other than uint8, int8 and float32, another 8-bit output scale or zero
            point than TFLite's, longer rows.
    Source: tflite/kernels/activations.cc LogSoftmaxPrepare, internal/reference/log_softmax.h,
    integer_ops/log_softmax.h LogSoftmax
    """
    source, result = one_to_one(node, ("float32", *quantized.QUANT8))
    require_rows(source, _MOST_DEPTH if source.dtype == "float32" else _MOST_DEPTH_8)
    rows = Rows(source, result, "float")
    if source.dtype != "float32":
        numbers = _quant8_params(source, result)
        rows = Rows(source, result, "quant8", numbers, {"ELEM": ELEM[source.dtype]})
    return rows.plain("log_softmax", _LEAST_ELEMENTS, target)


def _quant8_params(source: Tensor, result: Tensor) -> Params:
    """Return the distances' tables, and how far from a row's maximum they reach."""
    in_scale, _ = quantized.per_tensor(source)
    limits = np.iinfo(result.dtype)
    quantized.require_fixed_output(result, 16 / 256, int(limits.max))
    real = in_scale * (1 << (31 - fixed_point.DISTANCE_BITS))
    if not 2 < real < math.inf:
        raise Unsupported(f"scale {in_scale}: out of range")
    multiplier, left_shift = fixed_point.quantize_multiplier(min(real, float((1 << 31) - 1)))
    # The greatest distance that stays within the integer bits, and the way back to distances.
    radius = fixed_point.farthest_distance(left_shift)
    back, back_shift = fixed_point.quantize_multiplier(2.0 ** (31 - left_shift) / multiplier)

    def table() -> NDArray[np.int32]:
        # Scaled distances below the row's maximum; then their exponentials as the sum takes them.
        reached = np.arange(min(radius, 255) + 1)
        scaled = fixed_point.rounding_doubling_high_mul(-reached << left_shift, multiplier)
        exponentials = fixed_point.exp_on_negative_values(scaled)
        entries = np.zeros((2, 256), np.int32)
        entries[0, : reached.size] = scaled
        entries[1, : reached.size] = fixed_point.rounding_divide_by_pot(exponentials, 12)
        return entries

    return {
        "table": Constant(2048, table),
        "farthest": radius,
        "back_multiplier": back,
        "back_shift": back_shift,
        "output_min": int(limits.min),
        "output_max": int(limits.max),
    }

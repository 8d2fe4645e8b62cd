# SPDX-License-Identifier: Apache-2.0
"""HARD_SWISH: floats, and 8 bits by a table of the reference's 16-bit fixed point."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks import quantized
from delegate.ops._checks.node import one_to_one
from delegate.ops._launches.lookup import lookup
from delegate.ops._numbers import fixed_point
from delegate.ops._registry import lowers
from delegate.ops.activation import float_launch
from delegate.target import Target

_Integers = NDArray[np.int64]


@lowers("HARD_SWISH")
def lower_hard_swish(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute x * min(max(x + 3, 0), 6) / 6.

    Raises:
        Unsupported: types other than uint8, int8 and float32, an output scale too small beside the
            input's.
    Source: tflite/kernels/activations.cc HardSwishPrepare, reference/hard_swish.h
    """
    source, result = one_to_one(node, ("float32", *quantized.QUANT8))
    if source.dtype == "float32":
        return float_launch("hard_swish", source, result, target)
    in_scale, in_zero = quantized.per_tensor(source)
    out_scale, out_zero = quantized.per_tensor(result)
    with np.errstate(over="ignore", under="ignore"):
        hires = np.float32(1 / 128) * np.float32(in_scale)
        out_real = float(hires / np.float32(out_scale))
        ramp_real = float(hires / np.float32(3 / 32768))
    out_multiplier, out_shift = fixed_point.quantize_multiplier(out_real)
    ramp_multiplier, ramp_shift = fixed_point.quantize_multiplier(ramp_real)
    if out_shift > 0:
        raise Unsupported(f"output scale {out_scale}: below 1/128 of the input's, {in_scale}")
    if ramp_shift > 30:
        raise Unsupported(f"input scale {in_scale}: too large")

    def answers(values: _Integers) -> _Integers:
        lifted = (values - in_zero) << 7
        unshifted = _high_mul16(lifted, _to_16_bits(out_multiplier))
        ramp = lifted
        if ramp_shift > 0:
            ramp = _shift_left(ramp, ramp_shift - 1)
        ramp = _high_mul16(ramp, _to_16_bits(ramp_multiplier))
        if ramp_shift > 0:
            ramp = _shift_left(ramp, 1)
        if ramp_shift < 0:
            ramp = _divide_by_pot16(ramp, -ramp_shift)
        share = (ramp + (1 << 15)) >> 1  # of one, in 15 bits
        product = share * unshifted
        # Truncated toward zero, which cancels the bias of the roundings before.
        whole = np.sign(product) * (np.abs(product) >> 15)
        return fixed_point.clamped(_divide_by_pot16(whole, -out_shift) + out_zero, result.dtype)

    return lookup(source, result, answers, target)


def _to_16_bits(multiplier: int) -> int:
    """Source: tflite/kernels/internal/common.h DownScaleInt32ToInt16Multiplier"""
    return min((multiplier + (1 << 15)) >> 16, (1 << 15) - 1)


def _high_mul16(values: _Integers, multiplier: int) -> _Integers:
    return fixed_point.rounding_doubling_high_mul(values, multiplier, bits=16)


def _shift_left(values: _Integers, amount: int) -> _Integers:
    shifted: _Integers = np.clip(values << amount, -(1 << 15), (1 << 15) - 1)
    return shifted


def _divide_by_pot16(values: _Integers, exponent: int) -> _Integers:
    """Return values / 2**exponent; beyond 15 bits the mask is an int16 that wraps, as there."""
    mask = int(np.int64(((1 << exponent) - 1) & 0xFFFF).astype(np.int16))
    threshold = (mask >> 1) + (values < 0)
    rounded: _Integers = (values >> exponent) + ((values & mask) > threshold)
    return rounded

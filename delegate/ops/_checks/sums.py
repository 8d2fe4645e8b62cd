# SPDX-License-Identifier: Apache-2.0
"""The numbers of a quantised ADD or SUB, from its tensors."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.ops._checks.activations import quantized_bounds
from delegate.ops._checks.quantized import QUANT, per_tensor
from delegate.ops._numbers.fixed_point import quantize_multiplier
from delegate.ops._numbers.float_sum import LEFT_SHIFT, LEFT_SHIFT_16, Rescaling, Sum


def sum_of(left: Tensor, right: Tensor, result: Tensor, activation: object) -> Sum:
    """Return the numbers of an ADD of two tensors of 8 or 16 bits.

    Raises:
        Unsupported: quantisation that is missing, an output scale too small for its inputs', an
            activation that is no clamp.
    Source: tflite/kernels/add.cc PrepareGeneralQuantized
    """
    (left_scale, left_zero), (right_scale, right_zero), (scale, zero) = (
        per_tensor(tensor, QUANT) for tensor in (left, right, result)
    )
    lift = LEFT_SHIFT_16 if left.dtype == "int16" else LEFT_SHIFT
    twice_widest = 2 * max(left_scale, right_scale)
    reals = (
        left_scale / twice_widest,
        right_scale / twice_widest,
        twice_widest / ((1 << lift) * scale),
    )
    by_left, by_right, by_sum = (Rescaling(*quantize_multiplier(real)) for real in reals)
    if by_sum.shift > 0:
        raise Unsupported(f"output scale {scale}: too small beside {twice_widest / 2}")
    return Sum(
        zeros=(left_zero, right_zero, zero),
        scales=(left_scale, right_scale, scale),
        rescaling=(by_left, by_right, by_sum),
        left_shift=lift,
        clamp=quantized_bounds(result, activation, QUANT),
        dtype=result.dtype,
    )

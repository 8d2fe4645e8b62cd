# SPDX-License-Identifier: Apache-2.0
"""The numbers of a quantised ADD, from its tensors."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import quantized_bounds
from delegate.ops._numbers import fixed_point
from delegate.ops._numbers.float_sum import LEFT_SHIFT, Rescaling, Sum


def sum_of(left: Tensor, right: Tensor, result: Tensor, activation: object) -> Sum:
    """Return the numbers of an ADD of two 8-bit tensors.

    Raises:
        Unsupported: quantisation that is missing, an output scale too small for its inputs', an
            activation that is no clamp.
    Source: tflite/kernels/add.cc PrepareGeneralQuantized
    """
    (left_scale, left_zero), (right_scale, right_zero), (scale, zero) = (
        quantized.per_tensor(tensor) for tensor in (left, right, result)
    )
    twice_widest = 2 * max(left_scale, right_scale)
    rescaling = tuple(
        Rescaling(*fixed_point.quantize_multiplier(real))
        for real in (
            left_scale / twice_widest,
            right_scale / twice_widest,
            twice_widest / ((1 << LEFT_SHIFT) * scale),
        )
    )
    if rescaling[2].shift > 0:
        raise Unsupported(f"output scale {scale}: too small beside {twice_widest / 2}")
    return Sum(
        zeros=(left_zero, right_zero, zero),
        scales=(left_scale, right_scale, scale),
        rescaling=(rescaling[0], rescaling[1], rescaling[2]),
        left_shift=LEFT_SHIFT,
        clamp=quantized_bounds(result, activation),
        dtype=result.dtype,
    )

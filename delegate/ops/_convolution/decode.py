# SPDX-License-Identifier: Apache-2.0
"""A convolution node, checked, as the record its kernels see."""

from __future__ import annotations

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Constant
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import float_bounds, quantized_bounds
from delegate.ops._convolution.records import (
    AnyConvolution,
    Convolution,
    FloatConvolution,
    Quant8Convolution,
    Quant16Convolution,
)
from delegate.ops._launches.wide_sums import require_16x8, wide_sums
from delegate.target import Rules


def require_types(source: Tensor, weights: Tensor, result: Tensor) -> None:
    """Check the types of a convolution-like node: all 8 bit, int16 with int8 weights, or float32.

    Raises:
        Unsupported: other types, float weights that are not finite.
    """
    if source.dtype == result.dtype == "float32":
        if weights.dtype != "float32":
            raise Unsupported(f"hybrid: {weights.dtype} weights with float32 activations")
        # Kernels multiply weights by zeros where a window leaves the input, which TFLite skips, and
        # where vectors are filled up.
        if weights.data is not None and not np.isfinite(weights.data).all():
            raise Unsupported("a weight is not finite: times a padding zero it is not zero")
    elif source.dtype == result.dtype == "int16":
        require_16x8(source, weights, result)
    else:
        require_quant8(source, weights, result)


def require_quant8(source: Tensor, weights: Tensor, result: Tensor) -> None:
    """Check the types of a convolution-like node of 8 bits.

    Raises:
        Unsupported: activations that are not 8 bit or differ, weights of another type.
    """
    if source.dtype not in quantized.QUANT8 or source.dtype != result.dtype:
        raise Unsupported(
            f"{source.dtype} in, {result.dtype} out: only uint8 or int8 in both are implemented"
        )
    if weights.dtype != source.dtype:
        raise Unsupported(f"{weights.dtype} weights with {source.dtype} activations")


def float_bias(bias: Tensor | None, channels: int) -> Constant:
    """Return the bias as `channels` floats; zeros where there is none.

    Raises:
        Unsupported: a bias that is computed, of another type or length.
    """
    if bias is None:
        return Constant(4 * channels, lambda: np.zeros(channels, np.float32))
    values = bias.data
    if values is None:
        raise Unsupported("the bias is not a constant")
    if bias.dtype != "float32" or bias.shape != (channels,):
        raise Unsupported(f"bias {bias.dtype} of {bias.shape}: float32 of ({channels},) is needed")
    return Constant(4 * channels, lambda: values)


def with_arithmetic(
    geometry: Convolution,
    weights: Tensor,
    bias: Tensor | None,
    activation: object,
    rules: Rules,
    channel_axis: int = 0,
) -> AnyConvolution:
    """Return the record of a node whose types and shapes are checked.

    `channel_axis`: of the weights, that of the output channels.

    Raises:
        Unsupported: a bias, scales or an activation that do not fit.
    """
    source, result, out_c = geometry.source, geometry.result, geometry.out_c
    if source.dtype == "float32":
        return FloatConvolution(
            **geometry.fields(),
            bias=float_bias(bias, out_c),
            clamp=float_bounds(activation),
        )
    if source.dtype == "int16":
        return Quant16Convolution(
            **geometry.fields(),
            sums=wide_sums(source, weights, bias, result, channel_axis, rules),
            clamp=quantized_bounds(result, activation, quantized.QUANT),
        )
    return Quant8Convolution(
        **geometry.fields(),
        weight_zero=quantized.weight_scales(weights, channel_axis)[1],
        bias=quantized.int32_bias(bias, out_c),
        scaling=quantized.convolution_multipliers(
            source, weights, result, channel_axis, per_channel=source.dtype == "int8"
        ),
        clamp=quantized_bounds(result, activation),
        input_zero=quantized.per_tensor(source)[1],
        output_zero=quantized.per_tensor(result)[1],
    )

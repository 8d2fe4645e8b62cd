# SPDX-License-Identifier: Apache-2.0
"""A convolution node, checked, as the record its kernels see."""

from __future__ import annotations

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Constant
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import activation_of, float_bounds, quantized_bounds
from delegate.ops._checks.node import inputs_of, output_of, require_constant, shape_text
from delegate.ops._checks.windows import window
from delegate.ops._convolution.records import (
    AnyConvolution,
    Convolution,
    FloatConvolution,
    Quant8Convolution,
    Quant16Convolution,
)
from delegate.ops._launches.wide_sums import require_16x8, wide_sums
from delegate.target import Rules


def conv_2d(node: Node, rules: Rules) -> AnyConvolution:
    """Return a CONV_2D as its kernels see it.

    Shapes:
        input (n, h, w, g * i), weights (o, kh, kw, i), bias (o,) -> output (n, oh, ow, o)
    Raises:
        Unsupported: computed weights, channels that make no groups, other types.
    """
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    require_types(source, weights, result)
    if len(weights.shape) != 4:
        raise Unsupported(f"weights {shape_text(weights)}: rank 4 (OHWI) is needed")
    out_c, kernel_h, kernel_w, in_c = weights.shape
    area = window(source, result, kernel_h, kernel_w, node.options)
    groups = _groups(source, weights)
    if result.shape[3] != out_c:
        raise Unsupported(f"{out_c} channels of weights, {result.shape[3]} of output")
    values = require_constant(weights, "weights").reshape(out_c, -1, in_c)
    geometry = Convolution(
        source=source,
        result=result,
        area=area,
        batch=source.shape[0],
        weights=values,
        groups=groups,
    )
    return with_arithmetic(geometry, weights, bias, activation_of(node), rules)


def depthwise_conv_2d(node: Node, rules: Rules) -> AnyConvolution:
    """Return a DEPTHWISE_CONV_2D as its kernels see it.

    Shapes:
        input (n, h, w, i), weights (1, kh, kw, i * m), bias (i * m,) -> output (n, oh, ow, i * m)
    Raises:
        Unsupported: computed weights, channels that are no multiple, other types.
    """
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    require_types(source, weights, result)
    if len(weights.shape) != 4 or weights.shape[0] != 1:
        raise Unsupported(f"weights {shape_text(weights)}: 1HWO is needed")
    _, kernel_h, kernel_w, out_c = weights.shape
    area = window(source, result, kernel_h, kernel_w, node.options)
    in_c = source.shape[3]
    if result.shape[3] != out_c or out_c % in_c:
        raise Unsupported(
            f"{in_c} input, {out_c} weight and {result.shape[3]} output channels: "
            "the last two must be equal and a multiple of the first"
        )
    if source.dtype == "int16" and bias is not None and bias.dtype == "int32":
        raise Unsupported("bias int32 with int16 activations: TFLite takes int64 here")
    values = require_constant(weights, "weights").reshape(-1, out_c).T[:, :, None]
    geometry = Convolution(
        source=source,
        result=result,
        area=area,
        batch=source.shape[0],
        weights=values,
        groups=in_c,
    )
    return with_arithmetic(geometry, weights, bias, activation_of(node), rules, channel_axis=3)


def require_types(source: Tensor, weights: Tensor, result: Tensor) -> None:
    """Check the types of a convolution-like node: all 8 bit, int16 with int8 weights, or float32.

    Raises:
        Unsupported: other types.
    """
    if source.dtype == result.dtype == "float32":
        _require_float_weights(weights)
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


def _require_float_weights(weights: Tensor) -> None:
    """Check the weights of a node whose input and output are float32.

    Raises:
        Unsupported: weights of another type, or not finite: kernels multiply them by zeros where a
            window leaves the input, which TFLite skips, and where vectors are filled up.
    """
    if weights.dtype != "float32":
        raise Unsupported(f"hybrid: {weights.dtype} weights with float32 activations")
    if weights.data is not None and not np.isfinite(weights.data).all():
        raise Unsupported("a weight is not finite: times a padding zero it is not zero")


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


def _groups(source: Tensor, weights: Tensor) -> int:
    """Return how many groups of channels a CONV_2D has.

    Raises:
        Unsupported: channels that do not divide.
    Source: tflite/kernels/conv.cc Prepare
    """
    out_c, _, _, in_c = weights.shape
    channels = source.shape[3]
    if in_c < 1 or channels % in_c or out_c % (channels // in_c):
        raise Unsupported(
            f"groups: {in_c} input channels in the weights, {channels} in the input, "
            f"{out_c} in the output"
        )
    return channels // in_c

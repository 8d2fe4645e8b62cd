# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and DEPTHWISE_CONV_2D of 8 bits, of int16 with int8 weights and of float32.

And conv_2d_add: a CONV_2D and the ADD after it by one kernel; by passes/fuse_add.py.
"""

from __future__ import annotations

from dataclasses import replace

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative
from delegate.ops._checks.activations import activation_of, float_bounds
from delegate.ops._checks.node import inputs_of, output_of, require_constant, shape_text
from delegate.ops._checks.windows import window
from delegate.ops._convolution import variants
from delegate.ops._convolution.records import (
    AnyConvolution,
    Convolution,
    FloatConvolution,
    Quant8Convolution,
    Residual,
    require_quant8,
    require_types,
    with_arithmetic,
)
from delegate.ops._numbers import bits
from delegate.ops._numbers.float_sum import float_sum
from delegate.ops._registry import lowers
from delegate.ops.add import sum_of
from delegate.target import Rules, Target


@lowers("CONV_2D")
def lower_conv_2d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve each group of an NHWC tensor's channels with constant OHWI weights of its own.

    Shapes:
        input (n, h, w, g * i), weights (o, kh, kw, i), bias (o,) -> output (n, oh, ow, o)
    Raises:
        Unsupported: computed weights, channels that make no groups, other types.
    Source: tflite/kernels/internal/reference/conv.h, integer_ops/conv.h; sums of floats are in
    another order, so equal but for round-off
    """
    return variants.conv_2d(_decoded(node, target.rules), target)


@lowers("DEPTHWISE_CONV_2D")
def lower_depthwise_conv_2d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve each channel of an NHWC tensor with constant 1HWO weights of its own.

    Shapes:
        input (n, h, w, i), weights (1, kh, kw, i * m), bias (i * m,) -> output (n, oh, ow, i * m)
    Raises:
        Unsupported: computed weights, channels that are no multiple, other types.
    Source: tflite/kernels/internal/reference/depthwiseconv_uint8.h, depthwiseconv_float.h,
    integer_ops/depthwise_conv.h; the multiplier is the shapes' quotient, as in
    tflite/kernels/depthwise_conv.cc; sums of floats are in another order, so equal but for
    round-off
    """
    return variants.depthwise_conv_2d(_decoded(node, target.rules), target)


@lowers("conv_2d_add")
def lower_conv_2d_add(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve the first input and add the last one to the result.

    Shapes:
        input (n, h, w, i), weights (o, kh, kw, i), bias (o,) or None, other (n, oh, ow, o) ->
        output (n, oh, ow, o); `inner` is the convolution's own result
    Raises:
        Unsupported: a node that CONV_2D or ADD does not take, int16, a sum of integers that no
            floats equal.
    """
    *own, other = node.inputs
    result = output_of(node.outputs)
    (between,) = node.inner
    if other is None or not other.shape == between.shape == result.shape:
        raise Unsupported("the sum of tensors of several shapes")
    if not other.dtype == between.dtype == result.dtype:
        raise Unsupported("the sum of tensors of several types")
    (source, weights), _ = inputs_of(own, 2, 1)
    if source.dtype != "float32":
        require_quant8(source, weights, between)
    conv = _decoded(replace(node, inputs=tuple(own), outputs=node.inner), target.rules)
    assert isinstance(conv, Quant8Convolution | FloatConvolution)
    if conv.groups > 1:
        raise Unsupported(
            f"groups: {conv.group_in_c} input channels in the weights, {conv.in_c} in the input"
        )
    activation = node.options["sum_activation_function"]
    if isinstance(conv, FloatConvolution):
        low, high = float_bounds(activation).values()
        numbers = {"sum_min": low, "sum_max": high}
    else:
        total = sum_of(between, other, result, activation)
        floats = float_sum(total)
        if floats is None:
            raise Unsupported("no floats were found that equal this sum")
        numbers = {
            "value_factor": bits(floats.left_factor),
            "residual_factor": bits(floats.right_factor),
            "sum_offset": bits(floats.offset),
            "sum_zero": total.zeros[2],
            "sum_min": total.clamp[0],
            "sum_max": total.clamp[1],
        }
    return variants.conv_2d(replace(conv, residual=Residual(other, result, numbers)), target)


def _decoded(node: Node, rules: Rules) -> AnyConvolution:
    """Return a convolution as its kernels see it, checked.

    Raises:
        Unsupported: see `lower_conv_2d` and `lower_depthwise_conv_2d`.
    """
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    require_types(source, weights, result)
    is_depthwise = node.op == "DEPTHWISE_CONV_2D"
    if len(weights.shape) != 4 or (is_depthwise and weights.shape[0] != 1):
        wanted = "1HWO" if is_depthwise else "rank 4 (OHWI)"
        raise Unsupported(f"weights {shape_text(weights)}: {wanted} is needed")
    kernel_h, kernel_w = weights.shape[1:3]
    area = window(source, result, kernel_h, kernel_w, node.options)
    out_c = weights.shape[3 if is_depthwise else 0]
    groups = _channels(source, bias, out_c, result) if is_depthwise else _groups(source, weights)
    if result.shape[3] != out_c:
        raise Unsupported(f"{out_c} channels of weights, {result.shape[3]} of output")
    values = require_constant(weights, "weights")
    if is_depthwise:
        values = values.reshape(-1, out_c).T[:, :, None]
    else:
        values = values.reshape(out_c, kernel_h * kernel_w, weights.shape[3])
    batch, axis = source.shape[0], 3 if is_depthwise else 0
    geometry = Convolution(
        source=source, result=result, area=area, batch=batch, weights=values, groups=groups
    )
    return with_arithmetic(geometry, weights, bias, activation_of(node), rules, axis)


def _channels(source: Tensor, bias: Tensor | None, out_c: int, result: Tensor) -> int:
    """Return how many groups of channels a DEPTHWISE_CONV_2D has: one for each of the input.

    Raises:
        Unsupported: channels that are no multiple, a bias of int32 with int16.
    """
    in_c = source.shape[3]
    if result.shape[3] != out_c or out_c % in_c:
        raise Unsupported(
            f"{in_c} input, {out_c} weight and {result.shape[3]} output channels: "
            "the last two must be equal and a multiple of the first"
        )
    if source.dtype == "int16" and bias is not None and bias.dtype == "int32":
        raise Unsupported("bias int32 with int16 activations: TFLite takes int64 here")
    return in_c


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

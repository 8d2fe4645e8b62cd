# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and DEPTHWISE_CONV_2D: 8 bits, int16 with int8 weights, float32, and hybrid.

Also conv_2d_add, by passes/fuse_add.py: a CONV_2D and the ADD after it in one kernel.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import EXACT, PRODUCTS
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import activation_of, float_bounds
from delegate.ops._checks.node import inputs_of, output_of, require_constant, shape_text
from delegate.ops._checks.windows import window
from delegate.ops._convolution import hybrid, hybrid_pictures, variants
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


@lowers("CONV_2D", floats=PRODUCTS)
def lower_conv_2d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve each channel group of an NHWC tensor with its own constant OHWI weights.

    Shapes:
        input (n, h, w, g * i), weights (o, kh, kw, i), bias (o,) -> output (n, oh, ow, o)
    A hybrid node quantises its float images first: see `_hybrid`.

    Raises:
        Unsupported: non-constant weights, channels that form no groups, other types.
    """
    if hybrid.is_hybrid(node):
        return hybrid_pictures.conv_2d(_hybrid(node, target.rules), target)
    return variants.conv_2d(_parse(node, target.rules), target)


@lowers("DEPTHWISE_CONV_2D", floats=PRODUCTS)
def lower_depthwise_conv_2d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve each channel of an NHWC tensor with its own constant 1HWO weights.

    Shapes:
        input (n, h, w, i), weights (1, kh, kw, i * m), bias (i * m,) -> output (n, oh, ow, i * m)
    Raises:
        Unsupported: non-constant weights, output channels that are no multiple of the input's,
            other types.
    Source: tflite/kernels/internal/reference/depthwiseconv_uint8.h, depthwiseconv_float.h,
    integer_ops/depthwise_conv.h; the depth multiplier follows from the shapes, as in
    tflite/kernels/depthwise_conv.cc; float sums are added in another order, so they differ by
    round-off
    """
    if hybrid.is_hybrid(node):
        return hybrid_pictures.depthwise_conv_2d(_hybrid(node, target.rules), target)
    return variants.depthwise_conv_2d(_parse(node, target.rules), target)


@lowers("conv_2d_add", floats=EXACT)
def lower_conv_2d_add(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve the first input and add the last one to the result.

    Shapes:
        input (n, h, w, i), weights (o, kh, kw, i), bias (o,) or None, other (n, oh, ow, o) ->
        output (n, oh, ow, o); `inner` is the convolution's intermediate result
    Raises:
        Unsupported: a node that CONV_2D or ADD refuses, int16, an integer sum without an exact
            float equivalent.
    """
    *conv_inputs, other = node.inputs
    result = output_of(node.outputs)
    (intermediate,) = node.inner
    if other is None or not other.shape == intermediate.shape == result.shape:
        raise Unsupported("the summands differ in shape")
    if not other.dtype == intermediate.dtype == result.dtype:
        raise Unsupported("the summands differ in type")
    (source, weights), _ = inputs_of(conv_inputs, 2, 1)
    if source.dtype != "float32":
        require_quant8(source, weights, intermediate)
    conv = _parse(replace(node, inputs=tuple(conv_inputs), outputs=node.inner), target.rules)
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
        total = sum_of(intermediate, other, result, activation)
        floats = float_sum(total)
        if floats is None:
            raise Unsupported("no float sum is exact for these scales")
        numbers = {
            "value_factor": bits(floats.left_factor),
            "residual_factor": bits(floats.right_factor),
            "sum_offset": bits(floats.offset),
            "sum_zero": total.zeros[2],
            "sum_min": total.clamp[0],
            "sum_max": total.clamp[1],
        }
    return variants.conv_2d(replace(conv, residual=Residual(other, result, numbers)), target)


def _parse(node: Node, rules: Rules) -> AnyConvolution:
    """Return a node as a checked convolution record.

    Raises:
        Unsupported: see `lower_conv_2d` and `lower_depthwise_conv_2d`.
    """
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    require_types(source, weights, result)
    axis = 0
    if node.op == "DEPTHWISE_CONV_2D":
        axis, weights = 3, quantized.without_zero_points(weights)
    else:
        quantized.require_no_zero_points(weights)
    values = require_constant(weights, "weights")
    geometry = _geometry(node, weights, bias, values)
    return with_arithmetic(geometry, weights, bias, activation_of(node), rules, axis)


def _geometry(
    node: Node, weights: Tensor, bias: Tensor | None, values: NDArray[np.generic]
) -> Convolution:
    """Return a convolution's tensors, window and weights; `values`: those of `weights`.

    Raises:
        Unsupported: mismatched shapes.
    """
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    is_depthwise = node.op == "DEPTHWISE_CONV_2D"
    if len(weights.shape) != 4 or (is_depthwise and weights.shape[0] != 1):
        expected = "1HWO" if is_depthwise else "rank 4 (OHWI)"
        raise Unsupported(f"weights {shape_text(weights)}: {expected} is needed")
    kernel_h, kernel_w = weights.shape[1:3]
    area = window(source, result, kernel_h, kernel_w, node.options)
    out_c = weights.shape[3 if is_depthwise else 0]
    groups = _channels(source, bias, out_c, result) if is_depthwise else _groups(source, weights)
    if result.shape[3] != out_c:
        raise Unsupported(
            f"{out_c} channels of weights, {result.shape[3]} of output: they must be equal"
        )
    if is_depthwise:
        values = values.reshape(-1, out_c).T[:, :, None]
    else:
        values = values.reshape(out_c, kernel_h * kernel_w, weights.shape[3])
    return Convolution(
        source=source,
        result=result,
        area=area,
        batch=source.shape[0],
        weights=values,
        groups=groups,
    )


def _hybrid(node: Node, rules: Rules) -> hybrid.Product:
    """Return a convolution of float images, each quantised to int8, with int8 weights.

    Images have a zero point if the weights' scales differ by channel. DEPTHWISE_CONV_2D requires a
    scale per channel.

    Raises:
        Unsupported: a node that TFLite refuses or computes wrongly.
    Source: tflite/kernels/conv.cc EvalHybrid, EvalHybridPerChannel; depthwise_conv.cc
    EvalHybridPerChannel
    """
    (_, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    output_of(node.outputs)
    hybrid.require_known(rules)
    if node.options.get("padding") == "EXPLICIT":  # of fuse_pad
        raise Unsupported("hybrid: with its padding another value would be the last of a picture")
    is_depthwise = node.op == "DEPTHWISE_CONV_2D"
    geometry = _geometry(node, weights, bias, hybrid.weight_values(weights))
    scales = hybrid.weight_scales(weights, 3 if is_depthwise else 0)
    if is_depthwise:
        _require_per_channel_scales(weights)
    elif weights.dtype == "int2":
        raise Unsupported("int2 weights: TFLite computes them wrongly")
    elif weights.dtype == "int4" and not rules.int4_convolutions:
        raise Unsupported("int4 weights: this TFLite reads two of them as one")
    has_zero_points = is_depthwise or len(set(scales.tolist())) > 1
    if not has_zero_points:
        if geometry.groups > 1:
            raise Unsupported("hybrid with groups and one scale: TFLite sums over all channels")
        has_one_scale = weights.quantization is None or len(weights.quantization.scale) == 1
        if rules.hybrid_loses_channels and not has_one_scale:
            raise Unsupported("hybrid with equal scales: this TFLite returns only the bias")
        hybrid.require_correct_signs(geometry.weights, rules)
    biases = quantized.bias_of(bias, geometry.out_c, ("float32",))
    return hybrid.Product(
        **geometry.fields(),
        is_asymmetric=has_zero_points,
        is_channel_first=has_zero_points and not is_depthwise,
        scales=scales,
        bias=biases if bias is not None else np.full_like(biases, -0.0),  # -0.0 changes no sum
        clamp=float_bounds(activation_of(node)),
    )


def _require_per_channel_scales(weights: Tensor) -> None:
    """Check the weights of a hybrid DEPTHWISE_CONV_2D as TFLite does.

    Raises:
        Unsupported: int4, one scale for all channels.
    """
    if weights.dtype != "int8":
        raise Unsupported(f"{weights.dtype} weights with float32 activations: only int8")
    if weights.quantization is not None and len(weights.quantization.scale) != weights.shape[3]:
        raise Unsupported("hybrid with one scale for all channels: TFLite requires one per channel")


def _channels(source: Tensor, bias: Tensor | None, out_c: int, result: Tensor) -> int:
    """Return the number of groups of a DEPTHWISE_CONV_2D: one per input channel.

    Raises:
        Unsupported: output channels that are no multiple of the input's, an int32 bias with int16.
    """
    in_c = source.shape[3]
    if result.shape[3] != out_c or out_c % in_c:
        raise Unsupported(
            f"{in_c} input, {out_c} weight and {result.shape[3]} output channels: "
            "the last two must be equal and a multiple of the first"
        )
    if source.dtype == "int16" and bias is not None and bias.dtype == "int32":
        raise Unsupported("bias int32 with int16 activations: TFLite requires int64 here")
    return in_c


def _groups(source: Tensor, weights: Tensor) -> int:
    """Return the number of channel groups of a CONV_2D.

    Raises:
        Unsupported: channels that are not divisible into groups.
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

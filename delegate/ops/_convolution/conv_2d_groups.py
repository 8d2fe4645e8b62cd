# SPDX-License-Identifier: Apache-2.0
"""Convolutions of groups of channels, 8 bit and float32: plain; of single ones as depthwise ones.

Those of int16 do groups themselves.
"""

from __future__ import annotations

import math

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import float_bounds, quantized_bounds
from delegate.ops._checks.node import inputs_of, output_of, require_constant
from delegate.ops._checks.shapes import shape_text
from delegate.ops._checks.windows import window
from delegate.ops._convolution.float_constants import float_bias, require_float_weights
from delegate.ops._convolution.records import (
    DepthwiseConvolution,
    channel_rows,
    require_quant8_weights,
)
from delegate.ops._launches.types import ELEM
from delegate.ops.depthwise_conv_2d import every_alternative
from delegate.target import Target


def is_grouped(node: Node) -> bool:
    """Whether a node's weights take fewer channels than its input has, or more."""
    shapes = [tensor.shape for tensor in node.inputs[:2] if tensor is not None]
    return all(len(shape) == 4 for shape in shapes) and len({shape[3] for shape in shapes}) == 2


def groups_of(source: Tensor, weights: Tensor) -> int:
    """Return how many groups of channels a convolution has.

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


def lower(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve each group of an NHWC tensor's channels with constant OHWI weights of its own.

    Shapes:
        input (n, h, w, g * i), weights (o, kh, kw, i), bias (o,) -> output (n, oh, ow, o)
    Raises:
        Unsupported: computed weights, channels that make no groups, other types.
    Source: tflite/kernels/internal/reference/conv.h, integer_ops/conv.h
    """
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    is_float = source.dtype == result.dtype == "float32"
    if is_float:
        require_float_weights(weights)
    else:
        require_quant8_weights(source, weights, result)
    if len(weights.shape) != 4:
        raise Unsupported(f"weights {shape_text(weights)}: rank 4 (OHWI) is needed")
    out_c, kernel_h, kernel_w, in_c = weights.shape
    area = window(source, result, kernel_h, kernel_w, node.options)
    groups = groups_of(source, weights)
    if result.shape[3] != out_c:
        raise Unsupported(f"{out_c} channels of weights, {result.shape[3]} of output")
    values = require_constant(weights, "weights")
    activation = node.options.get("fused_activation_function", "NONE")
    elements = math.prod(result.shape)
    params: dict[str, int | Tensor | Constant] = {
        "input": source,
        "output": result,
        **area.params(),
        "in_c": in_c,
        "out_c": out_c,
        "source_c": source.shape[3],
        "group_c": out_c // groups,
        "weights": Constant(values.nbytes, lambda: values),
        "elements": elements,
        "tile_items": 64,
    }
    if is_float:
        params |= {
            "channels": float_bias(bias, out_c),
            **float_bounds(activation),
        }
    else:
        biases = quantized.int32_bias(bias, out_c)
        low, high = quantized_bounds(result, activation)
        scaling = quantized.convolution_multipliers(
            source, weights, result, 0, per_channel=source.dtype == "int8"
        )
        weight_zero = quantized.weight_scales(weights, 0)[1]
        if in_c == 1:
            by_tap = np.ascontiguousarray(values.reshape(out_c, -1).T)
            depthwise = DepthwiseConvolution(
                source=source,
                weights=by_tap,
                weight_zero=weight_zero,
                bias=biases,
                scaling=scaling,
                clamp=(low, high),
                result=result,
                batch=source.shape[0],
                area=area,
            )
            return every_alternative(depthwise, target)
        params |= {
            "channels": channel_rows(lambda: biases, scaling),
            "input_zero": quantized.per_tensor(source)[1],
            "weight_zero": weight_zero,
            "output_zero": quantized.per_tensor(result)[1],
            "output_min": low,
            "output_max": high,
        }
    launch = Launch(
        "conv_2d_groups",
        f"conv_2d_groups_{'float' if is_float else 'quant8'}",
        tiles=-(-elements // 64),
        group_items=64,
        params=params,
        reads=(source,),
        writes=(result,),
        defines={} if is_float else {"ELEM": ELEM[source.dtype]},
    )
    return (Alternative("plain", (launch,)),)

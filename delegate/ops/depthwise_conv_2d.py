# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D of 8 bits, of int16 with int8 weights and of float32."""

from __future__ import annotations

from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._convolution import decode, variants
from delegate.ops._registry import lowers
from delegate.target import Target


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
    return variants.depthwise_conv_2d(decode.depthwise_conv_2d(node, target.rules), target)

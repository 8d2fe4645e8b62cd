# SPDX-License-Identifier: Apache-2.0
"""CONV_2D of 8 bits, of int16 with int8 weights and of float32."""

from __future__ import annotations

from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._convolution import decode, variants
from delegate.ops._registry import lowers
from delegate.target import Target


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
    return variants.conv_2d(decode.conv_2d(node, target.rules), target)

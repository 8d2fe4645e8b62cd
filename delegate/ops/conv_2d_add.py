# SPDX-License-Identifier: Apache-2.0
"""conv_2d_add: a CONV_2D and the ADD after it by one kernel; by passes/fuse_add.py."""

from __future__ import annotations

from dataclasses import replace

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.activations import float_bounds
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._convolution import decode as convolutions
from delegate.ops._convolution import variants
from delegate.ops._convolution.records import FloatConvolution, Quant8Convolution, Residual
from delegate.ops._numbers import bits
from delegate.ops._numbers.float_sum import float_sum
from delegate.ops._registry import lowers
from delegate.ops.add import sum_of
from delegate.target import Rules, Target


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
    return variants.conv_2d(decode(node, target.rules), target)


def decode(node: Node, rules: Rules) -> Quant8Convolution | FloatConvolution:
    """Return a node as a convolution with a residual.

    Raises:
        Unsupported: see `lower_conv_2d_add`.
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
        convolutions.require_quant8(source, weights, between)
    conv = convolutions.conv_2d(replace(node, inputs=tuple(own), outputs=node.inner), rules)
    assert isinstance(conv, Quant8Convolution | FloatConvolution)
    if conv.groups > 1:
        raise Unsupported(
            f"groups: {conv.group_in_c} input channels in the weights, {conv.in_c} in the input"
        )
    activation = node.options["sum_activation_function"]
    if isinstance(conv, FloatConvolution):
        low, high = float_bounds(activation).values()
        return replace(conv, residual=Residual(other, result, {"sum_min": low, "sum_max": high}))
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
    return replace(conv, residual=Residual(other, result, numbers))

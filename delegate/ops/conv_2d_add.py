# SPDX-License-Identifier: Apache-2.0
"""conv_2d_add: a CONV_2D and the ADD after it by one kernel; made by passes/fuse_add.py."""

from __future__ import annotations

from dataclasses import replace

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative
from delegate.ops import conv_2d
from delegate.ops._checks.node import output_of
from delegate.ops._checks.sums import sum_of
from delegate.ops._convolution.records import Residual
from delegate.ops._numbers.float_sum import float_sum
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("conv_2d_add")
def lower_conv_2d_add(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve the first input and add the last one to the result.

    Shapes:
        input (n, h, w, i), weights (o, kh, kw, i), bias (o,) or None, other (n, oh, ow, o) ->
        output (n, oh, ow, o); the option `between` is the convolution's own result
    Raises:
        Unsupported: what CONV_2D or ADD do not take, floats, a sum that no floats equal.
    """
    *own, other = node.inputs
    result = output_of(node.outputs)
    between = node.options["between"]
    assert isinstance(between, Tensor)
    if other is None or not other.shape == between.shape == result.shape:
        raise Unsupported("the sum of tensors of several shapes")
    if not other.dtype == between.dtype == result.dtype:
        raise Unsupported("the sum of tensors of several types")
    conv = conv_2d.convolution(replace(node, inputs=tuple(own), outputs=(between,)))
    total = sum_of(between, other, result, node.options["sum_activation_function"])
    floats = float_sum(total)
    if floats is None:
        raise Unsupported("no floats were found that equal this sum")
    residual = Residual(other, result, floats, total.clamp)
    return conv_2d.alternatives(replace(conv, residual=residual), target)

# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED, 8 bit: the convolution's kernels on a single tap, with this op's rounding."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Target
from delegate.ops import _conv_2d_float, _quantize
from delegate.ops._convolution import Convolution, require_quant8_weights
from delegate.ops._geometry import Window, shape_text
from delegate.ops._registry import lowers
from delegate.ops.conv_2d import alternatives


@lowers("FULLY_CONNECTED")
def lower_fully_connected(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply rows of the input by constant weights.

    Shapes:
        input (..., i) taken as rows of i, weights (o, i), bias (o,) -> output (rows, o)
    Raises:
        Unsupported: computed or shuffled weights, per-channel scales, other types.
    Source: tflite/kernels/internal/reference/fully_connected.h,
    integer_ops/fully_connected.h; tflite-runtime rounds twice, ai-edge-litert a double product once
    """
    (source, weights), (bias,) = _quantize.inputs_of(node.inputs, 2, 1)
    result = _quantize.output_of(node.outputs)
    if source.dtype == result.dtype == "float32":
        return _conv_2d_float.lower_fully_connected(node, target)
    require_quant8_weights(source, weights, result)
    if node.options.get("weights_format", "DEFAULT") != "DEFAULT":
        raise Unsupported(f"weights format {node.options['weights_format']}: only DEFAULT")
    if len(weights.shape) != 2 or 0 in weights.shape:
        raise Unsupported(f"weights {shape_text(weights)}: rank 2 (OI) is needed")
    out_c, in_c = weights.shape
    elements = math.prod(source.shape)
    if elements == 0 or elements % in_c:
        raise Unsupported(f"input {shape_text(source)}: no rows of {in_c}")
    rows = elements // in_c
    if math.prod(result.shape) != rows * out_c:
        raise Unsupported(f"output {shape_text(result)}: {rows} rows of {out_c} are computed")
    if weights.quantization is not None and len(weights.quantization.scale) > 1:
        raise Unsupported("per-channel weights: only one scale a tensor is implemented here")
    bias_values = _quantize.int32_bias(bias, out_c)
    matrix = Convolution(
        source=source,
        weights=_quantize.require_constant(weights, "weights").reshape(out_c, 1, in_c),
        weight_zero=_quantize.weight_scales(weights, 0)[1],
        bias=bias_values,
        scaling=_scaling(source, weights, result, bias_values, target),
        clamp=_quantize.activation_range(
            result, node.options.get("fused_activation_function", "NONE")
        ),
        result=result,
        batch=rows,
        area=Window(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0),
        single_rounding=not target.rules.fully_connected_double_rounding,
    )
    return alternatives(matrix, target)


def _scaling(
    source: Tensor, weights: Tensor, result: Tensor, bias: NDArray[np.int64], target: Target
) -> NDArray[np.int32]:
    if target.rules.fully_connected_double_rounding:
        return _quantize.convolution_multipliers(source, weights, result, 0, per_channel=False)
    (in_scale, in_zero), (out_scale, _) = _quantize.per_tensor(source), _quantize.per_tensor(result)
    scales, weight_zero = _quantize.weight_scales(weights, 0)
    farthest = _farthest(source, in_zero) * _farthest(weights, weight_zero)
    largest = weights.shape[1] * farthest + int(np.abs(bias).max())
    if largest >= 2**31:
        raise Unsupported(f"sums up to {largest}: beyond 32 bits")
    pair = _quantize.exact_multiplier(in_scale * scales[0] / out_scale, largest)
    return np.repeat(np.array(pair, np.int32)[:, None], len(bias), 1)


def _farthest(tensor: Tensor, zero_point: int) -> int:
    limits = np.iinfo(tensor.dtype)
    return max(zero_point - int(limits.min), int(limits.max) - zero_point)

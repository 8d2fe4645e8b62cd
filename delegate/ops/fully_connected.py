# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED: the convolution kernels with a single tap, and this op's rounding.

8-bit nodes whose scales need a product of doubles have their own kernels.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import PRODUCTS
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import (
    activation_of,
    applied,
    bounds_of,
    float_bounds,
    quantized_bounds,
)
from delegate.ops._checks.node import inputs_of, output_of, require_constant, shape_text
from delegate.ops._checks.windows import ONE_TAP
from delegate.ops._convolution import fully_connected as launches
from delegate.ops._convolution import hybrid, hybrid_blocks, variants
from delegate.ops._convolution.hybrid_rounding import rounds_once
from delegate.ops._convolution.records import (
    AnyConvolution,
    Convolution,
    DoublesConvolution,
    FloatConvolution,
    Quant8Convolution,
    Quant16Convolution,
    float_bias,
    require_types,
)
from delegate.ops._launches.wide_sums import (
    WideSums,
    double_sums,
    fixed_sums,
    real_scales,
    wide_bias,
)
from delegate.ops._numbers import fixed_point
from delegate.ops._registry import lowers
from delegate.target import Rules, Target


@lowers("FULLY_CONNECTED", floats=PRODUCTS)
def lower_fully_connected(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply rows of the input by weights, which must be constant unless float32 or 8-bit.

    Shapes:
        input (..., i), reshaped to rows of i, weights (o, i), bias (o,) -> output (rows, o), or
        (..., o) with keep_num_dims
    Hybrid nodes quantise their float rows first: see `delegate.ops._convolution.hybrid`.

    Raises:
        Unsupported: shuffled weights, other types, results beyond 32 bits; non-constant int8
            weights with float32 or int16 rows.
    Source: tflite/kernels/fully_connected.cc, internal/reference/fully_connected.h, its
    integer_ops; tflite-runtime rounds as convolutions do, ai-edge-litert rounds a double product
    """
    if node.inputs[1:2] and node.inputs[1] is not None and node.inputs[1].blocks is not None:
        return variants.blockwise(parse_blockwise(node, target.rules), target)
    if hybrid.is_hybrid(node):
        return variants.hybrid_products(_hybrid(node, target.rules), target)
    (source, weights), _ = inputs_of(node.inputs, 2, 1)
    if weights.data is None and source.dtype != "int16":
        return _dynamic_weights(node, target)
    conv = _parse(node, target.rules)
    if isinstance(conv, DoublesConvolution):
        return launches.of_doubles(conv, target)
    return variants.conv_2d(conv, target)


def _dynamic_weights(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives for non-constant weights; raises Unsupported."""
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    require_types(source, weights, result)
    _require_plain_format(node)
    rows, units = _rows(node, source, weights, result), weights.shape[0]
    is_float = source.dtype == "float32"
    biases = quantized.bias_of(bias, units, ("float32" if is_float else "int32",))
    product = launches.DynamicWeights(
        source=source,
        weights=weights,
        result=result,
        rows=rows,
        bias=biases,
        bounds=bounds_of(result, activation_of(node)),
    )
    if is_float:
        return product.of_floats(target)
    scales = [quantized.per_tensor(tensor) for tensor in (source, weights, result)]
    scaling = _scaling(source, weights, result, biases.astype(np.int64), target.rules)
    is_single = not target.rules.fully_connected_double_rounding
    input_zero, weight_zero, output_zero = (zero for _, zero in scales)
    return product.of_quant8((input_zero, weight_zero, output_zero), scaling, is_single, target)


def _parse(node: Node, rules: Rules) -> AnyConvolution:
    """Return a node as a convolution with a single tap, whose pixels are the input's rows."""
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    require_types(source, weights, result)
    _require_plain_format(node)
    rows = _rows(node, source, weights, result)
    mixes_rows = len(result.shape) != 2 and rules.fully_connected_double_rounding
    if mixes_rows and source.dtype != "float32" and _is_per_channel(weights):
        raise Unsupported("per-channel weights with keep_num_dims: this TFLite mixes up the rows")
    out_c, in_c = weights.shape
    values = require_constant(weights, "weights").reshape(out_c, 1, in_c)
    matrix = Convolution(source=source, result=result, area=ONE_TAP, batch=rows, weights=values)
    activation = activation_of(node)
    if source.dtype == "float32":
        return FloatConvolution(
            **matrix.fields(),
            bias=float_bias(bias, out_c),
            clamp=float_bounds(activation),
        )
    clamp = quantized_bounds(result, activation, quantized.QUANT)
    if source.dtype == "int16":
        sums = _sums_of_int16(source, weights, bias, result, rules)
        return Quant16Convolution(**matrix.fields(), sums=sums, clamp=clamp)
    return _quant8(matrix, weights, bias, clamp, rules)


def _require_plain_format(node: Node) -> None:
    if node.options.get("weights_format", "DEFAULT") != "DEFAULT":
        raise Unsupported(f"weights format {node.options['weights_format']}: only DEFAULT")


def _hybrid(node: Node, rules: Rules) -> hybrid.Product:
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    _require_plain_format(node)
    rows = _rows(node, source, weights, result)
    hybrid.require_known(rules)
    if rules.hybrid_loses_channels and _is_per_channel(weights):
        raise Unsupported("hybrid with per-channel scales: this TFLite returns only the bias")
    is_asymmetric = bool(node.options.get("asymmetric_quantize_inputs"))
    values = hybrid.weight_values(weights)
    hybrid.require_correct_signs(values, rules)
    hybrid.require_correct_sums(values, is_asymmetric, rules)
    clamp, clamp_defines = applied(activation_of(node))
    return hybrid.Product(
        source=source,
        result=result,
        area=ONE_TAP,
        batch=rows,
        weights=values.reshape(weights.shape[0], 1, weights.shape[1]),
        is_asymmetric=is_asymmetric,
        rounds_once=bias is not None and rounds_once(rules, rows, *weights.shape[::-1]),
        scales=hybrid.weight_scales(weights, 0),
        bias=quantized.bias_of(bias, weights.shape[0], ("float32",)),
        clamp=clamp,
        clamp_defines=clamp_defines,
    )


def parse_blockwise(node: Node, rules: Rules) -> hybrid_blocks.BlockProduct:
    """Return a node with blockwise int4 weights as a record; raises Unsupported."""
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    _require_plain_format(node)
    rows = _rows(node, source, weights, result)
    if (source.dtype, result.dtype) != ("float32", "float32"):
        raise Unsupported(f"weights in blocks with {source.dtype} activations: only float32")
    hybrid.require_known(rules)
    scales = hybrid_blocks.block_scales(weights, rules)
    if activation_of(node) != "NONE":
        raise Unsupported("an activation after weights in blocks: this TFLite ignores it")
    return hybrid_blocks.BlockProduct(
        source=source,
        result=result,
        batch=rows,
        rounds_once=rules.processor == "aarch64",
        pairs=hybrid_blocks.pairs_of(weights, scales),
        scales=scales,
        bias=quantized.bias_of(bias, weights.shape[0], ("float32",)),
    )


def _quant8(
    matrix: Convolution, weights: Tensor, bias: Tensor | None, clamp: tuple[int, int], rules: Rules
) -> Quant8Convolution:
    biases = quantized.bias_of(bias, matrix.out_c, ("int32",)).astype(np.int64)
    scaling = _scaling(matrix.source, weights, matrix.result, biases, rules)
    conv = Quant8Convolution(
        **matrix.fields(),
        input_zero=quantized.per_tensor(matrix.source)[1],
        weight_zero=quantized.weight_scales(weights, 0)[1],
        output_zero=quantized.per_tensor(matrix.result)[1],
        bias=biases,
        scaling=np.zeros((2, matrix.out_c), np.int32) if isinstance(scaling, WideSums) else scaling,
        clamp=clamp,
        single_rounding=not rules.fully_connected_double_rounding,
    )
    if isinstance(scaling, WideSums):
        return DoublesConvolution(**conv.fields(), sums=scaling)
    return conv


def _rows(node: Node, source: Tensor, weights: Tensor, result: Tensor) -> int:
    """Return the number of input rows of a node.

    Raises:
        Unsupported: mismatched shapes.
    """
    if len(weights.shape) != 2 or 0 in weights.shape:
        raise Unsupported(f"weights {shape_text(weights)}: rank 2 (OI) is needed")
    out_c, in_c = weights.shape
    elements = math.prod(source.shape)
    if elements < in_c:
        raise Unsupported(f"input {shape_text(source)}: rows of {in_c} are needed")
    if node.options.get("keep_num_dims") and source.shape[-1:] != (in_c,):
        raise Unsupported(
            f"input {shape_text(source)}: its last size is kept, so it must be {in_c}"
        )
    rows = elements // in_c  # TFLite ignores an incomplete last row
    if math.prod(result.shape) != rows * out_c:
        raise Unsupported(f"output {shape_text(result)}: {rows} rows of {out_c} are needed")
    return rows


def _is_per_channel(weights: Tensor) -> bool:
    return weights.quantization is not None and len(weights.quantization.scale) > 1


def _scaling(
    source: Tensor, weights: Tensor, result: Tensor, bias: NDArray[np.int64], rules: Rules
) -> NDArray[np.int32] | WideSums:
    """Return multipliers and shifts, or doubles if no multipliers round as TFLite does."""
    weight_zero = quantized.weight_scales(weights, 0)[1]
    if rules.fully_connected_double_rounding:
        is_per_channel = _is_per_channel(weights)
        return quantized.convolution_multipliers(source, weights, result, 0, is_per_channel)
    reals = real_scales(source, weights, result, 0)
    largest = _largest(source, weights, weight_zero, bias)
    if largest.max() >= 2**31:
        raise Unsupported(f"sums up to {largest.max()}: beyond 32 bits")
    scaling, is_exact = fixed_point.exact_multipliers(np.array(reals), int(largest.max()))
    return scaling if is_exact.all() else double_sums(bias, reals, largest)


def _sums_of_int16(
    source: Tensor, weights: Tensor, bias: Tensor | None, result: Tensor, rules: Rules
) -> WideSums:
    values, is_int32 = wide_bias(bias, weights.shape[0], rules)
    reals = real_scales(source, weights, result, 0)
    if not rules.fully_connected_double_rounding:
        return double_sums(values, reals, _largest(source, weights, 0, values))
    if not _is_per_channel(weights) and weights.quantization is not None:
        in_scale = quantized.per_tensor(source, quantized.QUANT)[0]
        out_scale = quantized.per_tensor(result, quantized.QUANT)[0]
        with np.errstate(over="ignore"):
            product = float(np.float32(in_scale) * np.float32(weights.quantization.scale[0]))
        reals = [product / out_scale] * len(reals)
    return fixed_sums(values, [fixed_point.quantize_multiplier(real) for real in reals], is_int32)


def _largest(
    source: Tensor, weights: Tensor, weight_zero: int, bias: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return a bound of each channel's sums, by the types, or by the weights if that is large."""
    limits = np.iinfo(source.dtype)
    in_zero = quantized.per_tensor(source, quantized.QUANT)[1]
    largest_input = max(in_zero - int(limits.min), int(limits.max) - in_zero)
    limits = np.iinfo(weights.dtype)
    largest_weight = max(weight_zero - int(limits.min), int(limits.max) - weight_zero)
    largest: NDArray[np.int64] = weights.shape[1] * largest_input * largest_weight + np.abs(bias)
    if largest.max() < 2**28 or weights.data is None:
        return largest
    centred = weights.data.astype(np.int32) - weight_zero
    return np.asarray(np.abs(centred).sum(1, dtype=np.int64) * largest_input + np.abs(bias))

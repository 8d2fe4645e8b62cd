# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED: the convolutions' kernels on a single tap, with this op's rounding.

Where an 8-bit node's scales need a product of doubles, kernels of its own have it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import quantized_bounds
from delegate.ops._checks.node import inputs_of, output_of, require_constant
from delegate.ops._checks.shapes import shape_text
from delegate.ops._checks.windows import Window
from delegate.ops._convolution import conv_2d_float, conv_2d_quant16
from delegate.ops._convolution.conv_2d_quant16 import Convolution16
from delegate.ops._convolution.records import Convolution, require_quant8_weights
from delegate.ops._launches.tiles import by_share, lanes_of
from delegate.ops._launches.types import ELEM
from delegate.ops._launches.wide_sums import (
    WideSums,
    double_sums,
    fixed_sums,
    real_scales,
    require_16x8,
    wide_bias,
)
from delegate.ops._numbers import fixed_point
from delegate.ops._registry import lowers
from delegate.ops.conv_2d import alternatives
from delegate.target import Rules, Target

_ONE_TAP = Window(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0)


@lowers("FULLY_CONNECTED")
def lower_fully_connected(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply rows of the input by constant weights.

    Shapes:
        input (..., i) taken as rows of i, weights (o, i), bias (o,) -> output (rows, o), or
        (..., o) with keep_num_dims
    Raises:
        Unsupported: computed or shuffled weights, other types, results beyond 32 bits.
    Source: tflite/kernels/internal/reference/fully_connected.h,
    integer_ops/fully_connected.h; tflite-runtime rounds as convolutions do, ai-edge-litert a double
    product once
    """
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    if source.dtype == result.dtype == "float32":
        return conv_2d_float.lower_fully_connected(node, target)
    is_wide = source.dtype == result.dtype == "int16"
    (require_16x8 if is_wide else require_quant8_weights)(source, weights, result)
    if node.options.get("weights_format", "DEFAULT") != "DEFAULT":
        raise Unsupported(f"weights format {node.options['weights_format']}: only DEFAULT")
    rows = rows_of(node, source, weights, result)
    keeps_dims = len(result.shape) != 2
    if keeps_dims and _is_per_channel(weights) and target.rules.fully_connected_double_rounding:
        raise Unsupported("per-channel weights with keep_num_dims: this TFLite mixes up the rows")
    out_c, in_c = weights.shape
    values = require_constant(weights, "weights").reshape(out_c, 1, in_c)
    clamp = quantized_bounds(
        result, node.options.get("fused_activation_function", "NONE"), quantized.QUANT
    )
    if is_wide:
        sums = _sums_of_int16(source, weights, bias, result, target.rules)
        wide = Convolution16(source, values, sums, clamp, result, rows, _ONE_TAP)
        return conv_2d_quant16.alternatives(wide, target)
    bias_values = quantized.int32_bias(bias, out_c)
    scaling = _scaling(source, weights, result, bias_values, target.rules)
    matrix = Convolution(
        source=source,
        weights=values,
        weight_zero=quantized.weight_scales(weights, 0)[1],
        bias=bias_values,
        scaling=np.zeros((2, out_c), np.int32) if isinstance(scaling, WideSums) else scaling,
        clamp=clamp,
        result=result,
        batch=rows,
        area=_ONE_TAP,
        single_rounding=not target.rules.fully_connected_double_rounding,
    )
    if isinstance(scaling, WideSums):
        return _doubles(matrix, scaling, target)
    return alternatives(matrix, target)


def rows_of(node: Node, source: Tensor, weights: Tensor, result: Tensor) -> int:
    """Return how many rows of the input a node multiplies.

    Raises:
        Unsupported: shapes that do not fit.
    """
    if len(weights.shape) != 2 or 0 in weights.shape:
        raise Unsupported(f"weights {shape_text(weights)}: rank 2 (OI) is needed")
    out_c, in_c = weights.shape
    elements = math.prod(source.shape)
    if elements == 0 or elements % in_c:
        raise Unsupported(f"input {shape_text(source)}: no rows of {in_c}")
    if node.options.get("keep_num_dims") and source.shape[-1:] != (in_c,):
        raise Unsupported(
            f"input {shape_text(source)}: its last size is kept, so it must be {in_c}"
        )
    rows = elements // in_c
    if math.prod(result.shape) != rows * out_c:
        raise Unsupported(f"output {shape_text(result)}: {rows} rows of {out_c} are computed")
    return rows


def _is_per_channel(weights: Tensor) -> bool:
    return weights.quantization is not None and len(weights.quantization.scale) > 1


def _scaling(
    source: Tensor, weights: Tensor, result: Tensor, bias: NDArray[np.int64], rules: Rules
) -> NDArray[np.int32] | WideSums:
    """Return multipliers and shifts, or doubles where none round as TFLite does."""
    weight_zero = quantized.weight_scales(weights, 0)[1]
    if rules.fully_connected_double_rounding:
        is_per_channel = _is_per_channel(weights)
        return quantized.convolution_multipliers(source, weights, result, 0, is_per_channel)
    reals = real_scales(source, weights, result, 0)
    largest = _largest(source, weights, weight_zero, bias)
    if largest.max() >= 2**31:
        raise Unsupported(f"sums up to {largest.max()}: beyond 32 bits")
    scaling, found = fixed_point.exact_multipliers(np.array(reals), int(largest.max()))
    return scaling if found.all() else double_sums(bias, reals, largest)


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
    """Return bounds of each channel's sums: of these types, or of these weights if that is much."""
    limits = np.iinfo(source.dtype)
    in_zero = quantized.per_tensor(source, quantized.QUANT)[1]
    farthest = max(in_zero - int(limits.min), int(limits.max) - in_zero)
    limits = np.iinfo(weights.dtype)
    largest_weight = max(weight_zero - int(limits.min), int(limits.max) - weight_zero)
    largest: NDArray[np.int64] = weights.shape[1] * farthest * largest_weight + np.abs(bias)
    if largest.max() < 2**28 or weights.data is None:
        return largest
    centred = weights.data.astype(np.int32) - weight_zero
    return np.asarray(np.abs(centred).sum(1, dtype=np.int64) * farthest + np.abs(bias))


def _doubles(conv: Convolution, sums: WideSums, target: Target) -> tuple[Alternative, ...]:
    """Return this op's own launches: over vectors of channels where they fit, then plain."""
    out_c, _, in_c = conv.weights.shape
    rows = conv.batch
    elem = ELEM[conv.source.dtype]
    common: dict[str, int | Tensor | Constant] = {
        "input": conv.source,
        "output": conv.result,
        "in_c": in_c,
        "out_c": out_c,
        "output_zero": quantized.per_tensor(conv.result)[1],
        "output_min": conv.clamp[0],
        "output_max": conv.clamp[1],
    }
    defines: dict[str, int | str] = {"ELEM": elem, "ROUNDING": sums.rounding}
    plain = Launch(
        "fully_connected",
        "fully_connected_quant8",
        tiles=-(-rows * out_c // 64),
        group_items=64,
        params=common
        | {
            "weights": Constant(conv.weights.nbytes, lambda: conv.weights),
            "channels": sums.rows(),
            "input_zero": conv.input_zero,
            "weight_zero": conv.weight_zero,
            "elements": rows * out_c,
            "tile_items": 64,
        },
        reads=(conv.source,),
        writes=(conv.result,),
        defines=defines,
    )
    plain_last = (Alternative("plain", (plain,)),)
    lanes = lanes_of(out_c, target)
    if not lanes:
        return plain_last
    blocks, pairs = -(-out_c // lanes), -(-in_c // 2)
    tile_items = by_share(rows * blocks, target).tile_items

    def pack_weights() -> NDArray[np.int16]:
        starts = np.minimum(np.arange(blocks) * lanes, out_c - lanes)
        channels = (starts[:, None] + np.arange(lanes)).ravel()
        padded = np.zeros((blocks * lanes, 2 * pairs), np.int16)
        padded[:, :in_c] = conv.centred()[channels, 0]
        return np.ascontiguousarray(padded.reshape(blocks, lanes, pairs, 2).transpose(0, 2, 1, 3))

    folded = WideSums(sums.rounding, conv.folded_bias(), sums.scaling)
    vector = Launch(
        "fully_connected",
        "fully_connected_vector_quant8",
        tiles=-(-rows * blocks // tile_items),
        group_items=target.group_items,
        params=common
        | {
            "weights": Constant(4 * blocks * lanes * pairs, pack_weights),
            "channels": Constant(20 * out_c, lambda: folded.rows().pack()),
            "rows": rows,
            "pairs": pairs,
            "items": rows * blocks,
            "tile_items": tile_items,
        },
        reads=(conv.source,),
        writes=(conv.result,),
        defines=defines | {"LANES": lanes},
    )
    return (Alternative(f"vector {lanes}", (vector,)), *plain_last)

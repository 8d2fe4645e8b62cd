# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV, and MediaPipe's Convolution2DTransposeBias, the same in floats with a bias.

Integers: as a CONV_2D; 8 bits and floats: vectors of channels; all: plain. Hybrid nodes are in
`_convolution/hybrid_transposed.py`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import PRODUCTS, Growth, sums
from delegate.graph.ir import Node
from delegate.graph.mediapipe import TRANSPOSE_CONV_BIAS, as_transpose_conv
from delegate.launch import Alternative, Constant, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import activation_of, float_bounds
from delegate.ops._checks.node import inputs_of, output_of, require_constant, shape_text
from delegate.ops._checks.windows import window
from delegate.ops._convolution import hybrid, hybrid_transposed
from delegate.ops._convolution.packing import fallback, fixed_rows, int16_pairs, packed, zeros
from delegate.ops._convolution.phases import by_phases
from delegate.ops._convolution.records import (
    AnyConvolution,
    Convolution,
    FloatConvolution,
    Quant8Convolution,
    Quant16Convolution,
    require_types,
    with_arithmetic,
)
from delegate.ops._launches.tiles import by_share, in_blocks, lanes_of, launch_of
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Rules, Target

TILE_W = 4  # output pixels per work-item, a stride apart
_MANY = 96  # registers for so many 8-bit pixels; with fewer, half the pixels
_TILED_WIDTHS = (8, 4, 2, 1)  # output pixels of the tiled kernel, not necessarily in one row


@lowers("TRANSPOSE_CONV", floats=PRODUCTS)
def lower_transpose_conv(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute the transposed convolution of an NHWC tensor with constant OHWI weights.

    Shapes:
        output shape (4,), weights (o, kh, kw, i), input (n, h, w, i), bias (o,)
        -> output (n, oh, ow, o)
    Raises:
        Unsupported: a non-constant shape or weights, mismatched shapes, other types.
    Source: tflite/kernels/transpose_conv.cc, internal/reference/transpose_conv.h,
    integer_ops/transpose_conv.h
    """
    if hybrid.is_hybrid(replace(node, inputs=node.inputs[2:0:-1])):
        return hybrid_transposed.transpose_conv(_hybrid(node, target.rules), target)
    conv = _parse(node, target.rules)
    kernel = f"transpose_conv_{conv.family}"
    plain = fallback(conv, "transpose_conv", kernel, conv.weights, defines=_defines(conv))
    if isinstance(conv, FloatConvolution) and target.group_items == 1:
        return (*_tiled(conv, target), plain)
    phased = () if isinstance(conv, FloatConvolution) else by_phases(conv, target)
    lanes = lanes_of(conv.out_c, target)
    if lanes == 0 or isinstance(conv, Quant16Convolution):
        return (*phased, plain)
    fits_registers = isinstance(conv, FloatConvolution) or target.keeps(_MANY)
    most = TILE_W if fits_registers else TILE_W // 2
    tile_w = most if conv.area.out_w // conv.area.stride_w >= TILE_W else 1
    return *phased, _vector(conv, lanes, tile_w, target), plain


@lowers(TRANSPOSE_CONV_BIAS, floats=sums(Growth.STEADY), is_custom=True)
def lower_transpose_conv_bias(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute MediaPipe's transposed convolution, whose output size follows from the input's.

    Shapes:
        input (n, h, w, i), weights (o, kh, kw, i), bias (o,) -> output (n, oh, ow, o)
    Raises:
        Unsupported: types other than float32, non-constant weights, invalid options.
    Source: mediapipe/util/tflite/operations/transpose_conv_bias.cc
    """
    for tensor in (*node.inputs, *node.outputs):
        if tensor is not None and tensor.dtype != "float32":
            raise Unsupported(f"{tensor.dtype}: only float32")
    try:
        builtin = as_transpose_conv(node)
    except ValueError as error:
        raise Unsupported(f"custom options or inputs: {error}") from None
    if builtin.inputs[3] is None:
        raise Unsupported("the bias is missing")
    return lower_transpose_conv(builtin, target)


def _parse(node: Node, rules: Rules) -> AnyConvolution:
    """Return a node as a convolution record."""
    (_, weights, source), (bias,) = inputs_of(node.inputs, 3, 1)
    require_types(source, weights, output_of(node.outputs))
    weights = quantized.without_zero_points(weights)
    geometry = _geometry(node, require_constant(weights, "weights"))
    return with_arithmetic(geometry, weights, bias, activation_of(node), rules)


def _hybrid(node: Node, rules: Rules) -> hybrid.Product:
    """Return a node of float images, each quantised to int8, with int8 weights.

    Raises:
        Unsupported: weights of other types, mismatched scales, a processor whose rounding is
            unknown.
    """
    (_, weights, _), (bias,) = inputs_of(node.inputs, 3, 1)
    output_of(node.outputs)
    hybrid.require_known(rules)
    if weights.dtype != "int8":
        raise Unsupported(f"{weights.dtype} weights with float32 activations: only int8")
    geometry = _geometry(node, hybrid.weight_values(weights))
    biases = quantized.bias_of(bias, geometry.out_c, ("float32",))
    return hybrid.Product(
        **geometry.fields(),
        is_asymmetric=True,
        rounds_once=rules.processor == "aarch64",
        scales=hybrid.weight_scales(weights, 0),
        bias=biases if bias is not None else np.full_like(biases, -0.0),  # -0.0 changes no sum
        clamp=float_bounds(activation_of(node)),
    )


def _geometry(node: Node, values: NDArray[np.generic]) -> Convolution:
    """Return a node's tensors, window and weights; the window slides over the output.

    Raises:
        Unsupported: mismatched shapes.
    """
    (shape, weights, source), _ = inputs_of(node.inputs, 3, 1)
    result = output_of(node.outputs)
    if shape.dtype != "int32" or shape.shape != (4,):
        raise Unsupported(f"output shape {shape.dtype} of {shape.shape}: int32 of (4,) is needed")
    expected = tuple(np.asarray(require_constant(shape, "output shapes")).tolist())
    if len(weights.shape) != 4 or 0 in weights.shape:
        raise Unsupported(f"weights {shape_text(weights)}: rank 4 (OHWI) is needed")
    out_c, kernel_h, kernel_w, in_c = weights.shape
    if result.shape != expected or len(source.shape) != 4:
        raise Unsupported(
            f"shapes {shape_text(source)} -> {shape_text(result)}: "
            f"the output must be {'x'.join(map(str, expected))}, the input rank 4 (NHWC)"
        )
    if source.shape[3] != in_c or result.shape[3] != out_c:
        raise Unsupported(
            f"{source.shape[3]} input and {result.shape[3]} output channels: "
            f"the weights have {in_c} and {out_c}"
        )
    options = {
        name: value for name, value in node.options.items() if not name.startswith("dilation")
    }
    return Convolution(
        source=source,
        result=result,
        area=window(result, source, kernel_h, kernel_w, options).transposed(),
        batch=source.shape[0],
        weights=values.reshape(out_c, -1, in_c),
    )


def _vector(
    conv: Quant8Convolution | FloatConvolution, lanes: int, tile_w: int, target: Target
) -> Alternative:
    """Return the launch with LANES channels x TILE_W pixels per work-item."""
    area = conv.area
    phases = min(area.stride_w, area.out_w)
    row_blocks = ceil_div(ceil_div(area.out_w, area.stride_w), tile_w)
    pixel_blocks = conv.batch * area.out_h * phases * row_blocks
    blocks = ceil_div(conv.out_c, lanes)
    tiling = by_share(blocks * pixel_blocks, target, most=pixel_blocks)
    tiles, fields = in_blocks(blocks, pixel_blocks, tiling)
    block_fields: Params = {"phases": phases, "row_blocks": row_blocks, **fields}
    launch = launch_of(
        "transpose_conv",
        f"transpose_conv_vector_{conv.family}",
        tiles,
        target.group_items,
        conv.params() | _vector_weights(conv, lanes) | block_fields,
        _defines(conv) | {"LANES": lanes, "TILE_W": tile_w},
    )
    return Alternative(f"vector {lanes}x{tile_w}", (launch,))


def _tiled(conv: FloatConvolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launch over blocks of pixels x channels."""
    area = conv.area
    phases = min(area.stride_h, area.out_h), min(area.stride_w, area.out_w)
    # The first phase has the most pixels, the last one the fewest.
    most = conv.batch * ceil_div(area.out_h, area.stride_h) * ceil_div(area.out_w, area.stride_w)
    least = conv.batch * (
        ceil_div(area.out_h - phases[0] + 1, area.stride_h)
        * ceil_div(area.out_w - phases[1] + 1, area.stride_w)
    )
    tile_w = next(size for size in _TILED_WIDTHS if size <= least)
    # Channels are padded to a vector; AVX-512 has registers for two vectors.
    lanes = min(lanes_of(max(conv.out_c, 4), target) or 4, 16)
    vectors = 2 if lanes == 16 and conv.out_c >= 32 else 1
    phase_blocks = ceil_div(most, tile_w)
    pixel_blocks = phases[0] * phases[1] * phase_blocks
    blocks = ceil_div(conv.out_c, lanes * vectors)
    tiling = by_share(blocks * pixel_blocks, target, most=pixel_blocks)
    tiles, fields = in_blocks(blocks, pixel_blocks, tiling)
    weights, size = conv.weights, blocks * vectors * lanes * conv.taps * conv.in_c
    # Channels are padded with zero weights to at least `lanes`.
    missing = ((0, max(0, lanes - conv.out_c)), (0, 0), (0, 0))
    launch = launch_of(
        "transpose_conv_tiled",
        "transpose_conv_tiled_float",
        tiles,
        target.group_items,
        conv.params()
        | {
            "weights": Constant(4 * size, lambda: packed(np.pad(weights, missing), lanes, vectors)),
            "zeros": zeros(conv.in_c),
            "batch": conv.batch,
            "phases_w": phases[1],
            "phase_blocks": phase_blocks,
            **fields,
        },
        {
            "LANES": lanes,
            "VECTORS": vectors,
            "TILE_W": tile_w,
            "IS_NARROW": int(conv.out_c < lanes),
        },
    )
    return (Alternative(f"tiled {tile_w}x{lanes * vectors}", (launch,)),)


def _vector_weights(conv: Quant8Convolution | FloatConvolution, lanes: int) -> Params:
    if isinstance(conv, FloatConvolution):
        weights = conv.weights
        size = ceil_div(conv.out_c, lanes) * lanes * conv.taps * conv.in_c
        return {
            "weights": Constant(4 * size, lambda: packed(weights, lanes)),
            "zeros": zeros(conv.in_c),
        }
    pairs = ceil_div(conv.in_c, 2)
    layer, zero, dtype = conv.layer, conv.input_zero, conv.source.dtype
    return {
        "channels": fixed_rows(lambda: layer.bias, layer.scaling),
        "input_zero": conv.input_zero,
        "weights": int16_pairs(conv, layer.centred, lanes),
        "zeros": Constant(2 * pairs, lambda: np.full(2 * pairs, zero, dtype)),
        "pairs": pairs,
    }


def _defines(conv: AnyConvolution) -> dict[str, int | str]:
    if isinstance(conv, Quant16Convolution):
        return conv.sums.defines
    return {} if isinstance(conv, FloatConvolution) else {"ELEM": ELEM[conv.source.dtype]}

# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV: as a CONV_2D for integers, over vectors of channels for 8 bits and floats, plain.

Hybrid ones are of `_convolution/hybrid_transposed.py`.

And Convolution2DTransposeBias, which is the same of floats, by MediaPipe.
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

TILE_W = 4  # output pixels a work-item, a stride apart
_MANY = 96  # registers that keep them of bytes; fewer keep half of them
_TILED_WIDTHS = (8, 4, 2, 1)  # the same where they need not lie in one row


@lowers("TRANSPOSE_CONV", floats=PRODUCTS)
def lower_transpose_conv(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Spread an NHWC tensor by constant OHWI weights to a constant size.

    Shapes:
        output shape (4,), weights (o, kh, kw, i), input (n, h, w, i), bias (o,)
        -> output (n, oh, ow, o)
    Raises:
        Unsupported: a computed shape or weights, shapes that do not fit, other types.
    Source: tflite/kernels/transpose_conv.cc, internal/reference/transpose_conv.h,
    integer_ops/transpose_conv.h
    """
    if hybrid.is_hybrid(replace(node, inputs=node.inputs[2:0:-1])):
        return hybrid_transposed.transpose_conv(_hybrid(node, target.rules), target)
    conv = _decoded(node, target.rules)
    kernel = f"transpose_conv_{conv.family}"
    last = fallback(conv, "transpose_conv", kernel, conv.weights, defines=_defines(conv))
    if isinstance(conv, FloatConvolution) and target.group_items == 1:
        return (*_tiled(conv, target), last)
    first = () if isinstance(conv, FloatConvolution) else by_phases(conv, target)
    lanes = lanes_of(conv.out_c, target)
    if lanes == 0 or isinstance(conv, Quant16Convolution):
        return (*first, last)
    is_kept = isinstance(conv, FloatConvolution) or target.keeps(_MANY)
    most = TILE_W if is_kept else TILE_W // 2
    tile_w = most if conv.area.out_w // conv.area.stride_w >= TILE_W else 1
    return *first, _vector(conv, lanes, tile_w, target), last


@lowers(TRANSPOSE_CONV_BIAS, floats=sums(Growth.STEADY), is_custom=True)
def lower_transpose_conv_bias(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Spread a picture to the size that strides and padding make of it; MediaPipe's own op.

    Shapes:
        input (n, h, w, i), weights (o, kh, kw, i), bias (o,) -> output (n, oh, ow, o)
    Raises:
        Unsupported: other types than float32, computed weights, options that are none.
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
        raise Unsupported("no bias")
    return lower_transpose_conv(builtin, target)


def _decoded(node: Node, rules: Rules) -> AnyConvolution:
    """Return a node as its kernels see it."""
    (_, weights, source), (bias,) = inputs_of(node.inputs, 3, 1)
    require_types(source, weights, output_of(node.outputs))
    weights = quantized.without_zero_points(weights)
    geometry = _geometry(node, require_constant(weights, "weights"))
    return with_arithmetic(geometry, weights, bias, activation_of(node), rules)


def _hybrid(node: Node, rules: Rules) -> hybrid.Product:
    """Return a node of float pictures, each of which becomes int8, with int8 weights.

    Raises:
        Unsupported: weights of other types, scales that do not fit, a processor whose roundings
            were not compared.
    """
    (_, weights, _), (bias,) = inputs_of(node.inputs, 3, 1)
    output_of(node.outputs)
    hybrid.require_known(rules)
    if weights.dtype != "int8":
        raise Unsupported(f"{weights.dtype} weights with float32 activations: only int8")
    geometry = _geometry(node, hybrid.weight_values(weights))
    values = quantized.bias_of(bias, geometry.out_c, ("float32",))
    return hybrid.Product(
        **geometry.fields(),
        is_asymmetric=True,
        rounds_once=rules.processor == "aarch64",
        scales=hybrid.weight_scales(weights, 0),
        bias=values if bias is not None else np.full_like(values, -0.0),  # which adds nothing
        clamp=float_bounds(activation_of(node)),
    )


def _geometry(node: Node, values: NDArray[np.generic]) -> Convolution:
    """Return a node's tensors, window and weights; the window goes from the output to the input.

    Raises:
        Unsupported: shapes that do not fit.
    """
    (shape, weights, source), _ = inputs_of(node.inputs, 3, 1)
    result = output_of(node.outputs)
    if shape.dtype != "int32" or shape.shape != (4,):
        raise Unsupported(f"output shape {shape.dtype} of {shape.shape}: int32 of (4,) is needed")
    wanted = tuple(np.asarray(require_constant(shape, "output shapes")).tolist())
    if len(weights.shape) != 4 or 0 in weights.shape:
        raise Unsupported(f"weights {shape_text(weights)}: rank 4 (OHWI) is needed")
    out_c, kernel_h, kernel_w, in_c = weights.shape
    if result.shape != wanted or len(source.shape) != 4:
        raise Unsupported(
            f"shapes {shape_text(source)} -> {shape_text(result)}: "
            f"{'x'.join(map(str, wanted))} of an NHWC tensor is computed"
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
    """Return the launch of LANES channels x TILE_W pixels a work-item."""
    area = conv.area
    phases = min(area.stride_w, area.out_w)
    row_blocks = ceil_div(ceil_div(area.out_w, area.stride_w), tile_w)
    pixel_blocks = conv.batch * area.out_h * phases * row_blocks
    blocks = ceil_div(conv.out_c, lanes)
    tiling = by_share(blocks * pixel_blocks, target, most=pixel_blocks)
    tiles, fields = in_blocks(blocks, pixel_blocks, tiling)
    own: Params = {"phases": phases, "row_blocks": row_blocks, **fields}
    launch = launch_of(
        "transpose_conv",
        f"transpose_conv_vector_{conv.family}",
        tiles,
        target.group_items,
        conv.params() | _weights_of_vectors(conv, lanes) | own,
        _defines(conv) | {"LANES": lanes, "TILE_W": tile_w},
    )
    return Alternative(f"vector {lanes}x{tile_w}", (launch,))


def _tiled(conv: FloatConvolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launch of blocks of pixels x channels; none where the pixels do not fill one."""
    area = conv.area
    phases = min(area.stride_h, area.out_h), min(area.stride_w, area.out_w)
    # The first of the grids of pixels has most of them, the last one least.
    most = conv.batch * ceil_div(area.out_h, area.stride_h) * ceil_div(area.out_w, area.stride_w)
    least = conv.batch * (
        ceil_div(area.out_h - phases[0] + 1, area.stride_h)
        * ceil_div(area.out_w - phases[1] + 1, area.stride_w)
    )
    tile_w = next(size for size in _TILED_WIDTHS if size <= least)
    # Fewer channels than a vector has are filled up; AVX-512 has registers for two vectors.
    lanes = min(lanes_of(max(conv.out_c, 4), target) or 4, 16)
    vectors = 2 if lanes == 16 and conv.out_c >= 32 else 1
    phase_blocks = ceil_div(most, tile_w)
    pixel_blocks = phases[0] * phases[1] * phase_blocks
    blocks = ceil_div(conv.out_c, lanes * vectors)
    tiling = by_share(blocks * pixel_blocks, target, most=pixel_blocks)
    tiles, fields = in_blocks(blocks, pixel_blocks, tiling)
    weights, size = conv.weights, blocks * vectors * lanes * conv.taps * conv.in_c
    # Weights of at least `lanes` channels, those that do not exist 0.
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


def _weights_of_vectors(conv: Quant8Convolution | FloatConvolution, lanes: int) -> Params:
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

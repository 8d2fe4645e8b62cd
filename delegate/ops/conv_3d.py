# SPDX-License-Identifier: Apache-2.0
"""CONV_3D and CONV_3D_TRANSPOSE in float32: vectors of output channels, and plain."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import PRODUCTS, Growth, sums
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Params
from delegate.ops._checks.activations import activation_of, float_bounds
from delegate.ops._checks.node import (
    elements_of,
    inputs_of,
    output_of,
    require_constant,
    require_shape,
    shape_text,
    vector_of,
)
from delegate.ops._checks.windows import AXES_3D, window_3d
from delegate.ops._convolution.packing import zeros
from delegate.ops._convolution.records import float_bias
from delegate.ops._launches.tiles import HALF_ROUNDS, by_share, lanes_of, launch_over
from delegate.ops._numbers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

_TILE_W = 4  # output pixels per work-item


@lowers("CONV_3D", floats=PRODUCTS)
def lower_conv_3d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve an NDHWC tensor with constant DHWIO weights.

    Shapes:
        input (n, d, h, w, i), weights (kd, kh, kw, i, o), bias (o,) -> output (n, od, oh, ow, o)
    Raises:
        Unsupported: non-constant weights, mismatched shapes, other types.
    Source: tflite/kernels/conv3d.cc, internal/reference/conv3d.h; sums are added in another order,
    so they differ by round-off
    """
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    values = _weights_of(source, weights, result)
    *kernel, in_c, out_c = weights.shape
    if source.shape[-1] != in_c:
        raise Unsupported(f"{source.shape[-1]} input channels: the weights have {in_c}")
    window = window_3d(source, kernel, node.options)
    require_shape(result, (source.shape[0], *(window[f"out_{axis}"] for axis in AXES_3D), out_c))
    columns, phases = window["out_w"], 1
    return _alternatives(
        "conv_3d", (source, result), values, bias, window, (columns, phases), node, target
    )


@lowers("CONV_3D_TRANSPOSE", floats=sums(Growth.STEADY))
def lower_conv_3d_transpose(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute the transposed convolution of an NDHWC tensor with constant DHWOI weights.

    Shapes:
        output shape (5,), weights (kd, kh, kw, o, i), input (n, d, h, w, i), bias (o,)
        -> output (n, od, oh, ow, o)
    Raises:
        Unsupported: a non-constant shape or weights, mismatched shapes, other types.
    Source: tflite/kernels/conv3d_transpose.cc, internal/reference/conv3d_transpose.h
    """
    (shape, weights, source), (bias,) = inputs_of(node.inputs, 3, 1)
    result = output_of(node.outputs)
    values = _weights_of(source, weights, result)
    require_shape(result, vector_of(shape, "output shapes"))
    *kernel, out_c, in_c = weights.shape
    if (source.shape[-1], result.shape[-1]) != (in_c, out_c):
        raise Unsupported(
            f"{source.shape[-1]} input and {result.shape[-1]} output channels: the weights have "
            f"{in_c} and {out_c}"
        )
    window = window_3d(result, kernel, node.options)  # from the output to the input
    require_shape(source, (result.shape[0], *(window[f"out_{axis}"] for axis in AXES_3D), in_c))
    swapped = {f"{end}_{axis}": window[f"{other}_{axis}"] for axis in AXES_3D
               for end, other in (("in", "out"), ("out", "in"))}  # fmt: skip
    stride = window["stride_w"]
    columns = ceil_div(result.shape[3], stride)
    phases = min(stride, result.shape[3])
    return _alternatives(
        "conv_3d_transpose", (source, result), np.swapaxes(values, -1, -2), bias,
        window | swapped, (columns, phases), node, target,
    )  # fmt: skip


def _weights_of(source: Tensor, weights: Tensor, result: Tensor) -> NDArray[np.float32]:
    """Return the constant weights after checking types and ranks; raises Unsupported."""
    for tensor in (source, weights, result):
        if tensor.dtype != "float32":
            raise Unsupported(f"{tensor.dtype}: only float32")
        if len(tensor.shape) != 5 or 0 in tensor.shape:
            raise Unsupported(f"shape {shape_text(tensor)}: rank 5 without a size of 0 is needed")
    values: NDArray[np.float32] = require_constant(weights, "weights").astype(
        np.float32, copy=False
    )
    if not np.isfinite(values).all():
        raise Unsupported("a weight is not finite: times a padding zero it is not zero")
    elements_of(source)
    elements_of(result)
    return values


def _alternatives(
    kernel: str,
    tensors: tuple[Tensor, Tensor],
    values: NDArray[np.float32],
    bias: Tensor | None,
    window: dict[str, int],
    row: tuple[int, int],
    node: Node,
    target: Target,
) -> tuple[Alternative, ...]:
    """Return the alternatives: vectors of channels, if there are enough, and plain.

    `values`: (kd, kh, kw, i, o); `row`: pixels of the longest of a row's phases, and how many
    phases there are.
    """
    (source, result), (columns, phases) = tensors, row
    in_c, out_c = values.shape[-2:]
    taps = math.prod(values.shape[:3])
    if taps * in_c > HALF_ROUNDS:
        raise Unsupported(f"{taps * in_c} terms a sum: too many for a work-item")
    rows = result.shape[0] * window["out_d"] * window["out_h"]
    # The shortest of the phases fills a block, too.
    tile_w = _TILE_W if window["out_w"] // phases >= _TILE_W else 1
    row_blocks = ceil_div(columns, tile_w)
    fields: Params = {
        "input": source,
        "output": result,
        **window,
        "in_c": in_c,
        "out_c": out_c,
        **float_bounds(activation_of(node)),
        "bias": float_bias(bias, out_c),
        "weights": Constant(values.nbytes, lambda: np.ascontiguousarray(values)),
        "zeros": zeros(in_c),
        "row_blocks": row_blocks,
    }
    if kernel == "conv_3d_transpose":
        fields["phases"] = phases

    def alternative(lanes: int, name: str) -> Alternative:
        blocks = ceil_div(out_c, lanes)
        items = rows * phases * row_blocks * blocks
        params = fields | {"channel_blocks": blocks, "items": items}
        defines = {"LANES": lanes, "TILE_W": tile_w}
        tiling = by_share(items, target, most=max(1, HALF_ROUNDS // (taps * in_c)))
        launch = launch_over(kernel, f"{kernel}_float", tiling, params, defines)
        return Alternative(name, (launch,))

    lanes = lanes_of(out_c, target)
    vectors = [alternative(lanes, f"vector {lanes}x{tile_w}")] if lanes > 1 else []
    return (*vectors, alternative(1, "plain"))

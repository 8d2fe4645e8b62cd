# SPDX-License-Identifier: Apache-2.0
"""Convolutions of float32: plain, in blocks of pixels x channels, and the same for 1x1 windows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks.activations import float_bounds
from delegate.ops._checks.node import inputs_of, output_of, require_constant
from delegate.ops._checks.shapes import shape_text
from delegate.ops._checks.windows import Window, window
from delegate.ops._convolution.float_constants import (
    float_bias,
    packed,
    require_float_weights,
    zeros,
)
from delegate.ops._launches.tiles import by_work, tile_w_of
from delegate.target import Target

# Terms of a sum so short, a first layer's say, that what its loops cost is more than what they do:
# their sizes are literals then, and each such layer is a build of its own.
_SHORT = 48


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """A convolution as its kernels see it; FULLY_CONNECTED is one of a single tap."""

    source: Tensor
    weights: NDArray[np.float32]  # (out_c, taps, in_c) as stored
    bias: Constant
    clamp: dict[str, int]  # fields
    result: Tensor
    batch: int
    area: Window

    @property
    def pixels(self) -> int:
        """Output pixels of all pictures."""
        return self.batch * self.area.out_h * self.area.out_w

    @property
    def is_1x1(self) -> bool:
        """Whether each output pixel is made of the input pixel in its place alone."""
        area = self.area
        return (area.kernel_h, area.kernel_w, area.stride_h, area.stride_w) == (1, 1, 1, 1)


def lower(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve an NHWC tensor of float32 with constant OHWI weights.

    Shapes:
        input (n, h, w, i), weights (o, kh, kw, i), bias (o,) -> output (n, oh, ow, o)
    Raises:
        Unsupported: computed weights, groups, weights of another type.
    Source: tflite/kernels/internal/reference/conv.h; sums in another order, so within rounding
    """
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    require_float_weights(weights)
    if len(weights.shape) != 4:
        raise Unsupported(f"weights {shape_text(weights)}: rank 4 (OHWI) is needed")
    out_c, kernel_h, kernel_w, in_c = weights.shape
    area = window(source, result, kernel_h, kernel_w, node.options)
    if source.shape[3] != in_c:
        raise Unsupported(
            f"groups: {in_c} input channels in the weights, {source.shape[3]} in the input"
        )
    if result.shape[3] != out_c:
        raise Unsupported(f"{out_c} channels of weights, {result.shape[3]} of output")
    values = cast(NDArray[np.float32], require_constant(weights, "weights"))
    matrix = Convolution(
        source=source,
        weights=values.reshape(out_c, -1, in_c),
        bias=float_bias(bias, out_c),
        clamp=float_bounds(node.options.get("fused_activation_function", "NONE")),
        result=result,
        batch=source.shape[0],
        area=area,
    )
    return alternatives(matrix, target)


def lower_fully_connected(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply rows of float32 by constant weights.

    Shapes:
        input (..., i) taken as rows of i, weights (o, i), bias (o,) -> output (rows, o)
    Raises:
        Unsupported: computed or shuffled weights, weights of another type.
    Source: tflite/kernels/internal/reference/fully_connected.h
    """
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    require_float_weights(weights)
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
    values = cast(NDArray[np.float32], require_constant(weights, "weights"))
    matrix = Convolution(
        source=source,
        weights=values.reshape(out_c, 1, in_c),
        bias=float_bias(bias, out_c),
        clamp=float_bounds(node.options.get("fused_activation_function", "NONE")),
        result=result,
        batch=rows,
        area=Window(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0),
    )
    return alternatives(matrix, target)


def alternatives(conv: Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches of a convolution: in blocks where one fits, then plain."""
    out_c, taps, in_c = conv.weights.shape
    pixels = conv.pixels
    common: dict[str, int | Tensor | Constant] = {
        "input": conv.source,
        "output": conv.result,
        **conv.area.params(),
        "in_c": in_c,
        "out_c": out_c,
        **conv.clamp,
        "bias": conv.bias,
    }

    def plain() -> Launch:
        elements = pixels * out_c
        return Launch(
            "conv_2d_float",
            "conv_2d_float",
            tiles=-(-elements // 64),
            group_items=64,
            params=common
            | {
                "weights": Constant(conv.weights.nbytes, lambda: conv.weights),
                "elements": elements,
                "tile_items": 64,
            },
            reads=(conv.source,),
            writes=(conv.result,),
        )

    def tiled(lanes: int, vectors: int, tile_w: int) -> Alternative:
        block = lanes * vectors
        blocks, pixel_blocks = -(-out_c // block), -(-pixels // tile_w)
        if not conv.is_1x1:
            row_blocks = -(-conv.area.out_w // tile_w)
            pixel_blocks = conv.batch * conv.area.out_h * row_blocks
        work = tile_w * vectors * taps * in_c
        tile_items = by_work(blocks * pixel_blocks, work, target).tile_items
        if target.group_items == 1:
            tile_items = min(tile_items, pixel_blocks)
        block_tiles = -(-pixel_blocks // tile_items)
        defines: dict[str, int | str] = {"LANES": lanes, "VECTORS": vectors, "TILE_W": tile_w}
        params = common | {
            "weights": Constant(
                4 * blocks * block * taps * in_c, lambda: packed(conv.weights, block)
            ),
            "pixel_blocks": pixel_blocks,
            "block_tiles": block_tiles,
            "tile_items": tile_items,
        }
        if conv.is_1x1:
            params["pixels"] = pixels
        else:
            params["zeros"] = zeros(in_c)
            params["row_blocks"] = row_blocks
            is_short = taps * in_c <= _SHORT
            defines["IS_LITERAL"] = int(is_short)
            if is_short:
                for name in [*conv.area.params(), "in_c", "out_c"]:
                    defines[name.upper()] = cast(int, params.pop(name))
        launch = Launch(
            "conv_2d_float",
            "conv_2d_1x1_float" if conv.is_1x1 else "conv_2d_tiled_float",
            tiles=block_tiles * blocks,
            group_items=target.group_items,
            params=params,
            reads=(conv.source,),
            writes=(conv.result,),
            defines=defines,
        )
        kind = "1x1" if conv.is_1x1 else "tiled"
        return Alternative(f"{kind} {tile_w}x{block}", (launch,))

    return (
        *(
            tiled(*shape)
            for shape in _tile_shapes(out_c, pixels if conv.is_1x1 else conv.area.out_w, target)
        ),
        Alternative("plain", (plain(),)),
    )


def _tile_shapes(out_c: int, pixels: int, target: Target) -> list[tuple[int, int, int]]:
    """Return (lanes, vectors, pixels) of the tiles worth trying, best first."""
    if target.group_items > 1:
        return [(4, 1, tile_w_of(pixels, 4))] if out_c >= 4 else []
    width = min(target.vector_width, 16)
    found: dict[tuple[int, int], tuple[float, int, int, int]] = {}
    for lanes in (16, 8, 4):
        # Sums for half of AVX-512's registers, or of AVX2's; a weight that is for one pixel only
        # is better read with its neighbours.
        sizes = ((1, max(lanes, 8)), (2, max(lanes // 2, 4))) if pixels >= 4 else _FEW
        for vectors, most in sizes:
            block = lanes * vectors
            if lanes > width or block > out_c:
                continue
            tile_w = tile_w_of(pixels, most)
            # Narrow vectors cost nearly as much as wide ones.
            cost = -(-out_c // block) * (vectors + 1 / tile_w) * (lanes + width)
            found.setdefault((tile_w, block), (cost, lanes, vectors, tile_w))
    best = sorted(found.values(), key=lambda entry: entry[0])[:2]
    return [(lanes, vectors, tile_w) for _, lanes, vectors, tile_w in best]


_FEW = ((4, 2), (2, 2), (1, 2))  # vectors, and at most so many pixels

# SPDX-License-Identifier: Apache-2.0
"""Convolutions of int16 with int8 weights: plain, for groups too, and in blocks of channels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import quantized_bounds
from delegate.ops._checks.node import inputs_of, output_of, require_constant
from delegate.ops._checks.shapes import shape_text
from delegate.ops._checks.windows import Window, window
from delegate.ops._convolution.conv_2d_groups import groups_of
from delegate.ops._launches.tiles import by_share
from delegate.ops._launches.wide_sums import TERMS_AN_INT, WideSums, require_16x8, wide_sums
from delegate.target import Target

TILE_W = 4  # pixels a work-item


@dataclass(frozen=True, slots=True, eq=False)
class Convolution16:
    """A convolution as its kernels see it; FULLY_CONNECTED is one of a single tap."""

    source: Tensor
    weights: NDArray[np.generic]  # (out_c, taps, in_c), int8
    sums: WideSums
    clamp: tuple[int, int]
    result: Tensor
    batch: int
    area: Window
    groups: int = 1

    @property
    def pixels(self) -> int:
        """Output pixels of all pictures."""
        return self.batch * self.area.out_h * self.area.out_w

    def params(self) -> dict[str, int | Tensor | Constant]:
        """The fields every kernel reads."""
        out_c, _, in_c = self.weights.shape
        return {
            "input": self.source,
            "output": self.result,
            **self.area.params(),
            "in_c": in_c,
            "out_c": out_c,
            "output_min": self.clamp[0],
            "output_max": self.clamp[1],
            "channels": self.sums.rows(),
        }


def lower(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve an NHWC tensor of int16 with constant OHWI weights of int8.

    Shapes:
        input (n, h, w, g * i), weights (o, kh, kw, i), bias (o,) -> output (n, oh, ow, o)
    Raises:
        Unsupported: computed weights, channels that make no groups, other types.
    Source: tflite/kernels/internal/reference/integer_ops/conv.h, the int16 overload
    """
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    require_16x8(source, weights, result)
    if len(weights.shape) != 4:
        raise Unsupported(f"weights {shape_text(weights)}: rank 4 (OHWI) is needed")
    out_c, kernel_h, kernel_w, in_c = weights.shape
    area = window(source, result, kernel_h, kernel_w, node.options)
    groups = groups_of(source, weights)
    if result.shape[3] != out_c:
        raise Unsupported(f"{out_c} channels of weights, {result.shape[3]} of output")
    conv = Convolution16(
        source=source,
        weights=require_constant(weights, "weights").reshape(out_c, -1, in_c),
        sums=wide_sums(source, weights, bias, result, 0, target.rules),
        clamp=quantized_bounds(
            result, node.options.get("fused_activation_function", "NONE"), quantized.QUANT
        ),
        result=result,
        batch=source.shape[0],
        area=area,
        groups=groups,
    )
    return alternatives(conv, target)


def alternatives(conv: Convolution16, target: Target) -> tuple[Alternative, ...]:
    """Return the launches of a convolution: in blocks where one fits, then plain."""
    out_c, _, in_c = conv.weights.shape
    elements = conv.pixels * out_c
    rounding: dict[str, int | str] = {"ROUNDING": conv.sums.rounding}
    plain = Launch(
        "conv_2d_quant16",
        "conv_2d_quant16",
        tiles=-(-elements // 64),
        group_items=64,
        params=conv.params()
        | {
            "weights": Constant(conv.weights.nbytes, lambda: conv.weights),
            "source_c": in_c * conv.groups,
            "group_c": out_c // conv.groups,
            "elements": elements,
            "tile_items": 64,
        },
        reads=(conv.source,),
        writes=(conv.result,),
        defines=rounding,
    )
    plain_last = (Alternative("plain", (plain,)),)
    block = _block_of(out_c, target)
    if block is None or conv.groups > 1:
        return plain_last
    lanes, vectors = block
    size = lanes * vectors
    tile_w = TILE_W if conv.pixels >= TILE_W else 1
    blocks, pixel_blocks = -(-out_c // size), -(-conv.pixels // tile_w)
    tile_items = by_share(blocks * pixel_blocks, target, most=pixel_blocks).tile_items
    block_tiles = -(-pixel_blocks // tile_items)
    pairs = -(-in_c // 2)
    tiled = Launch(
        "conv_2d_quant16",
        "conv_2d_tiled_quant16",
        tiles=block_tiles * blocks,
        group_items=target.group_items,
        params=conv.params()
        | {
            "weights": _paired_weights(conv.weights, size),
            "zeros": Constant(4 * pairs + 32, lambda: np.zeros(2 * pairs + 16, np.int16)),
            "pairs": pairs,
            "taps_a_part": max(1, TERMS_AN_INT // (2 * pairs)),
            "pairs_a_part": TERMS_AN_INT // 2,
            "pixels": conv.pixels,
            "pixel_blocks": pixel_blocks,
            "block_tiles": block_tiles,
            "tile_items": tile_items,
        },
        reads=(conv.source,),
        writes=(conv.result,),
        defines=rounding | {"LANES": lanes, "VECTORS": vectors, "TILE_W": tile_w},
    )
    return (Alternative(f"tiled {lanes}x{vectors}", (tiled,)), *plain_last)


def _block_of(channels: int, target: Target) -> tuple[int, int] | None:
    """Return (lanes, vectors) of the block that wastes least, or None where none fits."""
    if target.group_items > 1:
        return (4, 1) if channels >= 4 else None
    width = min(target.vector_width, 16)
    sizes = [(width, 2), (width, 1), *((lanes, 1) for lanes in (8, 4) if lanes < width)]
    fitting = [(lanes, vectors) for lanes, vectors in sizes if lanes * vectors <= channels]
    # A block costs its vectors, and about half of one for what does not depend on their number.
    return min(fitting, default=None, key=lambda s: -(-channels // (s[0] * s[1])) * (s[1] + 0.5))


def _paired_weights(weights: NDArray[np.generic], block: int) -> Constant:
    out_c, taps, in_c = weights.shape
    blocks, pairs = -(-out_c // block), -(-in_c // 2)

    def pack() -> NDArray[np.int16]:
        # The last block starts so that it ends with the last channel, as in the kernel.
        starts = np.minimum(np.arange(blocks) * block, out_c - block)
        rows = (starts[:, None] + np.arange(block)).ravel()
        padded = np.zeros((blocks * block, taps, 2 * pairs), np.int16)
        padded[:, :, :in_c] = weights[rows]
        # (blocks, block, taps, pairs, 2) -> (blocks, taps, pairs, block, 2)
        return np.ascontiguousarray(
            padded.reshape(blocks, block, taps, pairs, 2).transpose(0, 2, 3, 1, 4)
        )

    return Constant(4 * blocks * block * taps * pairs, pack)

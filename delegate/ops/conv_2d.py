# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, 8 bit: the plain kernel, and one that computes blocks of pixels x channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch, Target
from delegate.ops import _quantize
from delegate.ops._geometry import Window, shape_text, window
from delegate.ops._registry import lowers

TILE_W = 4  # pixels a work-item; with 2 vectors of 16 lanes it fills 8 of AVX-512's 32 registers


@lowers("CONV_2D")
def lower_conv_2d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve an NHWC tensor with constant OHWI weights.

    Shapes:
        input (n, h, w, i), weights (o, kh, kw, i), bias (o,) -> output (n, oh, ow, o)
    Raises:
        Unsupported: computed weights, groups, types other than uint8 and int8.
    Source: tflite/kernels/internal/reference/conv.h, integer_ops/conv.h
    """
    (source, weights), (bias,) = _quantize.inputs_of(node.inputs, 2, 1)
    result = _quantize.output_of(node.outputs)
    require_quant8_weights(source, weights, result)
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
    matrix = Convolution(
        source=source,
        weights=_quantize.require_constant(weights, "weights").reshape(out_c, -1, in_c),
        weight_zero=_quantize.weight_scales(weights, 0)[1],
        bias=_quantize.int32_bias(bias, out_c),
        scaling=_quantize.convolution_multipliers(
            source, weights, result, 0, per_channel=source.dtype == "int8"
        ),
        clamp=_quantize.activation_range(
            result, node.options.get("fused_activation_function", "NONE")
        ),
        result=result,
        batch=source.shape[0],
        area=area,
    )
    return alternatives(matrix, target)


def require_quant8_weights(source: Tensor, weights: Tensor, result: Tensor) -> None:
    """Check the types of a convolution-like node.

    Raises:
        Unsupported: activations that are not 8 bit or differ, weights of another type.
    """
    if source.dtype not in _quantize.QUANT8 or source.dtype != result.dtype:
        raise Unsupported(
            f"{source.dtype} in, {result.dtype} out: only uint8 or int8 in both are implemented"
        )
    if weights.dtype != source.dtype:
        raise Unsupported(f"{weights.dtype} weights with {source.dtype} activations")


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """A convolution as its kernels see it; FULLY_CONNECTED is one of a single tap."""

    source: Tensor
    weights: NDArray[np.generic]  # (out_c, taps, in_c) as stored
    weight_zero: int
    bias: NDArray[np.int64]  # (out_c,)
    scaling: NDArray[np.int32]  # (2, out_c): multiplier, shift
    clamp: tuple[int, int]
    result: Tensor
    batch: int
    area: Window
    single_rounding: bool = False


def alternatives(conv: Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches of a convolution: tiled where a block fits, then plain."""
    out_c, _, in_c = conv.weights.shape
    pixels = conv.batch * conv.area.out_h * conv.area.out_w
    input_zero = _quantize.per_tensor(conv.source)[1]
    common: dict[str, int | Tensor | Constant] = {
        "input": conv.source,
        "output": conv.result,
        **conv.area.params(),
        "in_c": in_c,
        "out_c": out_c,
        "output_zero": _quantize.per_tensor(conv.result)[1],
        "output_min": conv.clamp[0],
        "output_max": conv.clamp[1],
    }
    elem = _quantize.ELEM[conv.source.dtype]
    rounding: dict[str, int | str] = {"SINGLE_ROUNDING": int(conv.single_rounding)}

    def plain() -> Launch:
        elements = pixels * out_c
        return Launch(
            "conv_2d",
            "conv_2d_quant8",
            tiles=-(-elements // 64),
            group_items=64,
            params=common
            | {
                "weights": Constant(conv.weights.nbytes, lambda: conv.weights),
                "channels": channel_rows(lambda: conv.bias, conv.scaling),
                "input_zero": input_zero,
                "weight_zero": conv.weight_zero,
                "elements": elements,
                "tile_items": 64,
            },
            reads=(conv.source,),
            writes=(conv.result,),
            defines=rounding | {"ELEM": elem, "WEIGHT": elem},
        )

    def folded_bias() -> NDArray[np.int64]:
        folded: NDArray[np.int64] = conv.bias - input_zero * _centred(conv).sum((1, 2))
        return folded

    def tiled(lanes: int, vectors: int) -> Launch:
        block = lanes * vectors
        tile_w = TILE_W if pixels >= TILE_W else 1
        blocks, pixel_blocks = -(-out_c // block), -(-pixels // tile_w)
        tile_items = items_a_tile(blocks * pixel_blocks, pixel_blocks, target)
        block_tiles = -(-pixel_blocks // tile_items)
        return Launch(
            "conv_2d",
            "conv_2d_tiled_quant8",
            tiles=block_tiles * blocks,
            group_items=target.group_items,
            params=common
            | {
                "weights": _paired_weights(conv, block),
                "channels": channel_rows(folded_bias, conv.scaling),
                "zeros": zeros_row(in_c, input_zero, conv.source.dtype),
                "pairs": -(-in_c // 2),
                "pixels": pixels,
                "pixel_blocks": pixel_blocks,
                "block_tiles": block_tiles,
                "tile_items": tile_items,
            },
            reads=(conv.source,),
            writes=(conv.result,),
            defines=rounding | {"ELEM": elem, "LANES": lanes, "VECTORS": vectors, "TILE_W": tile_w},
        )

    best = block_of(out_c, target)
    plain_last = (Alternative("plain", (plain(),)),)
    if best is None:
        return plain_last
    lanes, vectors = best
    return (Alternative(f"tiled {lanes}x{vectors}", (tiled(lanes, vectors),)), *plain_last)


def block_of(channels: int, target: Target) -> tuple[int, int] | None:
    """Return (lanes, vectors) of the block that wastes least, or None where none fits."""
    if target.group_items > 1:
        sizes: Sequence[tuple[int, int]] = ((4, 1),)
    else:
        width = min(target.vector_width, 16)
        sizes = [(width, 2), (width, 1), *((lanes, 1) for lanes in (8, 4) if lanes < width)]
    fitting = [(lanes, vectors) for lanes, vectors in sizes if lanes * vectors <= channels]
    # A block costs its vectors, and about half of one for what does not depend on their number.
    return min(fitting, default=None, key=lambda s: -(-channels // (s[0] * s[1])) * (s[1] + 0.5))


def items_a_tile(items: int, most: int, target: Target) -> int:
    """Return how many items a work-group takes: 64, or on one-item groups a sixteenth a core."""
    if target.group_items > 1:
        return target.group_items
    return max(1, min(most, -(-items // (16 * target.compute_units))))


def zeros_row(channels: int, zero_point: int, dtype: str) -> Constant:
    """A pixel of zero points, which out-of-bounds taps read, and room for one vector more."""
    return Constant(channels + 16, lambda: np.full(channels + 16, zero_point, dtype))


def channel_rows(bias: Callable[[], NDArray[np.int64]], scaling: NDArray[np.int32]) -> Constant:
    """Each output channel's bias, multiplier and shift: three rows of int32."""
    return Constant(
        12 * scaling.shape[1],
        lambda: np.concatenate([_quantize.wrap_int32(bias())[None], scaling]),
    )


def _centred(conv: Convolution) -> NDArray[np.int64]:
    centred: NDArray[np.int64] = conv.weights.astype(np.int64) - conv.weight_zero
    return centred


def _paired_weights(conv: Convolution, block: int) -> Constant:
    out_c, taps, in_c = conv.weights.shape
    blocks, pairs = -(-out_c // block), -(-in_c // 2)

    def pack() -> NDArray[np.int16]:
        # The last block starts so that it ends with the last channel, as in the kernel.
        starts = np.minimum(np.arange(blocks) * block, out_c - block)
        rows = (starts[:, None] + np.arange(block)).ravel()
        padded = np.zeros((blocks * block, taps, 2 * pairs), np.int16)
        padded[:, :, :in_c] = _centred(conv)[rows]
        # (blocks, block, taps, pairs, 2) -> (blocks, taps, pairs, block, 2)
        return np.ascontiguousarray(
            padded.reshape(blocks, block, taps, pairs, 2).transpose(0, 2, 3, 1, 4)
        )

    return Constant(4 * blocks * block * taps * pairs, pack)

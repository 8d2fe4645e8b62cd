# SPDX-License-Identifier: Apache-2.0
"""Hybrid convolutions, of float images and int8 weights, on any device.

Each image is quantised to int8 and stored as int16 minus its zero point, so that padding is 0.
Alternatives: vectors of channels, and plain.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._checks.node import elements_of
from delegate.ops._convolution.arm import conv_2d as arm_conv_2d
from delegate.ops._convolution.hybrid import Product, Rows, quantised
from delegate.ops._convolution.integers import TILE_W, block_of
from delegate.ops._convolution.nvidia import conv_2d as nvidia_conv_2d
from delegate.ops._convolution.packing import fallback, int16_pairs
from delegate.ops._convolution.x86 import conv_2d as x86_conv_2d
from delegate.ops._launches.tiles import (
    by_share,
    in_blocks,
    lanes_of,
    launch_of,
    launch_over,
    tile_w_of,
)
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_WIDE = 64  # values in registers for a tile of TILE_W pixels


def conv_2d(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives of a CONV_2D: proven instructions first, the fallback last."""
    variants = (x86_conv_2d.hybrid, arm_conv_2d.hybrid, nvidia_conv_2d.hybrid)
    fast = (each for variant in variants for each in variant(product, target))
    return (*fast, *_portable(product, target))


def _portable(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return the portable alternatives: blocks if one fits, then plain, which supports groups."""
    product, images = _quantised(product, target)
    file, scales = "conv_2d_hybrid", _scales(images)
    defines: Defines = product.defines
    groups = {"group_in_c": product.group_in_c, "group_out_c": product.group_out_c}
    plain = _after(images, fallback(product, file, file, product.weights, scales | groups, defines))
    is_cpu = target.group_items == 1
    lanes = lanes_of(product.out_c, target)
    block = block_of(product.out_c, target) if is_cpu else (lanes, 1) if lanes else None
    if block is None or product.groups > 1:
        return (plain,)
    lanes, vectors = block
    tile_w = tile_w_of(product.pixels, TILE_W if target.keeps(_WIDE) else TILE_W // 2)
    blocks = ceil_div(product.out_c, lanes * vectors)
    pixel_blocks = ceil_div(product.pixels, tile_w)
    tiling = by_share(blocks * pixel_blocks, target, most=pixel_blocks)
    tiles, fields = in_blocks(blocks, pixel_blocks, tiling)
    pairs = ceil_div(product.in_c, 2)
    is_aligned = not is_cpu and product.out_c % (lanes * vectors) == 0 and product.in_c % 2 == 0
    params: Params = {
        **product.params(),
        **scales,
        "weights": int16_pairs(product, product.layer.widened, lanes * vectors),
        "zeros": Constant(4 * pairs + 32, lambda: np.zeros(2 * pairs + 16, np.int16)),
        "pairs": pairs,
        "pixels": product.pixels,
        **fields,
    }
    defines |= {"LANES": lanes, "VECTORS": vectors, "TILE_W": tile_w, "IS_ALIGNED": int(is_aligned)}
    kernel = "conv_2d_tiled_hybrid"
    launch = launch_of(file, kernel, tiles, target.group_items, params, defines)
    return _after(images, Alternative(f"tiled {lanes}x{vectors}", (launch,))), plain


def depthwise_conv_2d(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives of a depthwise convolution: vectors if they fit, then plain."""
    product, images = _quantised(product, target)
    file, scales = "depthwise_conv_2d_hybrid", _scales(images)
    extra = {"depth_multiplier": product.group_out_c}
    plain = _after(images, fallback(product, file, file, product.by_tap(), scales | extra))
    lanes = lanes_of(product.out_c, target)
    if lanes == 0 or product.group_out_c > 1:
        return (plain,)
    tile_w = TILE_W if product.area.out_w >= TILE_W else 1
    channel_blocks = ceil_div(product.out_c, lanes)
    row_blocks = ceil_div(product.area.out_w, tile_w)
    items = product.batch * product.area.out_h * row_blocks * channel_blocks
    is_aligned = target.group_items > 1 and product.out_c % lanes == 0
    layer = product.layer
    params: Params = {
        **product.params(),
        **scales,
        "weights": Constant(2 * product.weights.size, lambda: layer.by_tap().astype(np.int16)),
        "zeros": Constant(2 * lanes, lambda: np.zeros(lanes, np.int16)),
        "items": items,
        "channel_blocks": channel_blocks,
        "row_blocks": row_blocks,
    }
    defines: Defines = {"LANES": lanes, "TILE_W": tile_w, "IS_ALIGNED": int(is_aligned)}
    tiling, kernel = by_share(items, target), "depthwise_conv_2d_vector_hybrid"
    launch = launch_over(file, kernel, tiling, params, defines)
    return _after(images, Alternative(f"vector {lanes}x{tile_w}", (launch,))), plain


def _quantised(product: Product, target: Target) -> tuple[Product, Rows]:
    """Return the convolution on quantised images, and these with the launches that quantise.

    Raises:
        Unsupported: an image with too many elements.
    """
    depth = product.area.in_h * product.area.in_w * product.in_c
    elements_of(product.source)
    sizes = (product.batch, depth, depth)
    rows = quantised(product.source, sizes, product.is_asymmetric, target, "int16", is_centred=True)
    return replace(product, source=rows.values), rows


def _scales(images: Rows) -> dict[str, int | Tensor]:
    return {"row_scales": images.scales}


def _after(images: Rows, alternative: Alternative) -> Alternative:
    return replace(alternative, launches=(*images.launches, *alternative.launches))

# SPDX-License-Identifier: Apache-2.0
"""Hybrid TRANSPOSE_CONV, of float images and int8 weights, on any device.

TFLite scales each product and adds it to a float, in order, so these kernels do the same. On
aarch64 TFLite's compiler fused that product and addition, so they round once. Images are quantised
to int8 and stored as floats minus the zero point. Alternatives: vectors of channels, and plain.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.errors import Unsupported
from delegate.launch import Alternative, Constant, Params
from delegate.ops._checks.node import elements_of
from delegate.ops._convolution.hybrid import Product, quantised
from delegate.ops._convolution.packing import fallback, packed, zeros
from delegate.ops._launches.tiles import HALF_ROUNDS, by_share, in_blocks, lanes_of, launch_of
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_TILE_W = 4  # output pixels per work-item, a stride apart


def transpose_conv(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives of a TRANSPOSE_CONV, the fallback last.

    Raises:
        Unsupported: an image with too many elements, windows with too many terms.
    Source: tflite/kernels/transpose_conv.cc EvalHybrid, internal/reference/transpose_conv.h
    HybridTransposeConv
    """
    area = product.area
    taps = ceil_div(area.kernel_h, area.stride_h) * ceil_div(area.kernel_w, area.stride_w)
    if taps * product.in_c > HALF_ROUNDS:
        raise Unsupported(f"{taps * product.in_c} terms a sum: too many for a work-item")
    elements_of(product.source)
    depth = area.in_h * area.in_w * product.in_c
    sizes = (product.batch, depth, depth)
    rows = quantised(product.source, sizes, True, target, "float32", is_centred=True)
    conv = replace(product, source=rows.values)
    params: Params = {"row_scales": rows.scales}

    def after(alternative: Alternative) -> Alternative:
        return replace(alternative, launches=(*rows.launches, *alternative.launches))

    file = "transpose_conv_hybrid"
    plain = after(
        fallback(conv, file, file, conv.weights, {"row_scales": rows.scales}, conv.defines)
    )
    lanes = lanes_of(conv.out_c, target)
    if lanes == 0:
        return (plain,)
    tile_w = _TILE_W if area.out_w // area.stride_w >= _TILE_W else 1
    phases = min(area.stride_w, area.out_w)
    row_blocks = ceil_div(ceil_div(area.out_w, area.stride_w), tile_w)
    pixel_blocks = conv.batch * area.out_h * phases * row_blocks
    blocks = ceil_div(conv.out_c, lanes)
    most = min(pixel_blocks, max(1, HALF_ROUNDS // (taps * product.in_c)))
    tiling = by_share(blocks * pixel_blocks, target, most=most)
    tiles, fields = in_blocks(blocks, pixel_blocks, tiling)
    layer, size = conv.layer, blocks * lanes * conv.taps * conv.in_c
    params |= {
        **conv.params(),
        "weights": Constant(size, lambda: packed(layer.weights.astype(np.int8), lanes)),
        "zeros": zeros(conv.in_c),
        "phases": phases,
        "row_blocks": row_blocks,
        **fields,
    }
    defines = {**conv.defines, "LANES": lanes, "TILE_W": tile_w}
    kernel = "transpose_conv_vector_hybrid"
    launch = launch_of(file, kernel, tiles, target.group_items, params, defines)
    return after(Alternative(f"vector {lanes}x{tile_w}", (launch,))), plain

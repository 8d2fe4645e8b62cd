# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV of float pictures with int8 weights, on any device: over vectors, then plain.

TFLite adds each product to a float, scaled, one after the other, so these kernels do, too. On
aarch64 its compiler made one operation of the last product and that sum, so they are rounded once.
Each picture becomes int8 numbers, which are less its zero point here, as floats.
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

_TILE_W = 4  # output pixels a work-item, a stride apart


def transpose_conv(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return the launches of a TRANSPOSE_CONV, the plain one last.

    Raises:
        Unsupported: a picture of more numbers than kernels count, windows of too many terms.
    Source: tflite/kernels/transpose_conv.cc EvalHybrid, internal/reference/transpose_conv.h
    HybridTransposeConv
    """
    area = product.area
    taps = ceil_div(area.kernel_h, area.stride_h) * ceil_div(area.kernel_w, area.stride_w)
    if taps * product.in_c > HALF_ROUNDS:
        raise Unsupported(f"{taps * product.in_c} terms a sum: more than a work-item adds")
    elements_of(product.source)
    depth = area.in_h * area.in_w * product.in_c
    sizes = (product.batch, depth, depth)
    rows = quantised(product.source, sizes, True, target, "float32", is_centred=True)
    conv = replace(product, source=rows.values)
    own: Params = {"row_scales": rows.scales}

    def after(alternative: Alternative) -> Alternative:
        return replace(alternative, launches=(*rows.launches, *alternative.launches))

    file = "transpose_conv_hybrid"
    last = after(
        fallback(conv, file, file, conv.weights, {"row_scales": rows.scales}, conv.defines)
    )
    lanes = lanes_of(conv.out_c, target)
    if lanes == 0:
        return (last,)
    tile_w = _TILE_W if area.out_w // area.stride_w >= _TILE_W else 1
    phases = min(area.stride_w, area.out_w)
    row_blocks = ceil_div(ceil_div(area.out_w, area.stride_w), tile_w)
    pixel_blocks = conv.batch * area.out_h * phases * row_blocks
    blocks = ceil_div(conv.out_c, lanes)
    most = min(pixel_blocks, max(1, HALF_ROUNDS // (taps * product.in_c)))
    tiling = by_share(blocks * pixel_blocks, target, most=most)
    tiles, fields = in_blocks(blocks, pixel_blocks, tiling)
    layer, size = conv.layer, blocks * lanes * conv.taps * conv.in_c
    own |= {
        **conv.params(),
        "weights": Constant(size, lambda: packed(layer.weights.astype(np.int8), lanes)),
        "zeros": zeros(conv.in_c),
        "phases": phases,
        "row_blocks": row_blocks,
        **fields,
    }
    defines = {**conv.defines, "LANES": lanes, "TILE_W": tile_w}
    kernel = "transpose_conv_vector_hybrid"
    launch = launch_of(file, kernel, tiles, target.group_items, own, defines)
    return after(Alternative(f"vector {lanes}x{tile_w}", (launch,))), last

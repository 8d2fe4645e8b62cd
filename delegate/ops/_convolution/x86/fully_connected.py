# SPDX-License-Identifier: Apache-2.0
"""Hybrid FULLY_CONNECTED by AVX2's products of pairs of 16 bits."""

from __future__ import annotations

from delegate.launch import Alternative, Params
from delegate.ops._convolution.hybrid import Product, blocks_of, by_rows, quantised_rows
from delegate.ops._convolution.packing import int16_pairs
from delegate.ops._launches.tiles import by_share, launch_over
from delegate.target import Target

_BLOCK = 16  # channels: two vectors, whose sums of 6 rows fill 12 of 16 registers
_TILES = (6, 4, 2, 1)  # rows of a block


def alternatives(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return the launches; none where AVX2 is not proven, or channels do not fill a block."""
    if "avx2" not in target.isa or target.group_items > 1 or product.out_c < _BLOCK:
        return ()
    rows = quantised_rows(product, target, "int16")
    tile_w = next(size for size in _TILES if size <= product.batch)
    blocks = blocks_of(product, tile_w, _BLOCK)
    weights: Params = {"weights": int16_pairs(product, product.layer.widened, _BLOCK)}
    tiling = by_share(int(blocks["items"]), target)
    file, params = "fully_connected_avx2", by_rows(product, rows) | blocks | weights
    launch = launch_over(
        file, f"{file}_hybrid", tiling, params, product.defines | {"TILE_W": tile_w}
    )
    return (Alternative(f"avx2 {tile_w}x{_BLOCK}", (*rows.launches, launch)),)

# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED of floats and quantised weights, by x86 instructions proven on the device.

The kernels for int8 weights share fully_connected_x86.clh, those for int4 weights in blocks
fully_connected_blocks.clh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from delegate.launch import Alternative, Params
from delegate.ops._convolution import hybrid, panels_blocks
from delegate.ops._convolution.hybrid_blocks import BlockProduct
from delegate.ops._convolution.panels_blocks import BlockwiseGemmConfig
from delegate.ops._convolution.panels_hybrid import in_steps
from delegate.ops._convolution.x86 import tiles
from delegate.ops._convolution.x86.conv_2d import hybrid_in_tiles
from delegate.ops._launches.tiles import by_share, launch_over
from delegate.ops._numbers import ceil_div
from delegate.target import Target


@dataclass(frozen=True, slots=True)
class FullyConnectedConfig:
    """An inner product, and the blocks of the result whose sums fill its registers."""

    isa: str
    lanes: int  # channels a vector
    values: int  # of a row that are multiplied at a time
    dtype: str  # of these values
    tiles: tuple[tuple[int, int, int], ...]  # rows, vectors of channels, sums of a channel


# Blocks of one row are as wide as those of more rows, so all read the same packed weights.
KINDS = (
    FullyConnectedConfig("vnni", 16, 4, "uint8", ((7, 2, 1), (4, 2, 1), (2, 2, 2), (1, 2, 4))),
    FullyConnectedConfig("avx2", 8, 2, "int16", ((6, 2, 1), (4, 2, 1), (2, 2, 1), (1, 2, 2))),
)
_LEAST_TILE_ROWS = 16  # with fewer, sums in vector registers are faster
_BLOCK_TILES = ((4, 2), (2, 2), (1, 2))
BLOCK_KINDS = (
    BlockwiseGemmConfig(
        tiles.ISA,
        tiles.NAME,
        tiles.LANES,
        ((_LEAST_TILE_ROWS, tiles.VECTORS),),
        takes_int8=True,
        sized_for=tiles.sized_for,
    ),
    BlockwiseGemmConfig(frozenset({"vnni"}), "vnni", 16, _BLOCK_TILES),
    BlockwiseGemmConfig(frozenset({"avx2"}), "avx2", 8, _BLOCK_TILES),
)


def of_blocks(product: BlockProduct, target: Target) -> Iterator[Alternative]:
    """Yield the launches for int4 weights in blocks, the fastest expected first."""
    return panels_blocks.alternatives(product, target, BLOCK_KINDS)


def alternatives(product: hybrid.Product, target: Target) -> Iterator[Alternative]:
    """Yield the launches for int8 weights, the fastest expected first."""
    yield from hybrid_in_tiles(product, target)
    for kind in _proven(target):
        tile_w, vectors, split = next(tile for tile in kind.tiles if tile[0] <= product.batch)
        block = vectors * kind.lanes
        if product.out_c < block:
            continue
        rows = hybrid.quantised_rows(product, target, kind.dtype)
        steps = ceil_div(ceil_div(product.in_c, kind.values), split) * split
        weights: Params = {
            "weights": in_steps(product, 1, steps, kind.values, block),
            "steps": steps,
        }
        blocks = hybrid.blocks_of(product, tile_w, block)
        file, params = f"fully_connected_{kind.isa}", hybrid.by_rows(product, rows) | blocks
        launch = launch_over(
            file,
            f"{file}_hybrid",
            by_share(blocks["items"], target),
            params | weights,
            product.defines | {"TILE_W": tile_w, "VECTORS": vectors, "SPLIT": split},
        )
        yield Alternative(f"{kind.isa} {tile_w}x{block}", (*rows.launches, launch))


def _proven(target: Target) -> Iterator[FullyConnectedConfig]:
    return (kind for kind in KINDS if kind.isa in target.isa and target.group_items == 1)

# SPDX-License-Identifier: Apache-2.0
"""Hybrid FULLY_CONNECTED by x86 instructions that were proven on the device.

The kernels are in fully_connected_vnni.cl and fully_connected_avx2.cl, which share
fully_connected_x86.clh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from delegate.launch import Alternative, Params
from delegate.ops._convolution import hybrid
from delegate.ops._convolution.panels_hybrid import in_steps
from delegate.ops._launches.tiles import by_share, launch_over
from delegate.ops._numbers import ceil_div
from delegate.target import Target


@dataclass(frozen=True, slots=True)
class FullyConnectedConfig:
    """Instructions, and the blocks of the result whose sums fill their registers."""

    isa: str
    lanes: int  # channels a vector
    values: int  # of a row that are multiplied at a time
    dtype: str  # of these values
    tiles: tuple[tuple[int, int, int], ...]  # rows, vectors of channels, sums of a channel


# One row has blocks as wide as more rows have: its weights lie as theirs do, and are packed once.
KINDS = (
    FullyConnectedConfig("vnni", 16, 4, "uint8", ((7, 2, 1), (4, 2, 1), (2, 2, 2), (1, 2, 4))),
    FullyConnectedConfig("avx2", 8, 2, "int16", ((6, 2, 1), (4, 2, 1), (2, 2, 1), (1, 2, 2))),
)


def alternatives(product: hybrid.Product, target: Target) -> Iterator[Alternative]:
    """Yield the launches this target was proven to run, the fastest expected first."""
    for kind in _proven(target):
        tile_w, vectors, split = next(tile for tile in kind.tiles if tile[0] <= product.batch)
        block = vectors * kind.lanes
        if product.out_c < block:
            continue
        rows = hybrid.quantised_rows(product, target, kind.dtype)
        steps = ceil_div(ceil_div(product.in_c, kind.values), split) * split
        own: Params = {
            "weights": in_steps(product, 1, steps, kind.values, block),
            "steps": steps,
        }
        blocks = hybrid.blocks_of(product, tile_w, block)
        file, params = f"fully_connected_{kind.isa}", hybrid.by_rows(product, rows) | blocks | own
        launch = launch_over(
            file,
            f"{file}_hybrid",
            by_share(blocks["items"], target),
            params,
            product.defines | {"TILE_W": tile_w, "VECTORS": vectors, "SPLIT": split},
        )
        yield Alternative(f"{kind.isa} {tile_w}x{block}", (*rows.launches, launch))


def _proven(target: Target) -> Iterator[FullyConnectedConfig]:
    return (kind for kind in KINDS if kind.isa in target.isa and target.group_items == 1)

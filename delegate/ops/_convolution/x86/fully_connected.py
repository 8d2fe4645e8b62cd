# SPDX-License-Identifier: Apache-2.0
"""Hybrid FULLY_CONNECTED by x86 instructions that were proven on the device.

The kernels are fully_connected_vnni.cl and fully_connected_avx2.cl, which share
fully_connected_x86.clh.
"""

from __future__ import annotations

from dataclasses import dataclass

from delegate.launch import Alternative, Params
from delegate.ops._convolution.hybrid import Product, blocks_of, by_rows, quantised_rows
from delegate.ops._convolution.packing import in_steps_of
from delegate.ops._launches.tiles import by_share, launch_over
from delegate.ops._numbers import ceil_div
from delegate.target import Target


@dataclass(frozen=True, slots=True)
class Kind:
    """Instructions, and the blocks whose sums fill their registers."""

    isa: str
    lanes: int  # channels a vector
    values: int  # of a row that are multiplied at a time
    dtype: str  # of these values
    blocks: tuple[tuple[int, int, int], ...]  # rows, vectors of channels, sums of a channel


# One row is bound by the memory that weights are read from: narrow blocks share it more evenly.
KINDS = (
    Kind("vnni", 16, 4, "uint8", ((7, 2, 1), (4, 2, 1), (2, 2, 2), (1, 1, 4))),
    Kind("avx2", 8, 2, "int16", ((6, 2, 1), (4, 2, 1), (2, 2, 1), (1, 2, 2))),
)


def alternatives(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return the launches this target was proven to run, the fastest expected first."""
    if target.group_items > 1:
        return ()
    kinds = (kind for kind in KINDS if kind.isa in target.isa)
    return tuple(found for kind in kinds for found in _of_kind(product, target, kind))


def _of_kind(product: Product, target: Target, kind: Kind) -> tuple[Alternative, ...]:
    """Return a kind's launches; none where the channels do not fill a block."""
    fitting = (block for block in kind.blocks if block[0] <= product.batch)
    tile_w, vectors, split = next(fitting)
    block = vectors * kind.lanes
    if product.out_c < block:
        return ()
    rows = quantised_rows(product, target, kind.dtype)
    steps = ceil_div(ceil_div(product.in_c, kind.values), split) * split
    weights = product.weights
    own: Params = {
        "weights": in_steps_of((steps, kind.values), product, lambda: weights, block, "int8"),
        "steps": steps,
    }
    blocks = blocks_of(product, tile_w, block)
    tiling = by_share(blocks["items"], target)
    file, params = f"fully_connected_{kind.isa}", by_rows(product, rows) | blocks | own
    defines = product.defines | {"TILE_W": tile_w, "VECTORS": vectors, "SPLIT": split}
    launch = launch_over(file, f"{file}_hybrid", tiling, params, defines)
    return (Alternative(f"{kind.isa} {tile_w}x{block}", (*rows.launches, launch)),)

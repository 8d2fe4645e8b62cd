# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED of float rows and int4 weights in blocks, by a CPU's proven instructions.

The kernels are in fully_connected_amx.cl, fully_connected_vnni.cl, fully_connected_avx2.cl and
fully_connected_dotprod.cl, which share fully_connected_blocks.clh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._convolution import hybrid
from delegate.ops._convolution.hybrid_blocks import BlockProduct, by_eights
from delegate.ops._convolution.x86 import tiles
from delegate.ops._launches.tiles import by_share, launch_over
from delegate.ops._numbers import ceil_div
from delegate.ops._numbers.order import in_blocks_of, transposed
from delegate.target import Target

_GROUP = 32  # weights of a channel that are summed up before sums could pass 16 bits
_SCALES = "float16"  # of a block, as in the file
_AMX_ROWS = 16  # of fewer VNNI's sums, which stay in registers, are faster


@dataclass(frozen=True, slots=True)
class BlockwiseGemmConfig:
    """Instructions, and the blocks of the result whose sums fill their registers."""

    isa: frozenset[str]
    name: str  # of its kernel, too
    lanes: int  # channels a vector
    tiles: tuple[tuple[int, int], ...]  # rows, vectors of channels; of AMX at least so many rows


# One row has blocks as wide as more rows have: its weights lie as theirs do, and are packed once.
KINDS = (
    BlockwiseGemmConfig(tiles.ISA, "amx", 16, ((_AMX_ROWS, 2),)),
    BlockwiseGemmConfig(frozenset({"vnni"}), "vnni", 16, ((4, 2), (2, 2), (1, 2))),
    BlockwiseGemmConfig(frozenset({"avx2"}), "avx2", 8, ((4, 2), (2, 2), (1, 2))),
    BlockwiseGemmConfig(frozenset({"dotprod"}), "dotprod", 4, ((2, 4), (1, 4))),
)


def alternatives(product: BlockProduct, target: Target) -> Iterator[Alternative]:
    """Yield the launches this target was proven to run, the fastest expected first."""
    out_c, blocks, pairs = product.pairs.shape
    depth = product.in_c
    alone = replace(target, vector_width=8)  # a block for each work-group of one work-item
    for kind in KINDS:
        # Not of Target.group_items: PoCL says of Arm's processors that a vector has one number.
        if target.device_type != "cpu" or not kind.isa <= target.isa:
            continue
        tile_w, vectors = next((tile for tile in kind.tiles if tile[0] <= product.batch), (0, 0))
        block = vectors * kind.lanes
        if not tile_w or out_c < block or 2 * pairs % _GROUP:
            continue
        own: Params = {}
        tiling: Defines = {"TILE_W": tile_w}
        if kind.name == "amx":
            register_rows = tiles.rows_of_register(product.batch)
            own, tiling = tiles.fields_of(register_rows, _GROUP), {}
            tile_w = tiles.REGISTERS * register_rows
        sizes = product.batch, depth, hybrid.pitch_of(depth)
        # AMX multiplies signed numbers by each other; the others' weights are 8 more.
        summed = 0 if kind.name == "amx" else 2 * pairs
        rows = hybrid.quantised(product.source, sizes, True, target, block_size=summed)
        row_blocks = ceil_div(product.batch, tile_w)
        items = row_blocks * ceil_div(out_c, block)
        are_small = product.has_shifts_as(_SCALES)  # which are read faster
        params: Params = {
            **rows.fields,
            "output": product.result,
            "out_c": out_c,
            "blocks": blocks,
            "groups": 2 * pairs // _GROUP,
            "channels": product.channels(),
            **_panels(product, block, kind),
            **product.more(block, _SCALES if are_small else "float32"),
            "rows": product.batch,
            "row_blocks": row_blocks,
            "items": items,
            **own,
        }
        file, kernel = f"fully_connected_{kind.name}", f"fully_connected_blocks_{kind.name}_hybrid"
        sizes_of = {**tiling, "VECTORS": vectors, "SMALL_SHIFTS": int(are_small)}
        defines = product.defines | sizes_of
        launch = launch_over(file, kernel, by_share(items, alone), params, defines)
        yield Alternative(f"{kind.name} {tile_w}x{block}", (*rows.launches, launch))


def _panels(product: BlockProduct, block: int, kind: BlockwiseGemmConfig) -> Params:
    """Return weights, 8 more, and scales as panels of `block` channels read them.

    Shapes:
        weights (panels, groups of 8 along the row, vectors, lanes, 4 bytes), scales (panels,
        blocks, block); the last panel ends with the last channel
    """
    pairs, stored, lanes = product.pairs, product.scales, kind.lanes
    channels = in_blocks_of(block, product.out_c)

    def weights() -> NDArray[np.uint8]:
        rows = by_eights(pairs)[channels]
        eights = rows.reshape(len(channels), block // lanes, lanes, -1, 4)
        return transposed(eights, 0, 3, 1, 2)

    def scales() -> NDArray[np.generic]:
        return np.ascontiguousarray(stored[channels].transpose(0, 2, 1))

    count = channels.size * stored.shape[1]
    return {
        "weights": Constant(channels.size * product.in_c // 2, weights),
        "scales": Constant(count * stored.itemsize, scales),
    }

# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED of float rows and int4 weights in blocks on CPUs, by any instructions.

The kernels share fully_connected_blocks.clh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._convolution import hybrid
from delegate.ops._convolution.hybrid_blocks import BlockProduct, by_eights
from delegate.ops._launches.tiles import by_share, launch_over
from delegate.ops._numbers import ceil_div
from delegate.ops._numbers.order import in_blocks_of, transposed
from delegate.target import Target

_GROUP = 32  # weights of a channel that are summed up before sums could overflow 16 bits
_SCALES = "float16"  # of a block, as in the file


@dataclass(frozen=True, slots=True)
class BlockwiseGemmConfig:
    """An inner product, and the blocks of the result whose sums fit the registers."""

    isa: frozenset[str]
    name: str  # of its kernel, too
    lanes: int  # channels a vector
    tiles: tuple[tuple[int, int], ...]  # rows, vectors of channels; the largest first
    takes_int8: bool = False  # whether it multiplies int8 weights; else they are 8 more, as uint8
    # For tiles of at least so many rows: (rows of the product, values multiplied at a time) -> rows
    # of a tile, and the fields that only this kernel reads.
    sized_for: Callable[[int, int], tuple[int, Params]] | None = None


def alternatives(
    product: BlockProduct, target: Target, kinds: Iterable[BlockwiseGemmConfig]
) -> Iterator[Alternative]:
    """Yield the launches that this target was proven to run, in the order of `kinds`."""
    out_c, blocks, pairs = product.pairs.shape
    depth = product.in_c
    alone = replace(target, vector_width=8)  # a block for each work-group of one work-item
    for kind in kinds:
        # Not Target.group_items: PoCL reports a vector of one number for Arm's processors.
        if target.device_type != "cpu" or not kind.isa <= target.isa:
            continue
        tile_w, vectors = next((tile for tile in kind.tiles if tile[0] <= product.batch), (0, 0))
        block = vectors * kind.lanes
        if not tile_w or out_c < block or 2 * pairs % _GROUP:
            continue
        of_kind: Params = {}
        tiling: Defines = {"TILE_W": tile_w}
        if kind.sized_for is not None:
            (tile_w, of_kind), tiling = kind.sized_for(product.batch, _GROUP), {}
        sizes = product.batch, depth, hybrid.pitch_of(depth)
        # The kernel subtracts what weights that are 8 more add to a block's sum.
        summed = 0 if kind.takes_int8 else 2 * pairs
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
            **of_kind,
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

# SPDX-License-Identifier: Apache-2.0
"""How a launch's work is cut: lanes of a work-item, items of a tile, tiles of a launch.

Each policy below answers "how many items has a tile?" for one kind of kernel. A device with groups
of 64 work-items always takes 64 items a tile. A CPU's groups of one work-item take more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from delegate.graph.ir import Tensor
from delegate.launch import Launch, Params
from delegate.ops._numbers import ceil_div
from delegate.target import Target

GROUP_ITEMS = 64  # work-items of a group, and items of its tile, where groups are not of one item
# A tile of a group of one item has at least so much work: claiming the tile costs less then.
LEAST_ELEMENTS = 4096
LEAST_BYTES = 4096

# llvmpipe leaves every loop of a work-item after so many rounds, the rounds of all loops together.
MOST_ROUNDS = 65_535
# For kernels of one loop: a power of two, so that tiles of elements begin at aligned addresses.
HALF_ROUNDS = (MOST_ROUNDS + 1) // 2

_TILE_WORK = 4096  # multiplications: about 1 us of a core that starts one vector's a cycle
_LEAST_TILES, _MOST_TILES = 4, 32  # a core, of `by_work`
_SHARES = 16  # tiles a core, of `by_share`
_ELEMENT_TILES = 8  # tiles a core, of `by_elements`
# Of a tile of products: twice as many rows where there are 32 registers of 16 lanes.
_PRODUCT_ROWS, _PRODUCT_VECTORS = 4, 3


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the items of a launch are shared among work-groups."""

    tiles: int
    group_items: int  # work-items a group
    tile_items: int


def most_rounds(loops: int, multiple_of: int) -> int:
    """Return the rounds that each of `loops` loops of a work-item may make, as a round number."""
    return MOST_ROUNDS // loops // multiple_of * multiple_of


def one_each(items: int) -> Tiling:
    """Return tiles of 64 items in groups of 64 work-items, on every device: for plain kernels."""
    return Tiling(ceil_div(items, GROUP_ITEMS), GROUP_ITEMS, GROUP_ITEMS)


def of_size(items: int, alone: int, target: Target) -> Tiling:
    """Return tiles of one item a work-item, but of `alone` items where a group is one work-item."""
    tile_items = target.group_items if target.group_items > 1 else max(1, alone)
    return Tiling(ceil_div(items, tile_items), target.group_items, tile_items)


def by_elements(
    elements: int, target: Target, least: int = LEAST_ELEMENTS, most: int = HALF_ROUNDS
) -> Tiling:
    """Return tiles of elements that cost about the same each, little work an element.

    A group of one work-item takes an eighth of its core's share, but at least `least` elements, so
    that a tile is worth claiming, and at most `most`.
    """
    share = ceil_div(elements, _ELEMENT_TILES * target.compute_units)
    return of_size(elements, min(elements, max(least, share), most), target)


def by_work(
    items: int, item_work: int, target: Target, most: int | None = None, least: int = _LEAST_TILES
) -> Tiling:
    """Return tiles of items whose work is known: `least` to 32 a core, of about 1 us and more.

    Units:
        item_work: multiplications of vectors; most: items of a tile; least: tiles a core
    """
    wanted = items * item_work // (_TILE_WORK * target.compute_units)
    tiles = min(max(wanted, least), _MOST_TILES) * target.compute_units
    tile_items = ceil_div(items, tiles)
    return of_size(items, tile_items if most is None else min(tile_items, most), target)


def by_share(items: int, target: Target, least: int = 1, most: int | None = None) -> Tiling:
    """Return tiles of a sixteenth of a core's share each, at least `least` and at most `most`."""
    share = ceil_div(items, _SHARES * target.compute_units)
    tile_items = max(share, min(items, least))
    return of_size(items, tile_items if most is None else min(tile_items, most), target)


def in_blocks(blocks: int, pixel_blocks: int, tiling: Tiling) -> tuple[int, dict[str, int]]:
    """Return the tiles if each is of one block of channels, and the fields that kernels read.

    `tiling`: of all blocks of channels times all blocks of pixels.
    """
    block_tiles = ceil_div(pixel_blocks, tiling.tile_items)
    fields = {"pixel_blocks": pixel_blocks, "block_tiles": block_tiles}
    return blocks * block_tiles, fields | {"tile_items": tiling.tile_items}


def launch_of(
    file: str,
    kernel: str,
    tiles: int,
    group_items: int,
    params: Params,
    defines: Mapping[str, int | str] | None = None,
) -> Launch:
    """Return a launch that writes its tensors of a name with "output", and reads all others."""
    tensors = {name: value for name, value in params.items() if isinstance(value, Tensor)}
    written = {name: tensors.pop(name) for name in params if name.endswith("output")}
    reads, writes = (tuple(dict.fromkeys(own.values())) for own in (tensors, written))
    return Launch(file, kernel, tiles, group_items, params, reads, writes, defines or {})


def launch_over(
    file: str,
    kernel: str,
    tiling: Tiling,
    params: Params,
    defines: Mapping[str, int | str] | None = None,
) -> Launch:
    """Return the launch of a kernel over tiles of items; "tile_items" is its last field."""
    params = params | {"tile_items": tiling.tile_items}
    return launch_of(file, kernel, tiling.tiles, tiling.group_items, params, defines)


def over_elements(
    file: str,
    kernel: str,
    elements: int,
    target: Target,
    params: Params,
    defines: Mapping[str, int | str] | None = None,
) -> Launch:
    """Return the launch of a kernel with little work an element; "elements" joins its fields."""
    fields = params | {"elements": elements}
    return launch_over(file, kernel, by_elements(elements, target), fields, defines)


def over_vectors(
    file: str,
    kernel: str,
    elements: int,
    lanes: int,
    target: Target,
    params: Params,
    defines: Mapping[str, int | str],
) -> Launch:
    """Return such a launch over vectors of neighbours, "items" of them; see `vectors_of`."""
    items = ceil_div(elements, lanes)
    fields = params | {"elements": elements, "items": items}
    tiling = by_elements(items, target, LEAST_ELEMENTS // lanes, HALF_ROUNDS // lanes)
    own = {**defines, **vectors_of(elements, lanes, target)}
    return launch_over(file, kernel, tiling, fields, own)


def widest_lanes(count: int, widest: int) -> int:
    """Return the widest vector up to `widest` lanes that `count` neighbours fill; 0 for none."""
    return max((lanes for lanes in (16, 8, 4) if lanes <= min(widest, count)), default=0)


def lanes_of(count: int, target: Target, most: int = 16) -> int:
    """Return the widest vector that the device has and `count` neighbours fill; 0 for none.

    Where a GPU loads eight halves at once, they fill their vectors without a rest.
    """
    if target.group_items > 1:
        return widest_lanes(count, 4 if count % target.load_lanes else target.load_lanes)
    return widest_lanes(count, min(target.vector_width, most))


def product_rows(rows: int, target: Target) -> int:
    """Return the rows of a tile of product_tile.clh; 1 where there are few."""
    is_wide = target.group_items == 1 and target.vector_width >= 16
    most = _PRODUCT_ROWS if rows < 2 * _PRODUCT_ROWS or not is_wide else 2 * _PRODUCT_ROWS
    return most if rows >= most else 1


def product_vectors(columns: int, lanes: int, target: Target) -> int:
    """Return the vectors of such a tile: a CPU's registers keep them, and few overlap."""
    count = ceil_div(columns, lanes)
    sizes = range(_PRODUCT_VECTORS if target.group_items == 1 else 1, 0, -1)
    return min(sizes, key=lambda size: ceil_div(count, size) * (2 * size + 1))


def vectors_of(count: int, lanes: int, target: Target) -> dict[str, int | str]:
    """Return the macros of vectors over rows of `count` elements: LANES, and those of store.clh.

    IS_ALIGNED tells GPUs that every vector begins at a multiple of its size. CPUs load vectors
    alike wherever they lie.
    """
    defines: dict[str, int | str] = {"LANES": lanes}
    if lanes > 1 and target.group_items > 1 and count % lanes == 0:
        defines["IS_ALIGNED"] = 1
    return defines


def tile_w_of(pixels: int, most: int) -> int:
    """Return how many neighbouring pixels a work-item takes: those that waste least."""
    sizes = [size for size in (16, 14, 8, 7, 4, 2, 1) if size <= min(most, pixels)]
    # An item costs its pixels, and about two more for the part that does not depend on them.
    return min(sizes, key=lambda size: ceil_div(pixels, size) * (size + 2))

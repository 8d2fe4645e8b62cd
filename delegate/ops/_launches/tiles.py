# SPDX-License-Identifier: Apache-2.0
"""Work partitioning of a launch: lanes per work-item, items per tile, tiles per launch.

Each policy below decides the items per tile for one kind of kernel. On devices with work-groups of
64 items a tile always has 64 items. On CPUs with one item per work-group a tile has more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from delegate.graph.ir import Tensor
from delegate.launch import Launch, Params
from delegate.ops._numbers import ceil_div
from delegate.target import Target

GROUP_ITEMS = 64  # work-items per work-group, and items per tile, unless a group is one item
# Least work per tile for work-groups of one item, to outweigh the cost of claiming the tile.
LEAST_ELEMENTS = 4096
LEAST_BYTES = 4096
LEAST_FUNCTIONS = 256  # such elements if each has a function, which costs as much as several

# llvmpipe leaves all loops of a work-item after so many rounds, counted over all of them.
MOST_ROUNDS = 65_535
# For kernels of one loop: a power of two, so that tiles of elements begin at aligned addresses.
HALF_ROUNDS = (MOST_ROUNDS + 1) // 2

_TILE_WORK = 4096  # vector multiplications: about 1 us on a core that issues one per cycle
_LEAST_TILES, _MOST_TILES = 4, 32  # per core, in `by_work`
_SHARES = 16  # tiles per core, in `by_share`
_ELEMENT_TILES = 8  # tiles per core, in `by_elements`
# Tile of a matrix product: twice as many rows with 32 registers of 16 lanes.
_PRODUCT_ROWS, _PRODUCT_VECTORS = 4, 3


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the items of a launch are distributed over work-groups."""

    tiles: int
    group_items: int  # work-items per group
    tile_items: int


def most_rounds(loops: int, multiple_of: int) -> int:
    """Return the limit of rounds for each of `loops` loops, rounded down to a multiple."""
    return MOST_ROUNDS // loops // multiple_of * multiple_of


def one_each(items: int) -> Tiling:
    """Return tiles of 64 items in groups of 64 work-items, on any device: for fallback kernels."""
    return Tiling(ceil_div(items, GROUP_ITEMS), GROUP_ITEMS, GROUP_ITEMS)


def of_size(items: int, lone_items: int, target: Target) -> Tiling:
    """Return tiles of one item per work-item, or of `lone_items` if a group is one work-item."""
    tile_items = target.group_items if target.group_items > 1 else max(1, lone_items)
    return Tiling(ceil_div(items, tile_items), target.group_items, tile_items)


def by_elements(
    elements: int, target: Target, least: int = LEAST_ELEMENTS, most: int = HALF_ROUNDS
) -> Tiling:
    """Return tiles for kernels with little, uniform work per element.

    With one work-item per group a tile is an eighth of a core's share, at least `least` elements to
    outweigh the cost of claiming it, and at most `most`.
    """
    share = ceil_div(elements, _ELEMENT_TILES * target.compute_units)
    return of_size(elements, min(elements, max(least, share), most), target)


def by_work(
    items: int, item_work: int, target: Target, most: int | None = None, least: int = _LEAST_TILES
) -> Tiling:
    """Return tiles for items of known work: `least` to 32 tiles per core, of about 1 us or more.

    Units:
        item_work: vector multiplications; most: items per tile; least: tiles per core
    """
    wanted = items * item_work // (_TILE_WORK * target.compute_units)
    tiles = min(max(wanted, least), _MOST_TILES) * target.compute_units
    tile_items = ceil_div(items, tiles)
    return of_size(items, tile_items if most is None else min(tile_items, most), target)


def by_share(items: int, target: Target, least: int = 1, most: int | None = None) -> Tiling:
    """Return tiles of a sixteenth of a core's share each, from `least` to `most` items."""
    share = ceil_div(items, _SHARES * target.compute_units)
    tile_items = max(share, min(items, least))
    return of_size(items, tile_items if most is None else min(tile_items, most), target)


def in_blocks(blocks: int, pixel_blocks: int, tiling: Tiling) -> tuple[int, dict[str, int]]:
    """Return the number of tiles if none spans channel blocks, and the fields of the kernel.

    `tiling`: of all channel blocks x pixel blocks.
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
    """Return a launch that writes the tensors named "...output", and reads all others."""
    tensors = {name: value for name, value in params.items() if isinstance(value, Tensor)}
    written = {name: tensors.pop(name) for name in params if name.endswith("output")}
    reads, writes = (tuple(dict.fromkeys(each.values())) for each in (tensors, written))
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
    least: int = LEAST_ELEMENTS,
) -> Launch:
    """Return the launch of a kernel with little work per element; adds the field "elements".

    `least`: as of `by_elements`.
    """
    fields = params | {"elements": elements}
    return launch_over(file, kernel, by_elements(elements, target, least), fields, defines)


def over_vectors(
    file: str,
    kernel: str,
    elements: int,
    lanes: int,
    target: Target,
    params: Params,
    defines: Mapping[str, int | str],
) -> Launch:
    """Return such a launch over vectors; adds the fields "elements" and "items"."""
    items = ceil_div(elements, lanes)
    fields = params | {"elements": elements, "items": items}
    tiling = by_elements(items, target, LEAST_ELEMENTS // lanes, HALF_ROUNDS // lanes)
    vector_defines = {**defines, **vectors_of(elements, lanes, target)}
    return launch_over(file, kernel, tiling, fields, vector_defines)


def widest_lanes(count: int, widest: int) -> int:
    """Return the widest vector up to `widest` lanes that `count` elements fill; 0 for none."""
    return max((lanes for lanes in (16, 8, 4) if lanes <= min(widest, count)), default=0)


def lanes_of(count: int, target: Target, most: int = 16) -> int:
    """Return the widest vector of the device that `count` contiguous elements fill; 0 for none.

    GPUs that load eight fp16 values at once use them only if `count` is a multiple of eight.
    """
    if target.group_items > 1:
        return widest_lanes(count, 4 if count % target.load_lanes else target.load_lanes)
    return widest_lanes(count, min(target.vector_width, most))


def product_rows(rows: int, target: Target) -> int:
    """Return the rows of a tile of product_tile.clh; 1 if there are few."""
    is_wide = target.group_items == 1 and target.vector_width >= 16
    most = _PRODUCT_ROWS if rows < 2 * _PRODUCT_ROWS or not is_wide else 2 * _PRODUCT_ROWS
    return most if rows >= most else 1


def product_vectors(columns: int, lanes: int, target: Target) -> int:
    """Return the vectors of such a tile: they fit a CPU's registers, and overlap little."""
    count = ceil_div(columns, lanes)
    sizes = range(_PRODUCT_VECTORS if target.group_items == 1 else 1, 0, -1)
    return min(sizes, key=lambda size: ceil_div(count, size) * (2 * size + 1))


def vectors_of(count: int, lanes: int, target: Target) -> dict[str, int | str]:
    """Return the macros of vectors over rows of `count` elements: LANES, and those of store.clh.

    On GPUs IS_ALIGNED says that vectors are aligned to their size. CPUs load unaligned vectors as
    fast.
    """
    defines: dict[str, int | str] = {"LANES": lanes}
    if lanes > 1 and target.group_items > 1 and count % lanes == 0:
        defines["IS_ALIGNED"] = 1
    return defines


def tile_w_of(pixels: int, most: int) -> int:
    """Return the number of adjacent pixels per work-item that wastes least."""
    sizes = [size for size in (16, 14, 8, 7, 4, 2, 1) if size <= min(most, pixels)]
    # An item costs its pixels, plus about two for work that does not depend on them.
    return min(sizes, key=lambda size: ceil_div(pixels, size) * (size + 2))

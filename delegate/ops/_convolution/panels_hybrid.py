# SPDX-License-Identifier: Apache-2.0
"""Hybrid CONV_2D, and FULLY_CONNECTED by AMX and on Arm, by a CPU's proven instructions.

The kernels are in conv_2d_amx.cl, conv_2d_vnni.cl, conv_2d_avx2.cl, conv_2d_dotprod.cl and
conv_2d_i8mm.cl, which share conv_2d_panel_hybrid.clh. Windows lie as those of 8-bit convolutions
do.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from delegate.launch import Alternative, Constant, Defines, Launch, Params
from delegate.ops._convolution.hybrid import Product, Rows, quantised
from delegate.ops._convolution.packing import in_steps_of
from delegate.ops._convolution.panels import (
    PANEL_BYTES,
    GemmConfig,
    Layout,
    fits_panel,
    of_kinds,
    windows_of,
)
from delegate.ops._convolution.x86.tiles import tiles_of
from delegate.ops._launches.tiles import launch_of
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_Inputs = tuple[GemmConfig, str, Defines]  # a kind, the type of its inputs, and macros for it

# A block's sums, weights and inputs fit the registers.
VNNI = GemmConfig(frozenset({"vnni"}), "vnni", 16, 4, ((7, 2), (14, 1)), ((1, 2),))
AVX2 = GemmConfig(frozenset({"avx2"}), "avx2", 8, 2, ((6, 2),), ((1, 2),))
# Few rows have blocks as wide as many have: their weights lie alike, and are packed once. One row's
# 4 sums, each of which waits for its last product, still take 16 bytes of weights a cycle.
I8MM = GemmConfig(frozenset({"i8mm", "dotprod"}), "i8mm", 4, 8, ((4, 4),), ((2, 4), (1, 4)))
DOTPROD = GemmConfig(frozenset({"dotprod"}), "dotprod", 4, 4, ((5, 4), (4, 4)), ((2, 4), (1, 4)))
_READ_BEYOND = 64  # bytes behind a pixel
_AMX_ROWS = 6  # of fewer VNNI's sums, which stay in registers, are faster
X86: tuple[_Inputs, ...] = (
    (VNNI, "uint8", {"IS_SIGNED": 0, "FLIPS": 0}),
    (AVX2, "int8", {"IS_SIGNED": 1, "WEIGHT_BITS": 16}),
)
ARM: tuple[_Inputs, ...] = tuple((kind, "int8", {"IS_SIGNED": 1}) for kind in (I8MM, DOTPROD))


def alternatives(
    product: Product, target: Target, kinds: tuple[_Inputs, ...] = X86 + ARM
) -> tuple[Alternative, ...]:
    """Return the launches this target was proven to run, the fastest expected first: AMX's, where
    it has that, then those of `kinds`.

    None for several pictures whose windows leave them: each has zero points of its own.
    """
    is_alone = product.batch == 1 or product.is_matrix
    # Not of Target.group_items: PoCL says of Arm's processors that a vector has one number.
    if target.device_type != "cpu" or product.groups > 1 or not is_alone:
        return ()
    found = [*_of_tiles(product, target)]
    for kind, dtype, defines in kinds:
        if not kind.isa <= target.isa:
            continue
        fitting = tuple(size for size in kind.sizes if size[1] * kind.lanes <= product.out_c)
        pictures = pictures_of(product, dtype, target)
        own = replace(product, source=pictures.values)
        launch = partial(_launch, pictures, defines)
        for each in of_kinds(own, target, [replace(kind, sizes=fitting)], launch):
            found.append(replace(each, launches=(*pictures.launches, *each.launches)))
    return tuple(found)


def pictures_of(product: Product, dtype: str, target: Target) -> Rows:
    """Return quantised pictures side by side; behind a single one, a pixel of what 0.0 became."""
    depth = product.area.in_h * product.area.in_w * product.in_c
    pitch = depth if product.is_matrix else depth + product.in_c + _READ_BEYOND
    sizes = (product.batch, depth, pitch)
    return quantised(product.source, sizes, product.is_asymmetric, target, dtype)


def _launch(
    pictures: Rows,
    defines: Defines,
    product: Product,
    target: Target,
    kind: GemmConfig,
    tile_w: int,
    vectors: int,
) -> Launch | None:
    rows = product.area.kernel_h if product.area.dilation_w == 1 else 1
    values = min(kind.values, 4)  # of a step
    # A row is filled up to whole products.
    products = ceil_div(product.taps // rows * product.in_c, kind.values)
    layout = Layout(kind.lanes, vectors, values, rows, products * kind.values // values)
    if layout.channels > product.out_c or not fits_panel(layout, tile_w):
        return None
    dtype = "int16" if kind.values == 2 else "int8"
    weights = in_steps(product, rows, products, kind.values, layout.channels, dtype)
    defines = {**defines, "TILE_W": tile_w}
    own: Params = {"weights": weights}
    return _block_launch(pictures, product, target, kind.name, tile_w, layout, own, defines)


def _of_tiles(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return AMX's launch; none where it is not proven or not expected to be the fastest."""
    tiles = tiles_of(product, target) if product.pixels >= _AMX_ROWS else None
    if tiles is None or tiles.layout.channels > product.out_c:
        return ()
    layout, pictures = tiles.layout, pictures_of(product, "int8", target)
    weights = in_steps(product, layout.rows, layout.row_steps, 4, layout.channels)
    own: Params = {"weights": weights, **tiles.fields}
    product = replace(product, source=pictures.values)
    signed: Defines = {"IS_SIGNED": 1}
    launch = _block_launch(pictures, product, target, "amx", tiles.tile_w, layout, own, signed)
    return (Alternative(tiles.name, (*pictures.launches, launch)),)


def _block_launch(
    pictures: Rows,
    product: Product,
    target: Target,
    isa: str,
    tile_w: int,
    layout: Layout,
    own: Params,
    defines: Defines,
) -> Launch:
    """Return a launch of conv_2d_panel_hybrid.clh; `own`: weights, and fields of `isa` alone."""
    tiles, fields = windows_of(product, target, tile_w, layout)
    file = f"conv_2d_{isa}"
    return launch_of(
        file,
        f"{file}_hybrid",
        tiles,
        1,
        product.params()
        | fields
        | {
            "row_scales": pictures.scales,
            "row_zeros": pictures.zeros,
            "channels": product.channels(),
            **own,
        },
        product.defines | defines | {"VECTORS": layout.vectors, "PANEL_BYTES": PANEL_BYTES},
    )


def in_steps(
    product: Product, rows: int, steps: int, values: int, block: int, dtype: str = "int8"
) -> Constant:
    """Return weights in steps of so many values, those of a block of channels side by side.

    `rows`: of neighbouring values that a window has, each of which takes `steps`, 0 behind its
    last value. Kernels whose steps are equal share them.

    Shapes:
        (blocks, rows, steps, block, values); the last block ends with the last channel
    """
    weights = product.weights.reshape(product.out_c, rows, -1)
    is_so = weights.shape == product.weights.shape
    by_row = product if is_so else replace(product, weights=weights)
    return in_steps_of((steps, values), by_row, lambda: weights, block, dtype)

# SPDX-License-Identifier: Apache-2.0
"""Hybrid CONV_2D by x86 instructions that were proven on the device.

The kernels are in conv_2d_vnni.cl and conv_2d_avx2.cl, which share conv_2d_x86_hybrid.clh. Windows
lie as those of 8-bit convolutions do; sums become floats as those of fully_connected_x86.clh do.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Alternative, Constant, Defines, Launch
from delegate.ops._convolution.hybrid import Product, Rows, quantised
from delegate.ops._convolution.panels import (
    PANEL_BYTES,
    Kind,
    Layout,
    fits_panel,
    in_steps,
    of_kinds,
    windows_of,
)
from delegate.ops._launches.tiles import launch_of
from delegate.ops._numbers import ceil_div
from delegate.ops._numbers.order import in_blocks_of
from delegate.target import Target

# A block's sums, weights and inputs fit the registers.
VNNI = Kind(frozenset({"vnni"}), "vnni", 16, 4, ((7, 2), (14, 1)), (1, 2))
AVX2 = Kind(frozenset({"avx2"}), "avx2", 8, 2, ((6, 2),), (1, 2))
_READ_BEYOND = 64  # bytes behind a pixel
# The type of a kind's inputs, and the macros that go with it.
_INPUTS: tuple[tuple[Kind, str, Defines], ...] = (
    (VNNI, "uint8", {"IS_SIGNED": 0, "FLIPS": 0}),
    (AVX2, "int8", {"IS_SIGNED": 1, "WEIGHT_BITS": 16}),
)


def alternatives(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return the launches this target was proven to run, the fastest expected first.

    None for several pictures whose windows leave them: each has zero points of its own.
    """
    is_alone = product.batch == 1 or product.is_matrix
    if target.group_items > 1 or product.groups > 1 or not is_alone:
        return ()
    found: list[Alternative] = []
    for kind, dtype, defines in _INPUTS:
        fitting = tuple(size for size in kind.sizes if size[1] * kind.lanes <= product.out_c)
        pictures = _pictures(product, dtype, target)
        own = replace(product, source=pictures.values)
        launch = partial(_launch, pictures, defines)
        for each in of_kinds(own, target, [replace(kind, sizes=fitting)], launch):
            found.append(replace(each, launches=(*pictures.launches, *each.launches)))
    return tuple(found)


def _pictures(product: Product, dtype: str, target: Target) -> Rows:
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
    kind: Kind,
    tile_w: int,
    vectors: int,
) -> Launch | None:
    rows = product.area.kernel_h if product.area.dilation_w == 1 else 1
    row_steps = ceil_div(product.taps // rows * product.in_c, kind.values)
    layout = Layout(kind.lanes, vectors, kind.values, rows, row_steps)
    if layout.channels > product.out_c or not fits_panel(layout, tile_w):
        return None
    tiles, fields = windows_of(product, target, tile_w, layout)
    file = f"conv_2d_{kind.name}"
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
            "weights": _weights(product, layout, kind),
        },
        product.defines
        | defines
        | {"TILE_W": tile_w, "VECTORS": vectors, "PANEL_BYTES": PANEL_BYTES},
    )


def _weights(product: Product, layout: Layout, kind: Kind) -> Constant:
    """Return weights a step after the other, 4 bytes a channel; 0 in padding.

    Shapes:
        (blocks, steps, channels of a block, values of a step); the last block ends with the last
        channel
    """
    layer, dtype = product.layer, np.int8 if kind.values == 4 else np.int16
    blocks = ceil_div(product.out_c, layout.channels)

    def pack() -> NDArray[np.generic]:
        steps = in_steps(layer.weights.astype(dtype), layout)
        by_block = steps[in_blocks_of(layout.channels, layer.out_c)]
        return np.ascontiguousarray(by_block.swapaxes(1, 2))

    return Constant(4 * blocks * layout.channels * layout.steps, pack)

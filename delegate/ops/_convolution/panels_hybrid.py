# SPDX-License-Identifier: Apache-2.0
"""Blocks of hybrid convolutions and products on CPUs, by any instructions.

Windows lie as those of 8-bit convolutions do. The kernels share conv_2d_panel_hybrid.clh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
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
from delegate.ops._launches.tiles import launch_of
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_READ_BEYOND = 64  # bytes after a pixel


@dataclass(frozen=True, slots=True)
class HybridGemmConfig:
    """An inner product of quantised floats and int8 weights."""

    kind: GemmConfig
    dtype: str  # of the quantised floats; "uint8": 128 more than int8
    defines: Defines  # the macros of its kernel


def alternatives(
    product: Product, target: Target, configs: Iterable[HybridGemmConfig]
) -> Iterator[Alternative]:
    """Yield the launches that this target was proven to run, in the order of `configs`."""
    if not is_supported(product, target):
        return
    for config in configs:
        kind = config.kind
        if not kind.isa <= target.isa:
            continue
        fitting = tuple(size for size in kind.sizes if size[1] * kind.lanes <= product.out_c)
        pictures = pictures_of(product, config.dtype, target)
        of_pictures = replace(product, source=pictures.values)
        launch = partial(_launch, pictures, config.defines)
        for each in of_kinds(of_pictures, target, [replace(kind, sizes=fitting)], launch):
            yield replace(each, launches=(*pictures.launches, *each.launches))


def is_supported(product: Product, target: Target) -> bool:
    """Whether these kernels take a product: on a CPU, without groups.

    Not several pictures whose windows leave them: each has a zero point of its own.
    """
    is_alone = product.batch == 1 or product.is_matrix
    # Not Target.group_items: PoCL reports a vector of one number for Arm's processors.
    return target.device_type == "cpu" and product.groups == 1 and is_alone


def pictures_of(product: Product, dtype: str, target: Target) -> Rows:
    """Return quantised pictures side by side; after a single one, a pixel of what 0.0 became."""
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
    # A row is padded to whole products.
    products = ceil_div(product.taps // rows * product.in_c, kind.values)
    layout = Layout(kind.lanes, vectors, values, rows, products * kind.values // values)
    if layout.channels > product.out_c or not fits_panel(layout, tile_w):
        return None
    dtype = "int16" if kind.values == 2 else "int8"
    weights = in_steps(product, rows, products, kind.values, layout.channels, dtype)
    defines = {**defines, "TILE_W": tile_w}
    fields: Params = {"weights": weights}
    return block_launch(pictures, product, target, kind.name, tile_w, layout, fields, defines)


def block_launch(
    pictures: Rows,
    product: Product,
    target: Target,
    isa: str,
    tile_w: int,
    layout: Layout,
    fields: Params,
    defines: Defines,
) -> Launch:
    """Return a launch of conv_2d_panel_hybrid.clh.

    `isa`: the kernel's; `fields`: the weights, and what only this kernel reads.
    """
    tiles, shared = windows_of(product, target, tile_w, layout)
    file = f"conv_2d_{isa}"
    return launch_of(
        file,
        f"{file}_hybrid",
        tiles,
        1,
        product.params()
        | shared
        | {
            "row_scales": pictures.scales,
            "row_zeros": pictures.zeros,
            "channels": product.channels(),
            **fields,
        },
        product.defines | defines | {"VECTORS": layout.vectors, "PANEL_BYTES": PANEL_BYTES},
    )


def in_steps(
    product: Product, rows: int, steps: int, values: int, block: int, dtype: str = "int8"
) -> Constant:
    """Return weights in steps of `values` numbers, those of a block of channels side by side.

    `rows`: of neighbouring values in a window; each takes `steps`, padded with zeros. Kernels with
    equal steps share the constant.

    Shapes:
        (blocks, rows, steps, block, values); the last block ends with the last channel
    """
    weights = product.weights.reshape(product.out_c, rows, -1)
    is_so = weights.shape == product.weights.shape
    by_row = product if is_so else replace(product, weights=weights)
    return in_steps_of((steps, values), by_row, lambda: weights, block, dtype)

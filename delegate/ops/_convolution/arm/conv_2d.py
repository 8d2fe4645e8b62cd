# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, 8 bit and hybrid, by Arm's instructions that were proven on the device.

The kernels use SDOT and UDOT, or SMMLA and UMMLA. They share conv_2d_arm.clh, and multiply bytes
and weights as they are stored.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Alternative, Constant, Launch
from delegate.ops._convolution import panels_hybrid
from delegate.ops._convolution.hybrid import Product
from delegate.ops._convolution.panels import (
    PANEL_BYTES,
    GemmConfig,
    Layout,
    blocked,
    by_steps,
    fits_panel,
    in_steps,
    of_kinds,
    packed_bytes,
    windows_of,
)
from delegate.ops._convolution.panels_hybrid import HybridGemmConfig
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._launches.tiles import launch_of
from delegate.ops._numbers import ceil_div, fixed_point
from delegate.target import Target

_LANES = 4  # ints a vector
_RAMP = np.repeat(np.array([1, 0], np.uint8), 16)  # for the sum of a row's last bytes

# A block's sums, inputs and weights fit the 32 registers.
I8MM = GemmConfig(frozenset({"i8mm", "dotprod"}), "i8mm", _LANES, 8, ((4, 4), (8, 2)), ((2, 4),))
DOTPROD = GemmConfig(frozenset({"dotprod"}), "dotprod", _LANES, 4, ((5, 4), (8, 2)), ((1, 8),))
KINDS = (I8MM, DOTPROD)
# Blocks of few rows are as wide as those of many, so both read the same packed weights. One row's 4
# sums, each of which waits for its last product, still take 16 bytes of weights a cycle.
_HYBRID_FEW = ((2, 4), (1, 4))
HYBRID_KINDS = tuple(
    HybridGemmConfig(replace(kind, sizes=sizes, few=_HYBRID_FEW), "int8", {"IS_SIGNED": 1})
    for kind, sizes in ((I8MM, ((4, 4),)), (DOTPROD, ((5, 4), (4, 4))))
)


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches this target was proven to run, the fastest expected first."""
    # Not Target.group_items: PoCL reports a vector of one number for Arm's processors.
    return of_kinds(conv, target, KINDS, _launch) if target.device_type == "cpu" else ()


def hybrid(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return the same of floats that are quantised at each run."""
    return tuple(panels_hybrid.alternatives(product, target, HYBRID_KINDS))


def _launch(
    conv: Quant8Convolution, target: Target, kind: GemmConfig, tile_w: int, vectors: int
) -> Launch | None:
    rows = conv.area.kernel_h if conv.area.dilation_w == 1 else 1
    # A row is padded to whole products.
    row_steps = ceil_div(conv.taps // rows * conv.in_c, kind.values) * kind.values // 4
    layout = Layout(_LANES, vectors, 4, rows, row_steps)
    if not conv.is_matrix and not fits_panel(layout, tile_w):
        return None
    tiles, fields = windows_of(conv, target, tile_w, layout)
    return launch_of(
        f"conv_2d_{kind.name}",
        f"conv_2d_{kind.name}_quant8",
        tiles,
        1,
        conv.params()
        | fields
        | {
            "weights": _weights(conv, layout, kind.values),
            "weight_zero": conv.weight_zero,
            "ramp": Constant(_RAMP.nbytes, lambda: _RAMP),
            "channels": _channels(conv, layout),
        },
        {
            "IS_SIGNED": int(conv.source.dtype == "int8"),
            "HAS_WEIGHT_ZERO": int(conv.weight_zero != 0),
            "SINGLE_ROUNDING": int(conv.single_rounding),
            "TILE_W": tile_w,
            "VECTORS": vectors,
            **conv.defines,
            "PANEL_BYTES": PANEL_BYTES,
        },
    )


def _weights(conv: Quant8Convolution, layout: Layout, values: int) -> Constant:
    """Return the weights as they are stored; 0 in padding.

    Shapes:
        (blocks, steps * 4 / values, channels of a block, values)
    """

    layer = conv.layer

    def pack() -> NDArray[np.uint8 | np.int8]:
        filled = in_steps(layer.weights, layout)
        return by_steps(filled.reshape(len(filled), -1, values), layout)

    return Constant(packed_bytes(conv, layout), pack)


def _channels(conv: Quant8Convolution, layout: Layout) -> Constant:
    """Return each block's biases, multipliers and shifts.

    Shapes:
        (blocks, 3, channels of a block)
    """

    layer = conv.layer

    def pack() -> NDArray[np.int32]:
        rows = (fixed_point.wrap_int32(layer.folded_bias()), *layer.scaling)
        return np.stack([blocked(row, layout.lanes, layout.vectors) for row in rows], 1)

    blocks = ceil_div(conv.out_c, layout.channels)
    return Constant(12 * blocks * layout.channels, pack)

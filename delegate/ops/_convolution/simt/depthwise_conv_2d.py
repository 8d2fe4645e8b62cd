# SPDX-License-Identifier: Apache-2.0
"""8-bit DEPTHWISE_CONV_2D on SIMT devices, in exact float arithmetic, four channels at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._convolution.packing import alike_rows, zeros_row
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._convolution.simt.bytes_by_four import (
    byte_extractions,
    may_use_floats,
    word_defines,
)
from delegate.ops._launches.tiles import launch_of
from delegate.ops._numbers import ceil_div
from delegate.ops._numbers.order import in_blocks_of
from delegate.target import Target

_MOST_TAPS = 25  # of the sliding kernel: a window's weights and pixels are in registers
# Rows of (registers, taps): the largest window that fits beside the other values, with the
# compilers for Adreno, Mali and V3D; and the most window rows, which need a pointer each.
_REGISTER_TAPS, _MOST_LINES = ((200, _MOST_TAPS), (96, 12), (48, 3), (0, 1)), 11
_MOST_EXACT_TAPS = 256  # that floats sum exactly: 255 * 255 * 256 < 2^24
_LEAST_ITEMS = 256  # runs per core: rows are split until there are as many


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launch that slides a window along rows, or loops over taps, if one fits."""
    if target.group_items == 1 or conv.group_out_c > 1 or conv.out_c < 4:
        return ()
    area = conv.area
    fits = area.dilation_w == 1 and conv.taps <= _MOST_TAPS and area.stride_w <= area.kernel_w
    if fits and _fits_registers(conv, target):
        return _by_runs(conv, target)
    # If registers are unknown, other kernels handle the remaining shapes.
    return _by_taps(conv, target) if target.registers else ()


def _fits_registers(conv: Quant8Convolution, target: Target) -> bool:
    """Whether a window fits in registers, or the number of registers is unknown."""
    if not target.registers:
        return True
    most = next(taps for values, taps in _REGISTER_TAPS if target.keeps(values))
    return conv.taps <= most and conv.area.kernel_h <= _MOST_LINES


def _by_runs(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    area = conv.area
    blocks = ceil_div(conv.out_c, 4)
    lines = conv.batch * area.out_h * blocks
    splits = max(1, min(area.out_w // 4, _LEAST_ITEMS * target.compute_units // lines))
    run = ceil_div(area.out_w, splits)
    row_blocks = ceil_div(area.out_w, run)
    return _alternatives(
        conv,
        target,
        f"{area.kernel_h}x{area.kernel_w} step {area.stride_w}",
        "depthwise_conv_2d_float4_quant8",
        lines * row_blocks,
        {"row_blocks": row_blocks, "run": run},
        {"TAPS_H": area.kernel_h, "TAPS_W": area.kernel_w, "STEP": area.stride_w},
    )


def _by_taps(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    if conv.taps > _MOST_EXACT_TAPS:
        return ()
    tile_w = 2 if conv.pixels >= 2 else 1
    return _alternatives(
        conv,
        target,
        f"{tile_w}x4",
        "depthwise_conv_2d_tiled_float4_quant8",
        ceil_div(conv.pixels, tile_w) * ceil_div(conv.out_c, 4),
        {"pixels": conv.pixels},
        {"TILE_W": tile_w},
    )


def _alternatives(
    conv: Quant8Convolution,
    target: Target,
    name: str,
    kernel: str,
    items: int,
    params: Params,
    defines: Defines,
) -> tuple[Alternative, ...]:
    """Return the alternatives: with bytes extracted in place if that may be fast, and converted."""
    uses_floats = may_use_floats(target)

    def alternative(has_places: bool) -> Alternative:
        input_offset = 128 if has_places and conv.source.dtype == "int8" else 0

        layer = conv.layer

        def bias() -> NDArray[np.int64]:
            corrected: NDArray[np.int64] = layer.folded_bias() - input_offset * layer.weight_sums()
            return corrected

        fields: Params = {
            "weights": _blocked_weights(conv, has_places),
            "channels": alike_rows(conv, bias, uses_floats, 4),
            "zeros": zeros_row(conv.out_c, conv.input_zero, conv.source.dtype),
            "items": items,
            "tile_items": target.group_items,
            "channel_blocks": ceil_div(conv.out_c, 4),
        }
        launch = launch_of(
            "depthwise_conv_2d_float4",
            kernel,
            ceil_div(items, target.group_items),
            target.group_items,
            conv.params() | fields | params,
            word_defines(conv, uses_floats) | {"HAS_PLACES": int(has_places)} | defines,
        )
        return Alternative(f"{'placed' if has_places else 'float4'} {name}", (launch,))

    return tuple(map(alternative, byte_extractions(target)))


def _blocked_weights(conv: Quant8Convolution, has_places: bool) -> Constant:
    """Return float weights minus their zero point; `has_places`: divided by 256 to the channel.

    Shapes:
        (blocks, taps, 4 channels); the last block ends with the last channel
    """
    scale = np.float32(256) ** -np.arange(4, dtype=np.float32) if has_places else np.float32(1)

    layer = conv.layer

    def pack() -> NDArray[np.generic]:
        rows = layer.by_tap()[:, in_blocks_of(4, layer.out_c)].astype(np.float32)
        return np.ascontiguousarray((rows - layer.weight_zero).transpose(1, 0, 2) * scale)

    return Constant(16 * ceil_div(conv.out_c, 4) * conv.taps, pack)

# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D, 8 bit, in exact float arithmetic, four channels at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Alternative, Constant, Launch
from delegate.ops._convolution.bytes_by_four import may_use_floats, word_defines
from delegate.ops._convolution.channel_rows import alike_rows
from delegate.ops._convolution.packing import zeros_row
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._numbers.integers import ceil_div
from delegate.target import Target

_MOST_TAPS = 25  # a window's weights and pixels are in registers
_LEAST_ITEMS = 256  # runs a core: rows are cut until there are as many


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launch that slides a window along rows, none where it does not fit."""
    area, channels = conv.area, conv.out_c
    if (
        target.group_items == 1
        or conv.group_out_c > 1
        or channels < 4
        or area.dilation_w > 1
        or conv.taps > _MOST_TAPS
        or area.stride_w > area.kernel_w
    ):
        return ()
    blocks = ceil_div(channels, 4)
    lines = conv.batch * area.out_h * blocks
    cuts = max(1, min(area.out_w // 4, _LEAST_ITEMS * target.compute_units // lines))
    run = ceil_div(area.out_w, cuts)
    row_blocks = ceil_div(area.out_w, run)
    items = lines * row_blocks
    uses_floats = may_use_floats(target)
    launch = Launch(
        "depthwise_conv_2d_float4",
        "depthwise_conv_2d_float4_quant8",
        tiles=ceil_div(items, target.group_items),
        group_items=target.group_items,
        params=conv.params()
        | {
            "weights": _blocked_weights(conv),
            "channels": alike_rows(conv, conv.folded_bias, uses_floats),
            "zeros": zeros_row(channels, conv.input_zero, conv.source.dtype),
            "weight_zero": conv.weight_zero,
            "items": items,
            "tile_items": target.group_items,
            "channel_blocks": blocks,
            "row_blocks": row_blocks,
            "run": run,
        },
        reads=conv.reads,
        writes=conv.writes,
        defines=word_defines(conv, uses_floats)
        | {"TAPS_H": area.kernel_h, "TAPS_W": area.kernel_w, "STEP": area.stride_w},
    )
    name = f"float4 {area.kernel_h}x{area.kernel_w} step {area.stride_w}"
    return (Alternative(name, (launch,)),)


def _blocked_weights(conv: Quant8Convolution) -> Constant:
    """Words of 4 channels: (blocks, taps). The last block ends with the last channel."""
    blocks = ceil_div(conv.out_c, 4)

    def pack() -> NDArray[np.generic]:
        starts = np.minimum(np.arange(blocks) * 4, conv.out_c - 4)
        rows = conv.by_tap()[:, starts[:, None] + np.arange(4)]
        return np.ascontiguousarray(rows.transpose(1, 0, 2))

    return Constant(4 * blocks * conv.taps, pack)

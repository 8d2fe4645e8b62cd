# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, 8 bit, by x86 instructions that were proven on the device.

The kernels are conv_2d_vnni.cl and conv_2d_avx2.cl, which share conv_2d_x86.clh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from delegate.launch import Alternative, Constant, Launch, Params
from delegate.ops._convolution.channel_rows import FIXED, exception_rows, exception_rows_a_block
from delegate.ops._convolution.conv_2d_x86_weights import (
    Layout,
    avx2_pairs_weights,
    avx2_weights,
    blocked,
    signed_vnni_weights,
    vnni_weights,
)
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._numbers.integers import ceil_div
from delegate.target import Target

PANEL_BYTES = 1 << 17  # where a block's windows are put side by side
_SUM_WORK = 200  # instructions that sum up a block's windows
_TILE_WORK = 1 << 20  # least multiply-adds of a tile: some microseconds


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of inner product, and the blocks it takes."""

    isa: str
    lanes: int  # ints a vector
    values: int  # multiplied at a time: 4 bytes are a step
    sizes: tuple[tuple[int, int], ...]  # pixels x vectors of a block
    few_pixels: tuple[int, int]  # for fewer than those
    weights: Callable[[Quant8Convolution, Layout], Params | None]
    suffix: str = ""  # of its name


# A block's sums, weights and inputs fit the registers. VNNI's 32 leave room for the compiler to
# move, as 14 x 2 is slower. One vector is for channels that would leave half of a block empty.
VNNI = Kind("vnni", 16, 4, ((7, 2), (14, 1)), (1, 4), vnni_weights)
AVX2_PAIRS = Kind("avx2", 8, 4, ((6, 2),), (1, 4), avx2_pairs_weights, " pairs")
AVX2 = Kind("avx2", 8, 2, ((6, 2),), (1, 4), avx2_weights)
KINDS = (VNNI, AVX2_PAIRS, AVX2)


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches this target was proven to run, the fastest expected first."""
    if target.group_items != 1:
        return ()
    found = []
    for kind in KINDS:
        if kind.isa not in target.isa:
            continue
        for tile_w, vectors in _sizes(conv, kind):
            launch = _launch(conv, target, kind, tile_w, vectors)
            if launch is not None:
                name = f"{kind.isa} {tile_w}x{vectors * kind.lanes}{kind.suffix}"
                found.append(Alternative(name, (launch,)))
    return tuple(found)


def _sizes(conv: Quant8Convolution, kind: Kind) -> list[tuple[int, int]]:
    """Return the blocks to try, the one that wastes least first."""
    fitting = [size for size in kind.sizes if size[0] <= conv.pixels] or [kind.few_pixels]

    def work(size: tuple[int, int]) -> float:
        tile_w, vectors = size
        pixels = ceil_div(conv.pixels, tile_w) * tile_w
        # An input is loaded once for all vectors.
        return pixels * ceil_div(conv.out_c, vectors * kind.lanes) * (vectors + 0.2)

    ordered = sorted(fitting, key=work)
    # A block that wastes as little may be faster. One that wastes more is not worth its build.
    return [size for size in ordered if work(size) < 1.05 * work(ordered[0])]


def _launch(
    conv: Quant8Convolution, target: Target, kind: Kind, tile_w: int, vectors: int
) -> Launch | None:
    is_signed = conv.source.dtype == "int8"
    is_dense = conv.area.dilation_w == 1
    rows = conv.area.kernel_h if is_dense else 1
    row_values = conv.taps // rows * conv.in_c
    layout = Layout(kind.lanes, vectors, kind.values, rows, ceil_div(row_values, kind.values))
    uses_panel = not conv.is_1x1 or kind is AVX2 or (kind is AVX2_PAIRS and is_signed)
    if uses_panel and tile_w * panel_pitch(layout) + 64 > PANEL_BYTES:
        return None
    flips = is_signed and _is_short(conv, target, tile_w, layout)
    corrects = kind is VNNI and is_signed and not flips
    packed = (signed_vnni_weights if corrects else kind.weights)(conv, layout)
    if packed is None:
        return None
    own = {"FLIPS": int(flips)} if kind is VNNI else {"WEIGHT_BITS": 32 // kind.values}
    defines = {"TILE_W": tile_w, **own}
    # All but products of 16 bits and corrected ones take inputs as uint8.
    least = 0 if kind is AVX2 or corrects else int(np.iinfo(conv.source.dtype).min)
    return block_launch(conv, target, kind.isa, tile_w, layout, packed, least, defines)


def _is_short(conv: Quant8Convolution, target: Target, tile_w: int, layout: Layout) -> bool:
    """Whether it takes longer to sum up a block's windows than to make their bytes uint8."""
    groups = _groups(conv, tile_w, layout.channels, target)
    channel_blocks = groups["channel_blocks"] // groups["channel_groups"]
    return tile_w * layout.steps * channel_blocks < _SUM_WORK


def block_launch(
    conv: Quant8Convolution,
    target: Target,
    isa: str,
    tile_w: int,
    layout: Layout,
    packed: Params,
    least: int,
    defines: Mapping[str, int | str],
) -> Launch:
    """Return a launch of kernels/conv_2d_x86.clh; `least`: of the inputs as the kernel takes them.

    `tile_w`: pixels of a block; `packed`: weights, and the fields of these instructions alone.
    """
    is_signed = conv.source.dtype == "int8"
    groups = _groups(conv, tile_w, layout.channels, target)
    # Where negative results are clamped away, the others are centred about int8's 0.
    is_centred = conv.clamp[0] >= conv.output_zero
    centre = conv.output_zero - (0 if is_signed else 128) if is_centred else None
    fill = conv.in_c + 64
    return Launch(
        f"conv_2d_{isa}",
        f"conv_2d_{isa}_quant8",
        tiles=groups["pixel_groups"] * groups["channel_groups"],
        group_items=1,
        params=conv.params()
        | packed
        | groups
        | {
            "channels": _channels(conv, layout, least, centre),
            "zeros": Constant(fill, lambda: np.full(fill, conv.input_zero, conv.source.dtype)),
            "pixels": conv.pixels,
            "is_matrix": int(conv.is_1x1),
            "is_dense": int(conv.area.dilation_w == 1),
            "rows": layout.rows,
            "row_bytes": conv.taps // layout.rows * conv.in_c,
            "row_steps": layout.row_steps,
            "panel_pitch": panel_pitch(layout),
            "is_centred": int(is_centred),
            "centre": centre or 0,
            "rounds_once": int(conv.single_rounding),
        },
        reads=conv.reads,
        writes=conv.writes,
        defines={
            "IS_SIGNED": int(is_signed),
            **defines,
            "VECTORS": layout.vectors,
            **conv.defines,
            "PANEL_BYTES": PANEL_BYTES,
            "ROWS_A_BLOCK": exception_rows_a_block(layout.vectors),
            "FIXED": FIXED,
        },
    )


def panel_pitch(layout: Layout) -> int:
    """Return how far apart a panel's windows are, in bytes.

    An odd number of cache lines, so that rows do not fall on the same few of a cache's sets.
    """
    return (ceil_div(4 * layout.steps, 64) | 1) * 64


def _channels(conv: Quant8Convolution, layout: Layout, least: int, centre: int | None) -> Constant:
    blocks = ceil_div(conv.out_c, layout.channels)
    return Constant(
        4 * blocks * exception_rows_a_block(layout.vectors) * layout.lanes,
        lambda: exception_rows(
            conv, least, centre, lambda values: blocked(values, layout.lanes, layout.vectors)
        ),
    )


def _groups(conv: Quant8Convolution, tile_w: int, channels: int, target: Target) -> dict[str, int]:
    """Return how many blocks of pixels and of channels there are, and how many groups of each.

    A tile is a group of either, and reads its pixels' windows and its channels' weights.
    """
    window = conv.taps * conv.in_c
    pixel_blocks, channel_blocks = ceil_div(conv.pixels, tile_w), ceil_div(conv.out_c, channels)
    # To finish a result takes time, too, and so does to load a weight from memory.
    work = conv.elements * (window + 24) + 10 * conv.weights.size
    units = target.compute_units
    wanted = max(1, min(8 * units, work // _TILE_WORK))
    if wanted > 1:
        wanted = ceil_div(wanted, units) * units

    def groups(pixel_groups: int) -> tuple[int, int]:
        return pixel_groups, min(channel_blocks, ceil_div(wanted, pixel_groups))

    def cost(pixel_groups: int) -> tuple[int, int]:
        """How many tiles are missing, so that units that are late lose little; then how long the
        unit with most to do takes, in multiply-adds: 4 while it reads a byte.
        """
        _, channel_groups = groups(pixel_groups)
        tiles = pixel_groups * channel_groups
        pixels = ceil_div(pixel_blocks, pixel_groups) * tile_w
        results = ceil_div(channel_blocks, channel_groups) * channels
        each = pixels * results * (window + 24) + 4 * (pixels + results) * window
        return max(0, wanted - tiles), ceil_div(tiles, units) * each

    pixel_groups, channel_groups = groups(min(range(1, min(pixel_blocks, wanted) + 1), key=cost))
    return {
        "pixel_blocks": pixel_blocks,
        "pixel_groups": pixel_groups,
        "channel_blocks": channel_blocks,
        "channel_groups": channel_groups,
    }

# SPDX-License-Identifier: Apache-2.0
"""Blocks of pixels x channels on CPUs, and the layout of their windows and weights.

A window consists of rows of values, each padded with zeros to whole steps of 4 bytes. A block is a
few vectors of channels. The kernels' part is conv_2d_panel.clh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Alternative, Constant, Launch, Params
from delegate.ops._convolution.records import Convolution, Quant8Convolution
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_Convolution = TypeVar("_Convolution", bound=Convolution)
PANEL_BYTES = 1 << 17  # buffer for a block's packed windows
_TILE_WORK = 1 << 20  # multiply-adds per tile: a few microseconds


@dataclass(frozen=True, slots=True)
class GemmConfig:
    """A kind of inner product, and its block sizes."""

    isa: frozenset[str]
    name: str  # also in the kernel's name
    lanes: int  # ints per vector
    values: int  # of a channel that are multiplied at once
    sizes: tuple[tuple[int, int], ...]  # pixels x vectors per block
    few: tuple[tuple[int, int], ...]  # block sizes for fewer pixels, the largest first
    suffix: str = ""  # of the alternatives' names


@dataclass(frozen=True, slots=True)
class Layout:
    """Memory layout of weights: blocks of channels, and rows of a window in steps of 4 bytes."""

    lanes: int  # channels per vector
    vectors: int  # per block
    values: int  # per step: 4 of 8 bits, or 2 of 16 bits
    rows: int  # of contiguous values in a window
    row_steps: int

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return self.vectors * self.lanes

    @property
    def steps(self) -> int:
        """Steps of a window."""
        return self.rows * self.row_steps


def blocked(values: NDArray[Any], lanes: int, vectors: int) -> NDArray[Any]:
    """Pad channels, the first axis, to whole blocks, in the order of the vectors' lanes.

    Pack instructions take 4 lanes of each vector in turn, so each 4 lanes are adjacent channels.

    Shapes:
        (channels, ...) -> (blocks, vectors, lanes, ...)
    """
    block = vectors * lanes
    blocks = ceil_div(values.shape[0], block)
    padded = np.zeros((blocks * block, *values.shape[1:]), values.dtype)
    padded[: values.shape[0]] = values
    quads = padded.reshape(blocks, lanes // 4, vectors, 4, *values.shape[1:])
    ordered: NDArray[Any] = quads.swapaxes(1, 2).reshape(blocks, vectors, lanes, *values.shape[1:])
    return ordered


def packed_bytes(conv: Quant8Convolution, layout: Layout) -> int:
    """Return the size of packed weights: 4 bytes per step and channel."""
    return 4 * ceil_div(conv.out_c, layout.channels) * layout.steps * layout.channels


def in_steps(values: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Pad a window's rows to whole steps.

    Shapes:
        (channels, ...) -> (channels, steps, values of a step)
    """
    filled = np.zeros((len(values), layout.rows, layout.values * layout.row_steps), values.dtype)
    by_row = values.reshape(len(values), layout.rows, -1)
    filled[:, :, : by_row.shape[2]] = by_row
    return filled.reshape(len(values), layout.steps, layout.values)


def by_steps(values: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Interleave the steps of all channels of a block.

    Shapes:
        (channels, steps, ...) -> (blocks, steps, channels of a block, ...)
    """
    by_lane = blocked(values, layout.lanes, layout.vectors)
    of_block = by_lane.reshape(len(by_lane), -1, *by_lane.shape[3:])
    return np.ascontiguousarray(of_block.swapaxes(1, 2))


def panel_pitch(layout: Layout) -> int:
    """Return the stride of a panel's windows, in bytes.

    It is an odd number of cache lines, so that windows do not compete for a few sets of the cache.
    """
    return (ceil_div(4 * layout.steps, 64) | 1) * 64


def fits_panel(layout: Layout, tile_w: int) -> bool:
    """Whether the windows of `tile_w` pixels fit a panel."""
    return tile_w * panel_pitch(layout) + 64 <= PANEL_BYTES


def of_kinds(
    conv: _Convolution,
    target: Target,
    kinds: Sequence[GemmConfig],
    launch: Callable[[_Convolution, Target, GemmConfig, int, int], Launch | None],
) -> tuple[Alternative, ...]:
    """Return the alternatives with proven instructions, the fastest expected first.

    `launch`: returns the launch for a kind, pixels and vectors; None: does not fit.
    """
    alternatives = []
    for kind in kinds:
        if not kind.isa <= target.isa or conv.pixels < kind.few[-1][0]:
            continue
        for tile_w, vectors in least_wasteful(conv, kind):
            block_launch = launch(conv, target, kind, tile_w, vectors)
            if block_launch is not None:
                name = f"{kind.name} {tile_w}x{vectors * kind.lanes}{kind.suffix}"
                alternatives.append(Alternative(name, (block_launch,)))
    return tuple(alternatives)


def least_wasteful(conv: Convolution, kind: GemmConfig) -> list[tuple[int, int]]:
    """Return a kind's block sizes to measure, (pixels, vectors), the least wasteful first."""
    fitting = [size for size in kind.sizes if size[0] <= conv.pixels]
    fitting = fitting or [next(size for size in kind.few if size[0] <= conv.pixels)]

    def work(size: tuple[int, int]) -> float:
        tile_w, vectors = size
        pixels = ceil_div(conv.pixels, tile_w) * tile_w
        # An input is loaded once for all vectors.
        return pixels * ceil_div(conv.out_c, vectors * kind.lanes) * (vectors + 0.2)

    ordered = sorted(fitting, key=work)
    # A block that is about as good may be faster. A worse one is not worth its build.
    return [size for size in ordered if work(size) < 1.05 * work(ordered[0])]


def windows_of(
    conv: Convolution, target: Target, tile_w: int, layout: Layout
) -> tuple[int, Params]:
    """Return the number of tiles, and the fields of conv_2d_panel.clh.

    `tile_w`: pixels per block.
    """
    groups = groups_of(conv, tile_w, layout.channels, target)
    zeros: Params = {}
    if isinstance(conv, Quant8Convolution):  # hybrid ones know theirs at run time
        count, zero, dtype = conv.in_c + 64, conv.input_zero, conv.source.dtype
        zeros["zeros"] = Constant(count, lambda: np.full(count, zero, dtype))
    return groups["pixel_groups"] * groups["channel_groups"], {
        **groups,
        **zeros,
        "pixels": conv.pixels,
        "is_matrix": int(conv.is_matrix),
        "is_dense": int(conv.area.dilation_w == 1),
        "rows": layout.rows,
        "row_bytes": conv.taps // layout.rows * conv.in_c,
        "row_steps": layout.row_steps,
        "panel_pitch": panel_pitch(layout),
    }


def groups_of(conv: Convolution, tile_w: int, channels: int, target: Target) -> dict[str, int]:
    """Return the numbers of pixel and channel blocks, and of groups of each.

    A tile is one group of pixel blocks x one group of channel blocks; it reads their windows and
    weights.
    """
    window = conv.taps * conv.in_c
    pixel_blocks, channel_blocks = ceil_div(conv.pixels, tile_w), ceil_div(conv.out_c, channels)
    # Requantising a result and loading a weight from memory take time, too. Partial blocks are
    # computed in full.
    results = pixel_blocks * tile_w * channel_blocks * channels
    work = results * (window + 24) + 10 * conv.weights.size
    units = target.compute_units
    wanted = max(1, min(8 * units, round(work / _TILE_WORK)))
    if wanted > 1:
        wanted = ceil_div(wanted, units) * units

    def groups(pixel_groups: int) -> tuple[int, int]:
        return pixel_groups, min(channel_blocks, ceil_div(wanted, pixel_groups))

    def cost(pixel_groups: int) -> tuple[int, int]:
        """Return the shortfall of tiles, as many tiles balance the units, then the busiest unit's
        time, in multiply-adds; reading a byte costs 4.
        """
        _, channel_groups = groups(pixel_groups)
        tiles = pixel_groups * channel_groups
        pixels = ceil_div(pixel_blocks, pixel_groups) * tile_w
        results = ceil_div(channel_blocks, channel_groups) * channels
        tile_cost = pixels * results * (window + 24) + 4 * (pixels + results) * window
        return max(0, wanted - tiles), ceil_div(tiles, units) * tile_cost

    pixel_groups, channel_groups = groups(min(range(1, min(pixel_blocks, wanted) + 1), key=cost))
    return {
        "pixel_blocks": pixel_blocks,
        "pixel_groups": pixel_groups,
        "channel_blocks": channel_blocks,
        "channel_groups": channel_groups,
    }

# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV as a CONV_2D of stride 1, for which every kind of device has fast kernels.

Output pixels a stride apart form a phase: they use the same taps of the window with adjacent input
pixels. So a block of stride_h x stride_w output pixels, one of each phase, is one pixel of a
convolution with stride_h * stride_w times the channels. Its window covers those of all phases, with
zero weights for the taps that a phase lacks. Afterwards the pixels of the blocks are rearranged to
rows.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Launch, Params, element_type, temporary
from delegate.ops._convolution import variants
from delegate.ops._convolution.records import Quant8Convolution, Quant16Convolution
from delegate.ops._launches.copy import group_size
from delegate.ops._launches.tiles import (
    LEAST_BYTES,
    MOST_ROUNDS,
    by_share,
    launch_over,
    over_elements,
)
from delegate.ops._launches.types import type_of_bytes
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_Integers = Quant8Convolution | Quant16Convolution
# Alternatives taken from the convolution, the fastest expected first. On CPUs the second one uses
# slower instructions and is not worth its build; on GPUs it is better to measure.
_MOST, _MOST_OF_GROUPS = 1, 2
_MOST_TAPS = 4  # per non-zero one: the vector kernel of transpose_conv.cl has no zero taps
_STORE_BYTES = 16  # per store of the kernel that rearranges pixels
# Weights by a digest of their inputs: delegate/run/recipe.py identifies large arrays by address.
_cached_weights: WeakValueDictionary[bytes, NDArray[np.generic]] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class _Axis:
    """Blocks along the height or the width."""

    stride: int
    skip: int  # pixels of the first block before the output
    blocks: int
    pad: int  # of the convolution
    phases: tuple[int, ...]  # for each tap of the old window: the phase that uses it,
    taps: tuple[int, ...]  # and its index in the new window

    @property
    def window(self) -> int:
        """Taps of the new window."""
        return max(self.taps) + 1


def by_phases(conv: _Integers, target: Target) -> tuple[Alternative, ...]:
    """Return a TRANSPOSE_CONV's alternatives as a convolution; none if that does not pay."""
    area = conv.area
    rows = _axis(area.out_h, area.kernel_h, area.stride_h, area.pad_top)
    columns = _axis(area.out_w, area.kernel_w, area.stride_w, area.pad_left)
    phases = rows.stride * columns.stride
    if phases * rows.window * columns.window > _MOST_TAPS * conv.taps:
        return ()
    # Blocks of one row that end with the output's rows need no rearranging.
    are_rows = rows.stride == 1 and columns.blocks * columns.stride == area.out_w
    shape = (conv.batch, rows.blocks, columns.blocks, phases * conv.out_c)
    result = conv.result if are_rows else temporary("phases", shape, conv.result.dtype)
    convs = variants.conv_2d(_in_blocks(conv, rows, columns, result), target)[:-1]
    most = _MOST_OF_GROUPS if target.group_items > 1 else _MOST
    rearranging = () if are_rows else (_in_rows(conv, rows, columns, result, target),)
    return tuple(
        Alternative(f"phases {each.name}", (*each.launches, *rearranging)) for each in convs[:most]
    )


def _axis(size: int, kernel: int, stride: int, pad: int) -> _Axis:
    """Return the cheapest blocks of `size` output pixels.

    Output pixel y uses tap k with input pixel (y + pad - k) / stride, if that is an integer.
    """

    def with_skip(skip: int) -> _Axis:
        inputs, phases = zip(
            *(divmod(tap + skip - pad, stride) for tap in range(kernel)), strict=True
        )
        last_input = inputs[-1]
        taps = tuple(last_input - input_ for input_ in inputs)
        return _Axis(stride, skip, (size - 1 + skip) // stride + 1, last_input, phases, taps)

    # The second choice has the fewest taps possible, but perhaps one more block.
    return min(map(with_skip, (0, pad % stride)), key=lambda axis: axis.blocks * axis.window)


def _in_blocks(conv: _Integers, rows: _Axis, columns: _Axis, result: Tensor) -> _Integers:
    """Return the convolution whose output channels are those of all phases, phase by phase."""
    phases = rows.stride * columns.stride
    weights = _weights(conv, rows, columns)
    area = replace(
        conv.area,
        out_h=rows.blocks,
        out_w=columns.blocks,
        kernel_h=rows.window,
        kernel_w=columns.window,
        stride_h=1,
        stride_w=1,
        pad_top=rows.pad,
        pad_left=columns.pad,
    )
    if isinstance(conv, Quant16Convolution):
        bias, scaling = np.tile(conv.sums.bias, phases), np.tile(conv.sums.scaling, phases)
        sums = replace(conv.sums, bias=bias, scaling=scaling)
        return replace(conv, result=result, area=area, weights=weights, sums=sums)
    bias, scaling = np.tile(conv.bias, phases), np.tile(conv.scaling, phases)
    return replace(conv, result=result, area=area, weights=weights, bias=bias, scaling=scaling)


def _weights(conv: _Integers, rows: _Axis, columns: _Axis) -> NDArray[np.generic]:
    """Return the weights of `_in_blocks`, one array for all shapes of a layer."""
    zero = conv.weight_zero if isinstance(conv, Quant8Convolution) else 0
    sizes = (zero, conv.weights.dtype, conv.weights.shape, replace(rows, blocks=0))
    digest = hashlib.sha256(repr((*sizes, replace(columns, blocks=0))).encode())
    digest.update(np.ascontiguousarray(conv.weights).data)
    weights = _cached_weights.get(digest.digest())
    if weights is None:
        weights = _cached_weights[digest.digest()] = _by_phase(conv, zero, rows, columns)
    return weights


def _by_phase(conv: _Integers, zero: int, rows: _Axis, columns: _Axis) -> NDArray[np.generic]:
    """Return each phase's weights in the new window, with `zero` for missing taps.

    Shapes:
        (out_c, taps, in_c) -> (phases * out_c, new taps, in_c)
    """
    area, (out_c, _, in_c) = conv.area, conv.weights.shape
    shape = (rows.stride, columns.stride, out_c, rows.window, columns.window, in_c)
    by_phase = np.full(shape, zero, conv.weights.dtype)
    by_tap = conv.weights.reshape(out_c, area.kernel_h, area.kernel_w, in_c)
    for y, (phase_y, tap_y) in enumerate(zip(rows.phases, rows.taps, strict=True)):
        for x, (phase_x, tap_x) in enumerate(zip(columns.phases, columns.taps, strict=True)):
            by_phase[phase_y, phase_x, :, tap_y, tap_x] = by_tap[:, y, x]
    return by_phase.reshape(-1, rows.window * columns.window, in_c)


def _in_rows(
    conv: _Integers, rows: _Axis, columns: _Axis, source: Tensor, target: Target
) -> Launch:
    """Return the launch that rearranges pixels from blocks to rows."""
    width = element_type(conv.result.dtype).itemsize
    group = 1 if target.group_items == 1 else group_size(width, conv.out_c)
    pixel = conv.out_c // group if target.group_items > 1 else conv.out_c * width
    params: Params = {
        "input": source,
        "output": conv.result,
        "out_h": conv.area.out_h,
        "out_w": conv.area.out_w,
        "stride_h": rows.stride,
        "stride_w": columns.stride,
        "skip_top": rows.skip,
        "skip_left": columns.skip,
        "blocks_h": rows.blocks,
        "blocks_w": columns.blocks,
        "pixel": pixel,
    }
    file = "transpose_conv"
    if target.group_items > 1:
        kernel, defines = f"{file}_blocks", {"ELEM": type_of_bytes(width * group)}
        return over_elements(file, kernel, conv.pixels * pixel, target, params, defines)
    count = conv.batch * conv.area.out_h
    row_bytes = conv.area.out_w * pixel
    rounds = columns.blocks * ceil_div(columns.stride * pixel, _STORE_BYTES)
    least, most = ceil_div(LEAST_BYTES, row_bytes), max(1, MOST_ROUNDS // rounds)
    tiling = by_share(count, target, least, most)
    return launch_over(file, f"{file}_row_blocks", tiling, params | {"rows": count})

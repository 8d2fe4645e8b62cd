# SPDX-License-Identifier: Apache-2.0
"""A TRANSPOSE_CONV as a CONV_2D of stride 1, which has a kernel for each kind of device.

Output pixels that lie a stride apart meet the same taps of the window with neighbouring input
pixels. They are a phase. So a block of stride_h x stride_w output pixels, one of each phase, is one
pixel of a convolution with as many times the channels. Its window is that of all phases together:
the taps that a phase lacks have weights of zero. Then the pixels of the blocks are put in rows.
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
from delegate.ops._launches.copy import joined
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
# Alternatives: the convolution's own come with the fastest expected first. On CPUs the second is of
# slower instructions, and not worth its build; how GPUs take bytes is better measured.
_MOST, _MOST_OF_GROUPS = 1, 2
_MOST_TAPS = 4  # for one that is not zero: the vector kernel of transpose_conv.cl has no others
_STORE_BYTES = 16  # of the kernel that puts pixels in rows
# Weights by a digest of what they follow from: delegate/run/recipe.py knows large arrays by
# their place.
_known: WeakValueDictionary[bytes, NDArray[np.generic]] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class _Axis:
    """Blocks along the height or the width."""

    stride: int
    skip: int  # pixels of the first block that lie before the output
    blocks: int
    pad: int  # of the convolution
    phases: tuple[int, ...]  # of each tap of the old window: the phase that meets it,
    taps: tuple[int, ...]  # and its place in the new window

    @property
    def window(self) -> int:
        """Taps of the new window."""
        return max(self.taps) + 1


def by_phases(conv: _Integers, target: Target) -> tuple[Alternative, ...]:
    """Return the launches of a TRANSPOSE_CONV as a convolution; none where it is not worth it."""
    area = conv.area
    rows = _axis(area.out_h, area.kernel_h, area.stride_h, area.pad_top)
    columns = _axis(area.out_w, area.kernel_w, area.stride_w, area.pad_left)
    phases = rows.stride * columns.stride
    if phases * rows.window * columns.window > _MOST_TAPS * conv.taps:
        return ()
    # Blocks of one row that end with the output's are rows of it already.
    are_rows = rows.stride == 1 and columns.blocks * columns.stride == area.out_w
    shape = (conv.batch, rows.blocks, columns.blocks, phases * conv.out_c)
    result = conv.result if are_rows else temporary("phases", shape, conv.result.dtype)
    found = variants.conv_2d(_in_blocks(conv, rows, columns, result), target)[:-1]
    most = _MOST_OF_GROUPS if target.group_items > 1 else _MOST
    last = () if are_rows else (_in_rows(conv, rows, columns, result, target),)
    return tuple(
        Alternative(f"phases {each.name}", (*each.launches, *last)) for each in found[:most]
    )


def _axis(size: int, kernel: int, stride: int, pad: int) -> _Axis:
    """Return the blocks of `size` output pixels that cost least.

    Output pixel y meets tap k with input pixel (y + pad - k) / stride, where that is whole.
    """

    def of(skip: int) -> _Axis:
        places, phases = zip(
            *(divmod(tap + skip - pad, stride) for tap in range(kernel)), strict=True
        )
        last = places[-1]
        taps = tuple(last - place for place in places)
        return _Axis(stride, skip, (size - 1 + skip) // stride + 1, last, phases, taps)

    # The second way takes as few taps as there can be, and perhaps a block more.
    return min(map(of, (0, pad % stride)), key=lambda axis: axis.blocks * axis.window)


def _in_blocks(conv: _Integers, rows: _Axis, columns: _Axis, result: Tensor) -> _Integers:
    """Return the convolution whose channels are those of one phase after the other."""
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
    """Return the weights of `_in_blocks`: the same array for all shapes of a layer."""
    zero = conv.weight_zero if isinstance(conv, Quant8Convolution) else 0
    sizes = (zero, conv.weights.dtype, conv.weights.shape, replace(rows, blocks=0))
    digest = hashlib.sha256(repr((*sizes, replace(columns, blocks=0))).encode())
    digest.update(np.ascontiguousarray(conv.weights).data)
    found = _known.get(digest.digest())
    if found is None:
        found = _known[digest.digest()] = _spread(conv, zero, rows, columns)
    return found


def _spread(conv: _Integers, zero: int, rows: _Axis, columns: _Axis) -> NDArray[np.generic]:
    """Return each phase's weights in the new window, `zero` where it lacks a tap.

    Shapes:
        (out_c, taps, in_c) -> (phases * out_c, new taps, in_c)
    """
    area, (out_c, _, in_c) = conv.area, conv.weights.shape
    shape = (rows.stride, columns.stride, out_c, rows.window, columns.window, in_c)
    spread = np.full(shape, zero, conv.weights.dtype)
    by_tap = conv.weights.reshape(out_c, area.kernel_h, area.kernel_w, in_c)
    for y, (phase_y, tap_y) in enumerate(zip(rows.phases, rows.taps, strict=True)):
        for x, (phase_x, tap_x) in enumerate(zip(columns.phases, columns.taps, strict=True)):
            spread[phase_y, phase_x, :, tap_y, tap_x] = by_tap[:, y, x]
    return spread.reshape(-1, rows.window * columns.window, in_c)


def _in_rows(
    conv: _Integers, rows: _Axis, columns: _Axis, source: Tensor, target: Target
) -> Launch:
    """Return the launch that takes the pixels out of their blocks."""
    width = element_type(conv.result.dtype).itemsize
    times = 1 if target.group_items == 1 else joined(width, conv.out_c)
    pixel = conv.out_c // times if target.group_items > 1 else conv.out_c * width
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
        kernel, defines = f"{file}_blocks", {"ELEM": type_of_bytes(width * times)}
        return over_elements(file, kernel, conv.pixels * pixel, target, params, defines)
    count = conv.batch * conv.area.out_h
    row_bytes = conv.area.out_w * pixel
    rounds = columns.blocks * ceil_div(columns.stride * pixel, _STORE_BYTES)
    least, most = ceil_div(LEAST_BYTES, row_bytes), max(1, MOST_ROUNDS // rounds)
    tiling = by_share(count, target, least, most)
    return launch_over(file, f"{file}_row_blocks", tiling, params | {"rows": count})

# SPDX-License-Identifier: Apache-2.0
"""Sizes and paddings of sliding windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.ops._checks.node import integer, shape_text
from delegate.ops._numbers import ceil_div


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window over height and width, in pixels."""

    in_h: int
    in_w: int
    out_h: int
    out_w: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    dilation_h: int
    dilation_w: int
    pad_top: int
    pad_left: int

    def transposed(self) -> Window:
        """Return the window with input and output swapped, for TRANSPOSE_CONV."""
        return replace(self, in_h=self.out_h, in_w=self.out_w, out_h=self.in_h, out_w=self.in_w)

    def params(self) -> dict[str, int]:
        """Return the fields that kernels read, by name."""
        return {name: getattr(self, name) for name in self.__slots__}


AXES_3D = ("d", "h", "w")
_PADS_3D = ("pad_front", "pad_top", "pad_left")
ONE_TAP = Window(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0)  # for a product of matrices


def window(
    source: Tensor, result: Tensor, kernel_h: int, kernel_w: int, options: Mapping[str, Any]
) -> Window:
    """Return the window that maps `source` to `result`.

    Shapes:
        source (n, h, w, c) -> result (n, oh, ow, _)
    Raises:
        Unsupported: an invalid rank, stride or dilation, or a mismatched output size.
    Source: tflite/kernels/padding.h ComputePaddingHeightWidth
    """
    if len(source.shape) != 4 or len(result.shape) != 4:
        raise Unsupported(
            f"shapes {shape_text(source)} -> {shape_text(result)}: only rank 4 (NHWC)"
        )
    if 0 in source.shape or 0 in result.shape:
        raise Unsupported(f"shapes {shape_text(source)} -> {shape_text(result)}: they are empty")
    if source.shape[0] != result.shape[0]:
        raise Unsupported(f"batch {source.shape[0]} in, {result.shape[0]} out: they must be equal")
    strides = integer(options, "stride_h", 0), integer(options, "stride_w", 0)
    dilations = integer(options, "dilation_h_factor", 1), integer(options, "dilation_w_factor", 1)
    if min(*strides, *dilations, kernel_h, kernel_w) < 1:
        raise Unsupported(
            f"kernel {kernel_h}x{kernel_w}, stride {strides[0]}x{strides[1]}, dilation "
            f"{dilations[0]}x{dilations[1]}: each must be at least 1"
        )
    if max((kernel_h - 1) * dilations[0], (kernel_w - 1) * dilations[1]) >= 2**31 - 1:
        raise Unsupported(
            f"kernel {kernel_h}x{kernel_w}, dilation {dilations[0]}x{dilations[1]}: "
            "wider than 2^31 pixels"
        )
    padding = options.get("padding")
    height, width = source.shape[1:3]
    if padding == "EXPLICIT":  # not TFLite's: see delegate/plan/passes/fuse_pad.py
        height += options["pad_top"] + options["pad_bottom"]
        width += options["pad_left"] + options["pad_right"]
    out_h, pad_top = positions(height, kernel_h, strides[0], dilations[0], padding)
    out_w, pad_left = positions(width, kernel_w, strides[1], dilations[1], padding)
    if padding == "EXPLICIT":
        pad_top, pad_left = options["pad_top"], options["pad_left"]
    if (out_h, out_w) != result.shape[1:3]:
        raise Unsupported(
            f"output {result.shape[1]}x{result.shape[2]}: the window gives {out_h}x{out_w}"
        )
    sizes = (*source.shape[1:3], out_h, out_w, kernel_h, kernel_w)
    return Window(*sizes, *strides, *dilations, pad_top, pad_left)


def positions(size: int, kernel: int, stride: int, dilation: int, padding: Any) -> tuple[int, int]:
    """Return the number of window positions along an axis, and the padding before the first.

    Raises:
        Unsupported: a padding other than SAME and VALID.
    """
    extent = (kernel - 1) * dilation + 1
    if padding == "SAME":
        out = ceil_div(size, stride)
        return out, max(0, (out - 1) * stride + extent - size) // 2
    if padding in ("VALID", "EXPLICIT"):
        return max(0, (size + stride - extent) // stride), 0
    raise Unsupported(f"padding {padding}: only SAME and VALID exist")


def window_3d(source: Tensor, kernel: Sequence[int], options: Mapping[str, Any]) -> dict[str, int]:
    """Return the fields of a window over an NDHWC tensor.

    Raises:
        Unsupported: an invalid stride, dilation or padding.
    """
    fields: dict[str, int] = {}
    for axis, size, taps, pad in zip(AXES_3D, source.shape[1:4], kernel, _PADS_3D, strict=True):
        stride = integer(options, f"stride_{axis}", 0)
        dilation = integer(options, f"dilation_{axis}_factor", 1)
        if min(stride, dilation) < 1 or (taps - 1) * dilation >= 2**31 - 1:
            raise Unsupported(f"stride {stride}, dilation {dilation} of {taps} taps: out of range")
        out, pad_before = positions(size, taps, stride, dilation, options.get("padding"))
        fields |= {
            f"in_{axis}": size,
            f"out_{axis}": out,
            f"kernel_{axis}": taps,
            f"stride_{axis}": stride,
            f"dilation_{axis}": dilation,
            pad: pad_before,
        }
    return fields

# SPDX-License-Identifier: Apache-2.0
"""picture: RGB pixels -> a model's input, like to_input of tflite_opencl/pictures/image.py.

The op is not in .tflite files: label_image builds a graph of one such node for video frames.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import EXACT
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, size_bytes
from delegate.ops._checks.node import shape_text, tensors_of
from delegate.ops._launches.resizing import (
    Resizing,
    interpolation_of,
    interpolation_table,
    over_runs,
)
from delegate.ops._launches.types import ELEM
from delegate.ops._registry import lowers
from delegate.target import Target

_TYPES = ("uint8", "int8", "float32")
_QUANTISED = ("uint8", "int8", "int16")  # with a scale
_CHANNELS = 3
_LARGEST = 2**20  # pixels a side: float coordinates keep some fraction bits
_FAR = 2**20  # from 1 / _FAR to _FAR the kernel's division is exact


@lowers("picture", floats=EXACT)
def lower_picture(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Resize an image bilinearly, then truncate it, normalise it, or normalise and quantise it.

    Options: `mean` and `std`, three numbers each: (value - mean) / std for float outputs. With a
    `scale` above 0 and a `zero_point` these floats are quantised, rounded to nearest.

    Shapes:
        pixels (1, h, w, 3) of uint8 -> (1, oh, ow, 3) of uint8, int8 (less 128) or float32, or
        with a scale of uint8, int8 or int16
    Raises:
        Unsupported: other types or shapes, a mean, std or scale whose quotient may be
            inexact.
    Source: tflite/examples/label_image/bitmap_helpers_impl.h, optimized/resize_bilinear.h
    """
    source, result = tensors_of(node, 1)
    quantization = [node.options.get(name, 0) for name in ("scale", "zero_point")]
    if not all(isinstance(each, (int, float)) for each in quantization):
        raise Unsupported(f"scale and zero point {quantization}: two numbers are needed")
    is_quantised = quantization[0] > 0
    types = _QUANTISED if is_quantised else _TYPES
    if source.dtype != "uint8" or result.dtype not in types:
        suffix = ", stored by a scale" * is_quantised
        raise Unsupported(
            f"{source.dtype} in, {result.dtype} out: uint8, and {', '.join(types)}{suffix}"
        )
    sides = (*source.shape[1:3], *result.shape[1:3])
    for tensor in (source, result):
        if len(tensor.shape) != 4 or (tensor.shape[0], tensor.shape[3]) != (1, _CHANNELS):
            raise Unsupported(f"{shape_text(tensor)}: one picture, NHWC, of 3 channels")
    if not 1 <= min(sides) <= max(sides) <= _LARGEST:
        raise Unsupported(f"{shape_text(source)} -> {shape_text(result)}: from 1 to 2^20 pixels")
    if max(size_bytes(source), size_bytes(result)) >= 2**31:
        raise Unsupported(f"{shape_text(source)} -> {shape_text(result)}: 2^31 bytes or more")
    levels = _levels(node, result, is_quantised)
    resize = Resizing(source, result, align_corners=False, half_pixel_centers=False)
    for axis in (1, 2):
        interpolation_of(resize, axis)  # raises if TFLite would read outside of the input
    launch = over_runs(
        "picture",
        resize,
        {
            "rows": interpolation_table(resize, 1, source.shape[2] * _CHANNELS, False),
            "columns": interpolation_table(resize, 2, _CHANNELS, False),
            "levels": Constant(levels.nbytes, lambda: levels),
        },
        ("depth", _CHANNELS),
        _CHANNELS,
        4,
        {"ELEM": ELEM[result.dtype], "STORED": int(is_quantised)},
        target,
    )
    return (Alternative("plain", (launch,)),)


def _levels(node: Node, result: Tensor, is_quantised: bool) -> NDArray[Any]:
    """Return the constants of each channel, in rows of four: mean and std.

    If quantised, the scale, the zero point, and the lowest and highest value follow.
    """
    levels = np.ones((2, _CHANNELS + 1), np.float32)
    levels[0] = 128 if result.dtype == "int8" else 0
    if result.dtype != "float32" and not is_quantised:
        return levels
    levels[0] = 0
    for row, name in zip(levels, ("mean", "std"), strict=True):
        values = node.options.get(name)
        if (
            not isinstance(values, tuple)
            or len(values) != _CHANNELS
            or not all(isinstance(each, (int, float)) for each in values)
        ):
            raise Unsupported(f"{name} is {values!r}: 3 numbers are needed")
        row[:_CHANNELS] = values
    if is_quantised:
        limits = np.iinfo(result.dtype)
        more = node.options["scale"], node.options.get("zero_point", 0), limits.min, limits.max
        rows = np.repeat(np.array(more, np.float32)[:, np.newaxis], _CHANNELS + 1, axis=1)
        levels = np.concatenate([levels, rows])
    magnitudes = np.abs(levels[:3])
    is_in_range = (magnitudes >= 1 / _FAR) & (magnitudes <= _FAR)
    is_in_range[0] |= magnitudes[0] == 0
    if not is_in_range.all():
        raise Unsupported("mean, std and scale: from 2^-20 to 2^20; a mean may be 0")
    return levels

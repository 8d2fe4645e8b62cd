# SPDX-License-Identifier: Apache-2.0
"""picture: RGB pixels -> a model's input, as to_input of tflite_opencl/pictures/image.py.

No file has it: label_image makes a graph of this one node for the frames of a video.
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
from delegate.ops._launches.resizing import Resizing, between, lines_of, over_runs
from delegate.ops._launches.types import ELEM
from delegate.ops._registry import lowers
from delegate.target import Target

_TYPES = ("uint8", "int8", "float32")
_STORED = ("uint8", "int8", "int16")  # by a scale
_CHANNELS = 3
_LARGEST = 2**20  # pixels a side: a place keeps some bits behind the point
_FAR = 2**20  # with numbers from 1 / _FAR to _FAR the kernel's division loses no bit


@lowers("picture", floats=EXACT)
def lower_picture(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Resize a picture bilinearly, then round it toward zero, make floats of it, or store those.

    Options: `mean` and `std`, three numbers each, of floats: (value - mean) / std. `scale` above 0
    and `zero_point` store such floats in integers, rounded to the nearest.

    Shapes:
        pixels (1, h, w, 3) of uint8 -> (1, oh, ow, 3) of uint8, int8 (less 128) or float32, or
        with a scale of uint8, int8 or int16
    Raises:
        Unsupported: other types or shapes, a mean, std or scale whose quotient may not be exact.
    Source: tflite/examples/label_image/bitmap_helpers_impl.h, optimized/resize_bilinear.h
    """
    source, result = tensors_of(node, 1)
    stored_by = [node.options.get(name, 0) for name in ("scale", "zero_point")]
    if not all(isinstance(each, (int, float)) for each in stored_by):
        raise Unsupported(f"scale and zero point {stored_by}: two numbers are needed")
    is_stored = stored_by[0] > 0
    types = _STORED if is_stored else _TYPES
    if source.dtype != "uint8" or result.dtype not in types:
        how = ", stored by a scale" * is_stored
        raise Unsupported(
            f"{source.dtype} in, {result.dtype} out: uint8, and {', '.join(types)}{how}"
        )
    sides = (*source.shape[1:3], *result.shape[1:3])
    for tensor in (source, result):
        if len(tensor.shape) != 4 or (tensor.shape[0], tensor.shape[3]) != (1, _CHANNELS):
            raise Unsupported(f"{shape_text(tensor)}: one picture, NHWC, of 3 channels")
    if not 1 <= min(sides) <= max(sides) <= _LARGEST:
        raise Unsupported(f"{shape_text(source)} -> {shape_text(result)}: from 1 to 2^20 pixels")
    if max(size_bytes(source), size_bytes(result)) >= 2**31:
        raise Unsupported(f"{shape_text(source)} -> {shape_text(result)}: 2^31 bytes or more")
    levels = _levels(node, result, is_stored)
    resize = Resizing(source, result, align_corners=False, half_pixel_centers=False)
    for axis in (1, 2):
        lines_of(resize, axis)  # raises
    launch = over_runs(
        "picture",
        resize,
        {
            "rows": between(resize, 1, source.shape[2] * _CHANNELS, False),
            "columns": between(resize, 2, _CHANNELS, False),
            "levels": Constant(levels.nbytes, lambda: levels),
        },
        ("depth", _CHANNELS),
        _CHANNELS,
        4,
        {"ELEM": ELEM[result.dtype], "STORED": int(is_stored)},
        target,
    )
    return (Alternative("plain", (launch,)),)


def _levels(node: Node, result: Tensor, is_stored: bool) -> NDArray[Any]:
    """Return what each channel is changed by, in fours: mean and std; if stored, more.

    More are the scale, the zero point, and the least and greatest value.
    """
    levels = np.ones((2, _CHANNELS + 1), np.float32)
    levels[0] = 128 if result.dtype == "int8" else 0
    if result.dtype != "float32" and not is_stored:
        return levels
    levels[0] = 0
    for row, name in zip(levels, ("mean", "std"), strict=True):
        given = node.options.get(name)
        if (
            not isinstance(given, tuple)
            or len(given) != _CHANNELS
            or not all(isinstance(each, (int, float)) for each in given)
        ):
            raise Unsupported(f"{name} is {given!r}: 3 numbers are needed")
        row[:_CHANNELS] = given
    if is_stored:
        limits = np.iinfo(result.dtype)
        more = node.options["scale"], node.options.get("zero_point", 0), limits.min, limits.max
        rows = np.repeat(np.array(more, np.float32)[:, np.newaxis], _CHANNELS + 1, axis=1)
        levels = np.concatenate([levels, rows])
    sizes = np.abs(levels[:3])
    is_near = (sizes >= 1 / _FAR) & (sizes <= _FAR)
    is_near[0] |= sizes[0] == 0
    if not is_near.all():
        raise Unsupported("mean, std and scale: from 2^-20 to 2^20; a mean may be 0")
    return levels

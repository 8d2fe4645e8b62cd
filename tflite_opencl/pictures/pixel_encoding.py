# SPDX-License-Identifier: Apache-2.0
"""How pixels are stored in a quantised input: as they are, or normalised, by its scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegate.inspect import Tensor

_BYTES = {"uint8": 0, "int8": -128}  # and what a pixel of value 0 is there
_USUAL_RANGES = ((0.0, 255.0), (0.0, 1.0), (-1.0, 1.0))  # of pixels, in models' real numbers
_MOST_QUANTA = 1.5  # that the same range may be off, by what zero points are rounded to


def scale_of(tensor: Tensor) -> tuple[float, int]:
    """Return the tensor's scale and zero point; scale 0 where it has not one of them for all."""
    quantization = tensor.quantization
    if quantization is None or len(quantization.scale) != 1:
        return 0.0, 0
    return quantization.scale[0], quantization.zero_point[0]


def pixel_range(tensor: Tensor) -> tuple[float, float] | None:
    """Return the real numbers that pixels of 0 and 255 are in an 8-bit input, as they are.

    None: it is no such input, or has no scale.
    """
    scale, zero_point = scale_of(tensor)
    if tensor.dtype not in _BYTES or not scale:
        return None
    first = _BYTES[tensor.dtype] - zero_point
    return scale * first, scale * (first + 255)


def has_usual_range(tensor: Tensor) -> bool:
    """Whether pixels, as they are, are one of the ranges that models are trained with.

    Those are 0..255, 0..1 and -1..1. True where nothing says another range.
    """
    found, (scale, _) = pixel_range(tensor), scale_of(tensor)
    return found is None or any(_are_near(found, usual, scale) for usual in _USUAL_RANGES)


def stored_by(
    tensor: Tensor, mean: Sequence[float], std: Sequence[float], is_said: bool
) -> tuple[float, int]:
    """Return the scale and zero point by which normalised pixels are stored in an input.

    `mean`, `std`: of pixels. `is_said`: somebody or the model says them; else an 8-bit input gets
    its pixels as they are, which scale 0 stands for, and so it does where that is the same.
    """
    found, (scale, zero_point) = pixel_range(tensor), scale_of(tensor)
    if tensor.dtype not in _BYTES:
        return scale, zero_point
    if found is None or not is_said:
        return 0.0, 0
    count = max(len(mean), len(std))
    pairs = zip(np.resize(mean, count), np.resize(std, count), strict=True)
    with np.errstate(all="ignore"):  # a deviation of 0 is refused where pixels are divided by it
        wanted = [(-middle / spread, (255 - middle) / spread) for middle, spread in pairs]
    is_same = all(_are_near(found, each, scale) for each in wanted)
    return (0.0, 0) if is_same else (scale, zero_point)


def _are_near(found: tuple[float, float], wanted: tuple[float, float], scale: float) -> bool:
    apart = np.abs(np.subtract(found, wanted))
    return bool((apart <= _MOST_QUANTA * scale).all())

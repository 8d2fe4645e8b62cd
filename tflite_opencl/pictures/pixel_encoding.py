# SPDX-License-Identifier: Apache-2.0
"""Pixel encoding of quantised inputs: unchanged, or normalised and quantised by the scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegate.inspect import Tensor

_BYTES = {"uint8": 0, "int8": -128}  # the stored value of a pixel of 0
_USUAL_RANGES = ((0.0, 255.0), (0.0, 1.0), (-1.0, 1.0))  # of pixels, as real numbers
_MOST_QUANTA = 1.5  # tolerance of these ranges, for rounded zero points


def scale_of(tensor: Tensor) -> tuple[float, int]:
    """Return the tensor's scale and zero point; scale 0 if it has none or several."""
    quantization = tensor.quantization
    if quantization is None or len(quantization.scale) != 1:
        return 0.0, 0
    return quantization.scale[0], quantization.zero_point[0]


def pixel_range(tensor: Tensor) -> tuple[float, float] | None:
    """Return the real values of pixels 0 and 255 stored unchanged in an 8-bit input.

    None: not an 8-bit input, or without a scale.
    """
    scale, zero_point = scale_of(tensor)
    if tensor.dtype not in _BYTES or not scale:
        return None
    first = _BYTES[tensor.dtype] - zero_point
    return scale * first, scale * (first + 255)


def has_usual_range(tensor: Tensor) -> bool:
    """Whether unchanged pixels cover one of the ranges that models are trained with.

    Those are 0..255, 0..1 and -1..1. True if there is no scale.
    """
    found, (scale, _) = pixel_range(tensor), scale_of(tensor)
    return found is None or any(_are_near(found, usual, scale) for usual in _USUAL_RANGES)


def stored_by(
    tensor: Tensor, mean: Sequence[float], std: Sequence[float], is_said: bool
) -> tuple[float, int]:
    """Return the scale and zero point to store normalised pixels in an input.

    `mean`, `std`: of pixels. `is_said`: set by the user or the model; otherwise an 8-bit input gets
    its pixels unchanged, indicated by scale 0, which is also returned if the result is equal.
    """
    found, (scale, zero_point) = pixel_range(tensor), scale_of(tensor)
    if tensor.dtype not in _BYTES:
        return scale, zero_point
    if found is None or not is_said:
        return 0.0, 0
    count = max(len(mean), len(std))
    pairs = zip(np.resize(mean, count), np.resize(std, count), strict=True)
    with np.errstate(all="ignore"):  # a deviation of 0 is rejected where pixels are divided by it
        wanted = [(-middle / spread, (255 - middle) / spread) for middle, spread in pairs]
    is_same = all(_are_near(found, each, scale) for each in wanted)
    return (0.0, 0) if is_same else (scale, zero_point)


def _are_near(found: tuple[float, float], wanted: tuple[float, float], scale: float) -> bool:
    apart = np.abs(np.subtract(found, wanted))
    return bool((apart <= _MOST_QUANTA * scale).all())

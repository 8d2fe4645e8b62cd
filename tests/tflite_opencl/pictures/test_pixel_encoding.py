# SPDX-License-Identifier: Apache-2.0
"""Encoding of pixels for 8-bit inputs, and when their scale is used."""

from __future__ import annotations

import pytest

from delegate.inspect import Tensor
from tests.support.model import t
from tflite_opencl.pictures.pixel_encoding import has_usual_range, pixel_range, stored_by

RANGES = [
    # dtype, scale, zero point; values of pixels 0 and 255; whether models are trained so
    ("uint8", 1.0, 0, (0, 255), True),
    ("uint8", 1 / 255, 0, (0, 1), True),
    ("int8", 1 / 255, -128, (0, 1), True),
    ("uint8", 1 / 128, 128, (-1, 127 / 128), True),
    ("int8", 1 / 127.5, -1, (-127 / 127.5, 128 / 127.5), True),
    ("int8", 0.0187, -14, (-114 * 0.0187, 141 * 0.0187), False),
    ("uint8", 0.5, 0, (0, 127.5), False),
    ("int8", 1.0, 0, (-128, 127), False),
]


@pytest.mark.parametrize(("dtype", "scale", "zero_point", "limits", "is_usual"), RANGES)
def test_pixels_of_8_bit_input(
    dtype: str, scale: float, zero_point: int, limits: tuple[float, float], is_usual: bool
) -> None:
    tensor = t((1, 4, 4, 3), dtype, scale, zero_point)
    assert pixel_range(tensor) == pytest.approx(limits, rel=1e-6)
    assert has_usual_range(tensor) == is_usual
    assert stored_by(tensor, (127.5,), (127.5,), is_said=False) == (0.0, 0)


@pytest.mark.parametrize(
    ("tensor", "mean", "std", "is_stored"),
    [
        (t((1, 4, 4, 3), "int8", 0.0187, -14), (123.7,), (58.4,), True),
        (t((1, 4, 4, 3), "int8", 1 / 127, 0), (0,), (255,), True),
        (t((1, 4, 4, 3), "int8", 1 / 127.5, 0), (127.5,), (127.5,), False),
        (t((1, 4, 4, 3), "int8", 1 / 255, -128), (0,), (255,), False),
        (t((1, 4, 4, 3), "uint8", 1 / 128, 128), (127.5,), (127.5,), False),
        (t((1, 4, 4, 3), "uint8", 1 / 255, 0), (0, 0, 9), (255,), True),  # for one channel only
        (t((1, 4, 4, 3), "uint8", 1 / 255, 0), (0,), (0,), True),  # refused later
        (t((1, 4, 4, 3), "uint8"), (0,), (1,), False),
    ],
)
def test_scale_is_used_for_other_ranges(
    tensor: Tensor, mean: tuple[float, ...], std: tuple[float, ...], is_stored: bool
) -> None:
    result = stored_by(tensor, mean, std, is_said=True)
    scale = tensor.quantization.scale[0] if tensor.quantization else 0.0
    assert result[0] == (scale if is_stored else 0.0)


def test_other_types_use_their_scale() -> None:
    assert stored_by(t((1, 4, 4, 3), "int16", 0.5), (0,), (1,), is_said=False) == (0.5, 0)
    assert stored_by(t((1, 4, 4, 3)), (0,), (1,), is_said=True) == (0.0, 0)

# SPDX-License-Identifier: Apache-2.0
"""Sliding windows: every one covers input, and as many as fit are there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from delegate import Unsupported
from delegate.ops._checks.node import integer, shape_text
from delegate.ops._checks.windows import Window, window
from tests.support.cases import output_size
from tests.support.model import t

SIZES = st.integers(1, 40)
FACTORS = st.integers(1, 7)


def _window(
    size: int, kernel: int, stride: int, dilation: int, padding: str, out: int | None = None
) -> Window:
    along = output_size(size, kernel, stride, dilation, padding) if out is None else out
    options = {"padding": padding, "stride_h": stride, "stride_w": 1, "dilation_h_factor": dilation}
    return window(t((1, size, 5, 1)), t((1, along, 5, 1)), kernel, 1, options)


@given(size=SIZES, kernel=FACTORS, stride=FACTORS, dilation=FACTORS)
def test_valid_windows_lie_inside(size: int, kernel: int, stride: int, dilation: int) -> None:
    extent = (kernel - 1) * dilation + 1
    assume(extent <= size)
    area = _window(size, kernel, stride, dilation, "VALID")
    assert area.pad_top == 0
    assert (area.out_h - 1) * stride + extent <= size  # the last one does
    assert area.out_h * stride + extent > size  # the next one would not


@given(size=SIZES, kernel=FACTORS, stride=FACTORS, dilation=FACTORS)
def test_same_windows_are_centred(size: int, kernel: int, stride: int, dilation: int) -> None:
    extent = (kernel - 1) * dilation + 1
    area = _window(size, kernel, stride, dilation, "SAME")
    assert area.out_h == len(range(0, size, stride))
    below = max(0, (area.out_h - 1) * stride + extent - size) - area.pad_top
    assert 0 <= below - area.pad_top <= 1  # an odd row is below


@given(size=SIZES, kernel=FACTORS, stride=FACTORS, padding=st.sampled_from(["SAME", "VALID"]))
def test_every_dense_window_covers_input(size: int, kernel: int, stride: int, padding: str) -> None:
    # What lets an average divide by its count.
    assume(padding == "SAME" or kernel <= size)
    area = _window(size, kernel, stride, 1, padding)
    for y in range(area.out_h):
        top = y * stride - area.pad_top
        assert top < size
        assert top + kernel > 0


def test_params_are_the_fields() -> None:
    assert _window(7, 3, 2, 1, "SAME").params() == {
        "in_h": 7, "in_w": 5, "out_h": 4, "out_w": 5, "kernel_h": 3, "kernel_w": 1, "stride_h": 2,
        "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "pad_top": 1, "pad_left": 0,
    }  # fmt: skip


def test_output_size_that_does_not_fit() -> None:
    with pytest.raises(Unsupported, match=r"^output 5x5: the window gives 4x5$"):
        _window(7, 3, 2, 1, "SAME", out=5)


@pytest.mark.parametrize("value", [None, "1", 1.5, b"1", (1,), 2**31, -(2**31) - 1], ids=repr)
def test_options_that_are_no_integer(value: Any) -> None:
    with pytest.raises(Unsupported, match=r"^stride_h is .*: an int32 is needed$"):
        integer({"stride_h": value}, "stride_h", 0)


def test_options_that_are_integers() -> None:
    assert integer({"stride_h": 2**31 - 1}, "stride_h", 0) == 2**31 - 1
    assert integer({}, "stride_h", 7) == 7


@pytest.mark.parametrize(
    ("shape", "text"), [((), "scalar"), ((3,), "3"), ((1, 224, 224, 3), "1x224x224x3")]
)
def test_shape_text(shape: tuple[int, ...], text: str) -> None:
    assert shape_text(t(shape)) == text

# SPDX-License-Identifier: Apache-2.0
"""The proof of ADD by floats, against the scalar arithmetic of the host."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate.ops._numbers import fixed_point
from delegate.ops._numbers.float_sum import FloatSum, Sum, float_sum
from tests.support.cases import DTYPES, scales, zero_points


def case_of(
    scales: tuple[float, float, float],
    zeros: tuple[int, int, int] = (0, 0, 0),
    dtype: str = "int8",
    clamp: tuple[int, int] | None = None,
) -> Sum:
    """Return a sum as lowering makes it."""
    left, right, result = scales
    widest = 2 * max(left, right)
    limits = np.iinfo(dtype)
    return Sum(
        zeros,
        scales,
        (
            fixed_point.quantize_multiplier(left / widest),
            fixed_point.quantize_multiplier(right / widest),
            fixed_point.quantize_multiplier(widest / (2**20 * result)),
        ),
        20,
        clamp or (int(limits.min), int(limits.max)),
        dtype,
    )


def one_result(case: Sum, left: int, right: int) -> int:
    """Return TFLite's result, computed with integers of any size."""
    parts = [
        fixed_point.multiply_by_quantized_multiplier((value - zero) << case.left_shift, *rescaling)
        for value, zero, rescaling in zip(
            (left, right), case.zeros[:2], case.rescaling[:2], strict=True
        )
    ]
    scaled = fixed_point.multiply_by_quantized_multiplier(sum(parts), *case.rescaling[2])
    low, high = case.clamp
    return max(low, min(high, scaled + case.zeros[2]))


def by_floats(case: Sum, floats: FloatSum) -> NDArray[np.int32]:
    """Return the results of float32 operations, rounded one by one."""
    values = case.inputs().astype(np.float32)
    inner = values * np.float32(floats.right_factor) + np.float32(floats.offset)
    total = (values * np.float32(floats.left_factor))[:, None] + inner
    rounded = (total + np.float32(12582912.0 + case.zeros[2])).view(np.int32)
    results: NDArray[np.int32] = rounded - np.float32(12582912.0).view(np.int32)
    return results.clip(*case.clamp)


MODELS = [  # of MobileNet V2's and EfficientNet-Lite0's sums
    case_of((0.4014929533, 0.2758343518, 0.4321689606), (136, 119, 133), "uint8"),
    case_of((0.1562760174, 0.1996811032, 0.2202732563), (122, 124, 120), "uint8"),
    case_of((0.2692156732, 0.4008235335, 0.4622745216), (-2, -5, -5)),
    case_of((0.1394509822, 0.2776078284, 0.2952941060), (-6, -3, -1)),
]


@pytest.mark.parametrize("case", MODELS, ids=str)
def test_models_sums_have_a_form(case: Sum) -> None:
    floats = float_sum(case)
    assert floats is not None
    assert np.array_equal(by_floats(case, floats), case.results())


def test_the_factors_are_the_scales_quotients() -> None:
    floats = float_sum(case_of((0.1, 0.07, 0.13), (131, 120, 125), "uint8"))
    assert floats is not None
    assert floats.left_factor == pytest.approx(0.1 / 0.13, rel=1e-6)
    assert floats.right_factor == pytest.approx(0.07 / 0.13, rel=1e-6)
    assert floats.offset == pytest.approx(-(131 * 0.1 + 120 * 0.07) / 0.13, abs=1e-3)


def test_ties_away_from_zero_have_no_form() -> None:
    assert float_sum(case_of((0.5, 0.5, 1.0))) is None


def test_ties_on_one_side_of_the_clamp_have_one() -> None:
    case = case_of((0.5, 0.5, 1.0), clamp=(0, 127))
    floats = float_sum(case)
    assert floats is not None
    assert np.array_equal(by_floats(case, floats), case.results())


@pytest.mark.parametrize("ratio", [1e-6, 9.0])
def test_factors_beyond_what_float64_holds(ratio: float) -> None:
    assert float_sum(case_of((ratio, 1.0, 1.0))) is None


@given(dtype=DTYPES, sizes=st.tuples(scales(-6, 2), scales(-6, 2), scales(-4, 2)), data=st.data())
def test_drawn(dtype: str, sizes: tuple[float, float, float], data: st.DataObject) -> None:
    zeros = data.draw(st.tuples(*[zero_points(dtype)] * 3))
    case = case_of(sizes, zeros, dtype)
    expected = case.results()
    for left, right in data.draw(st.lists(st.tuples(*[st.integers(0, 255)] * 2), max_size=20)):
        values = case.inputs().tolist()
        assert expected[left, right] == one_result(case, values[left], values[right])
    floats = float_sum(case)
    if floats is not None:
        assert np.array_equal(by_floats(case, floats), expected)

# SPDX-License-Identifier: Apache-2.0
"""The fixed-point arithmetic: the host's against gemmlowp's, the devices' against the host's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from delegate import DeviceInfo, Unsupported
from delegate.launch import Alternative, Constant, Launch, Schedule, Step
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import quantized_bounds
from delegate.ops._numbers import fixed_point
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.run.device import Device
from tests.support.cases import multipliers, quantization
from tests.support.model import t

INT32 = st.integers(-(2**31), 2**31 - 1)
SCALES = st.floats(2.0**-40, 2.0**30)


@pytest.mark.parametrize(
    ("real", "multiplier", "shift"),
    [
        (1.0, 2**30, 1),
        (0.5, 2**30, 0),
        (0.75, 3 * 2**29, 0),
        (3.0, 3 * 2**29, 2),
        (math.nextafter(1.0, 0.0), 2**30, 1),  # rounds up to 2^31, which is halved
        (2.0**-32, 2**30, -31),
        (2.0**-33, 0, 0),  # nothing is left of any int32
        (0.0, 0, 0),
        (-1.0, 0, 0),
        (math.inf, 0, 0),
        (math.nan, 0, 0),
    ],
)
def test_quantize_multiplier(real: float, multiplier: int, shift: int) -> None:
    assert fixed_point.quantize_multiplier(real) == (multiplier, shift)


@given(real=SCALES)
def test_quantize_multiplier_is_near(real: float) -> None:
    multiplier, shift = fixed_point.quantize_multiplier(real)
    assume(multiplier > 0)
    assert 2**30 <= multiplier < 2**31
    assert math.isclose(math.ldexp(multiplier, shift - 31), real, rel_tol=2.0**-31)


def _gemmlowp(value: int, multiplier: int, shift: int) -> int:
    """Return what the C code gives: fixedpoint.h, each line as it is there."""
    value *= 1 << max(shift, 0)
    value = (value + 2**31) % 2**32 - 2**31
    product = value * multiplier
    nudge = 1 << 30 if product >= 0 else 1 - (1 << 30)
    high = abs(product + nudge) // 2**31 * (1 if product + nudge >= 0 else -1)  # truncates
    exponent = max(-shift, 0)
    mask = (1 << exponent) - 1
    remainder = high & mask
    threshold = (mask >> 1) + (1 if high < 0 else 0)
    return (high >> exponent) + (1 if remainder > threshold else 0)


@given(value=INT32, multiplier=st.integers(2**30, 2**31 - 1), shift=st.integers(-31, 30))
def test_two_roundings_are_gemmlowp_s(value: int, multiplier: int, shift: int) -> None:
    got = fixed_point.multiply_by_quantized_multiplier(value, multiplier, shift)
    assert got == _gemmlowp(value, multiplier, shift)


@pytest.mark.parametrize(
    ("value", "answer"), [(3, 2), (1, 1), (-1, -1), (-3, -2), (2, 1), (-2, -1), (0, 0)]
)
def test_one_rounding_takes_ties_away_from_zero(value: int, answer: int) -> None:
    assert fixed_point.multiply_by_quantized_multiplier_once(value, 2**30, 0) == answer


@given(
    real=multipliers(-14, 4),
    largest=st.sampled_from([1, 1000, 2**20, 2**26]),
    share=st.floats(-1, 1),
    answer=st.integers(0, 254),
    step=st.sampled_from([-1, 0, 1]),
)
def test_exact_multipliers_round_as_a_double_product(
    real: float, largest: int, share: float, answer: int, step: int
) -> None:
    rows, found = fixed_point.exact_multipliers(np.array([1.0, real, 2.0]), largest)
    multiplier, shift = rows[:, 1].tolist()
    assert found[1]
    # Anywhere, and beside the border between two answers.
    for value in (int(largest * share), round((answer + 0.5) / real) + step):
        if abs(value) <= largest:
            product = abs(value * real)
            expected = math.floor(product) + (product % 1 >= 0.5)
            got = fixed_point.multiply_by_quantized_multiplier_once(value, multiplier, shift)
            assert min(abs(got), 255) == min(expected, 255)
            assert got == 0 or (got > 0) == (value > 0)


@pytest.mark.parametrize(
    ("real", "largest", "is_found"),
    [
        (2.0, 2**30, False),  # answers beyond 32 bits
        (1.32545e-07, 2**30, False),  # no multiplier of 31 bits fits every answer
        (1.32545e-07, 2**20, True),
        (1e-12, 2**30, True),  # nothing but zeros
    ],
)
def test_exact_multipliers_there_are(real: float, largest: int, is_found: bool) -> None:
    rows, found = fixed_point.exact_multipliers(np.array([real, 0.25]), largest)
    assert found.tolist() == [is_found, True]
    assert rows[:, 1].tolist() == [2**30, -1]


@given(value=st.integers(-(2**40), 2**40))
def test_wrap_int32(value: int) -> None:
    (wrapped,) = fixed_point.wrap_int32(np.array([value], np.int64)).tolist()
    assert (wrapped - value) % 2**32 == 0
    assert -(2**31) <= wrapped < 2**31


@pytest.mark.parametrize(
    ("dtype", "scale", "zero", "fused", "expected"),
    [
        ("uint8", 0.5, 3, "NONE", (0, 255)),
        ("int8", 0.5, 3, "NONE", (-128, 127)),
        ("uint8", 0.5, 3, "RELU", (3, 255)),
        ("int8", 0.5, -128, "RELU", (-128, 127)),
        ("uint8", 0.5, 3, "RELU6", (3, 15)),
        ("uint8", 0.01, 3, "RELU6", (3, 255)),
        ("int8", 0.25, 127, "RELU6", (127, 127)),
        ("int8", 0.4, 3, "RELU_N1_TO_1", (0, 6)),  # 2.5 steps: away from zero
        ("uint8", 0.4, 1, "RELU_N1_TO_1", (0, 4)),
    ],
)
def test_activation_range(
    dtype: str, scale: float, zero: int, fused: str, expected: tuple[int, int]
) -> None:
    assert quantized_bounds(t((1,), dtype, scale, zero), fused) == expected


def test_activation_bound_beyond_32_bits_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"^activation bound 6\.0 at scale .*: beyond 32 bits$"):
        quantized_bounds(t((1,), "uint8", 1e-40, 0), "RELU6")


def test_scales_and_zero_points_must_be_as_many() -> None:
    tensor = t((1,), "int8", 0.5)
    object.__setattr__(tensor, "quantization", quantization(0.5, ()))
    with pytest.raises(Unsupported):
        quantized.per_tensor(tensor)


def test_rounding_on_the_device(device: DeviceInfo) -> None:
    # The self-test's kernel, fed with values of the whole range.
    rng = np.random.default_rng(0)
    count = 4096
    edges = [0, 1, -1, 2**31 - 1, 1 - 2**31, 2**30, -(2**30), 255, -255]
    cases = np.zeros((count, 4), np.int32)
    cases[:, 0] = rng.integers(1 - 2**31, 2**31, count) >> rng.integers(0, 31, count)
    cases[: 62 * len(edges), 0] = np.repeat(edges, 62)
    cases[:, 1] = rng.integers(2**30, 2**31, count)
    cases[::5, 1] = 2**30
    cases[::7, 1] = 2**31 - 1
    cases[:, 2] = np.arange(count) % 62 - 31
    answers = t((count, 4), "int32")
    launch = Launch(
        "runtime_self_test",
        "runtime_self_test",
        tiles=count,
        group_items=1,
        params={"cases": Constant(cases.nbytes, lambda: cases), "answers": answers},
        reads=(),
        writes=(answers,),
    )
    opened = Device(device)
    schedule = Schedule((Step(0, "", Alternative("test", (launch,))),), (), (answers,))
    got = np.zeros((count, 4), np.int32)
    executor = planned_executor(opened, Kernels(opened), schedule)
    executor.run([], [got.reshape(-1).view(np.uint8)])
    executor.close()
    for x, multiplier, shift, row in zip(*cases.T[:3].tolist(), got.tolist(), strict=True):
        twice = fixed_point.multiply_by_quantized_multiplier(x, multiplier, shift)
        once = fixed_point.multiply_by_quantized_multiplier_once(x, multiplier, shift)
        expected = fixed_point.wrap_int32(np.array([twice, once], np.int64)).tolist()
        assert row[:2] == expected, (x, multiplier, shift)

# SPDX-License-Identifier: Apache-2.0
"""Float forms of the requantisation: a proven one equals fixed point for every sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate.ops._numbers import fixed_point
from delegate.ops._numbers.float_requantize import FloatRescale, float_rescale
from tests.support.cases import multipliers

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def _scaling(reals: Any) -> NDArray[np.int32]:
    pairs = [fixed_point.quantize_multiplier(float(real)) for real in np.atleast_1d(reals)]
    scaling: NDArray[np.int32] = np.array(pairs, np.int32).T.copy()
    return scaling


def _fixed(sums: Ints, multiplier: int, shift: int, once: bool = False) -> Ints:
    scale = (
        fixed_point.multiply_by_quantized_multiplier_once
        if once
        else fixed_point.multiply_by_quantized_multiplier
    )
    return scale(sums, multiplier, shift)


def _fma(a: Floats, b: Floats, c: Floats) -> Floats:
    """a * b + c, rounded once: float64 holds the product, and what the sum loses is found out."""
    product = a.astype(np.float64) * b.astype(np.float64)
    added = c.astype(np.float64)
    total = product + added
    part = total - product
    lost = (product - (total - part)) + (added - part)
    rounded = total.astype(np.float32)
    # A total between two floats was rounded to even, whatever was lost.
    rest = total - rounded
    beyond = np.where(rest > 0, np.inf, -np.inf).astype(np.float32)
    other = np.nextafter(rounded, beyond)
    is_middle = np.abs(rest) == np.abs(other.astype(np.float64) - total)
    is_other = is_middle & (np.sign(lost) == np.sign(rest)) & (lost != 0)
    return np.where(is_other, other, rounded).astype(np.float32)


def _by_floats(
    form: FloatRescale, channel: int, sums: Ints, has_centre: bool, fused: bool = True
) -> Ints:
    """What a kernel computes."""
    moved = sums + form.added[channel]
    assert (np.abs(moved + 0.5) < 2**31).all()
    x = moved.astype(np.int32).astype(np.float32)
    factor = np.full_like(x, form.factor[channel])
    offset = np.full_like(x, form.offset[channel])
    if not has_centre:
        offset = np.where(x < 0, -offset, offset)
    y = _fma(x, factor, offset) if fused else x * factor + offset
    results = np.rint(y).astype(np.int64)
    for exception, correction in zip(form.exception, form.correction, strict=True):
        results += np.where(moved == exception[channel], correction[channel], 0)
    return results


def _worth_trying(multiplier: int, shift: int, low: int, high: int, sums: tuple[int, int]) -> Ints:
    """Return sums around every step from one result between `low` and `high` to the next."""
    scale = multiplier * 2.0 ** (shift - 31)
    steps = np.arange(low - 2, high + 3) - 0.5
    around = (steps / scale if multiplier else steps * 2.0**30)[:, None] + np.arange(-4, 5)
    values = np.concatenate([np.rint(around).ravel(), [*sums, 0, 1, -1]])
    return np.unique(np.clip(values, *sums).astype(np.int64))


INT32 = (-(2**31), 2**31 - 1)


def _assert_equal(
    form: FloatRescale,
    scaling: NDArray[np.int32],
    zero: int,
    clamp: tuple[int, int],
    centre: int | None = None,
    sums: tuple[Ints, Ints] | None = None,
    fused: bool = True,
    once: bool = False,
) -> None:
    base = 0 if centre is None else centre
    for channel in np.flatnonzero(form.exact).tolist():
        multiplier, shift = (int(row[channel]) for row in scaling)
        ends = INT32 if sums is None else (int(sums[0][channel]), int(sums[1][channel]))
        low, high = clamp[0] - zero, clamp[1] - zero
        tried = _worth_trying(multiplier, shift, low, high, ends)
        if centre is not None and sums is None:
            tried = tried[np.abs(tried + form.added[channel] + 0.5) < 2**31]
        got = _by_floats(form, channel, tried, centre is not None, fused) - base
        expected = _fixed(tried, multiplier, shift, once)
        wrong = np.clip(got, low, high) != np.clip(expected, low, high)
        assert not wrong.any(), (channel, multiplier, shift, tried[wrong][:5], got[wrong][:5])


RANGES = st.sampled_from([(0, (0, 255)), (131, (0, 255)), (255, (0, 255)), (7, (7, 200))])
SIGNED = st.sampled_from([(-128, (-128, 127)), (3, (-128, 127)), (127, (-128, 127))])


@given(
    reals=st.lists(multipliers(-26, 1), min_size=1, max_size=5),
    range_=RANGES | SIGNED,
    fused=st.booleans(),
    once=st.booleans(),
    exceptions=st.integers(0, 2),
)
def test_a_proven_form_equals_fixed_point(
    reals: list[float],
    range_: tuple[int, tuple[int, int]],
    fused: bool,
    once: bool,
    exceptions: int,
) -> None:
    zero, clamp = range_
    scaling = _scaling(reals)
    form = float_rescale(
        scaling, zero, clamp, fused=fused, single_rounding=once, exceptions=exceptions
    )
    _assert_equal(form, scaling, zero, clamp, fused=fused, once=once)


@given(
    reals=st.lists(multipliers(-26, 1), min_size=1, max_size=5),
    low=st.integers(-(2**24), 2**20),
    size=st.integers(0, 2**24),
    zero=st.integers(-128, 127),
    is_positive=st.booleans(),
    once=st.booleans(),
)
def test_a_proven_form_equals_fixed_point_for_the_sums_that_occur(
    reals: list[float], low: int, size: int, zero: int, is_positive: bool, once: bool
) -> None:
    scaling = _scaling(reals)
    sums = np.full(len(reals), low, np.int64), np.full(len(reals), low + size, np.int64)
    clamp = (zero, 127) if is_positive else (-128, 127)
    centre = zero if is_positive else None
    form = float_rescale(
        scaling, zero, clamp, centre=centre, sums=sums, exceptions=2, single_rounding=once
    )
    _assert_equal(form, scaling, zero, clamp, centre, sums, once=once)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("real", [0.9, 0.51, 1 / 3, 0.0625, 0.0131, 0.00417])
def test_every_sum_of_some_thousands(real: float, fused: bool, once: bool) -> None:
    scaling = _scaling(real)
    form = float_rescale(scaling, 3, (-128, 127), fused=fused, single_rounding=once, exceptions=2)
    if not form.exact[0]:
        pytest.skip("not proven")
    sums = np.arange(-40_000, 40_000)
    got = _by_floats(form, 0, sums, has_centre=False, fused=fused)
    expected = _fixed(sums, int(scaling[0, 0]), int(scaling[1, 0]), once)
    assert np.array_equal(np.clip(got, -131, 124), np.clip(expected, -131, 124))


def _typical(count: int, least: float = 0.0005, most: float = 0.01) -> NDArray[np.int32]:
    # As the scales of MobileNet's int8 convolutions are.
    return _scaling(np.random.default_rng(5).uniform(least, most, count))


def _sums(count: int, most: int = 2**22) -> tuple[Ints, Ints]:
    return np.full(count, -most), np.full(count, most)


def test_most_channels_have_a_form_and_a_centre_and_exceptions_give_it_to_more() -> None:
    scaling, sums = _typical(400), _sums(400)
    plain = float_rescale(scaling, -128, (-128, 127), sums=sums)
    centred = float_rescale(scaling, -128, (-128, 127), centre=-128, sums=sums)
    one = float_rescale(scaling, -128, (-128, 127), centre=-128, sums=sums, exceptions=1)
    assert 300 < plain.exact.sum() < centred.exact.sum() < one.exact.sum() <= 400
    assert set(np.unique(one.correction[0])) == {-1, 0, 1}
    assert not one.correction[1].any()
    _assert_equal(plain, scaling, -128, (-128, 127), None, sums)
    _assert_equal(one, scaling, -128, (-128, 127), -128, sums)


def test_two_exceptions_give_a_form_to_more() -> None:
    scaling = _typical(400, 0.0002, 0.0006)
    one, two = (float_rescale(scaling, 3, (-128, 127), exceptions=count) for count in (1, 2))
    assert one.exact.sum() < two.exact.sum()
    pairs = {tuple(pair) for pair in two.correction.T.tolist()}
    # Most often a step errs on both sides of 0.
    assert {(1, -1), (-1, 1)} <= pairs
    _assert_equal(two, scaling, 3, (-128, 127))


@pytest.mark.parametrize(("zero", "side"), [(3, -1), (-3, 1)])
def test_exceptions_late_and_early(zero: int, side: int) -> None:
    # As the scales before residual additions are. What errs on both sides has no form.
    scaling = _typical(400, 0.0002, 0.0006)
    form = float_rescale(scaling, zero, (-128, 127), exceptions=1)
    signs = {
        (int(np.sign(sum_)), int(correction))
        for sum_, correction in zip(form.exception[0], form.correction[0], strict=True)
        if correction
    }
    assert signs == {(side, 1), (side, -1)}
    _assert_equal(form, scaling, zero, (-128, 127))


def test_without_exceptions_no_sum_is_one() -> None:
    form = float_rescale(_typical(50), 3, (-128, 127))
    assert (form.exception == -(2**31)).all()
    assert not form.correction.any()
    assert not form.added.any()


def test_a_wrong_form_is_seen() -> None:
    scaling = _typical(1)
    form = float_rescale(scaling, 3, (-128, 127))
    form.factor[0] *= np.float32(1.001)
    with pytest.raises(AssertionError):
        _assert_equal(form, scaling, 3, (-128, 127))


def test_scales_without_a_proof() -> None:
    # Left shifts wrap; a tie is rounded the one way for positive sums, the other for negative ones.
    ties = _scaling(2.0**-9)
    assert not float_rescale(_scaling(1.5), 3, (-128, 127)).exact[0]
    assert not float_rescale(ties, 3, (-128, 127)).exact[0]
    assert float_rescale(ties, -128, (-128, 127)).exact[0]
    assert not float_rescale(_scaling(2.0**-28), 3, (-128, 127)).exact[0]


def test_one_answer_to_all_sums_is_a_form() -> None:
    # A channel without weights to speak of, whose bias says it all; a multiplier of 0.
    scaling = _scaling([2.0**-28, 2.0**-28, 0.0])
    sums = np.array([2**30, -(2**30), -50]), np.array([2**30 + 9, 9 - 2**30, 70])
    for centre in (None, -100):
        form = float_rescale(scaling, -100, (-100, 127), centre=centre, sums=sums)
        assert form.exact.all()
        assert not form.factor.any()
        _assert_equal(form, scaling, -100, (-100, 127), centre, sums)
    two_sided = float_rescale(scaling, 3, (-128, 127), sums=sums)
    assert two_sided.exact.all()
    _assert_equal(two_sided, scaling, 3, (-128, 127), None, sums)


def test_a_clamp_to_one_value_needs_no_proof() -> None:
    scaling = _scaling([2.0**-28, 0.3])
    assert float_rescale(scaling, 127, (127, 127), centre=127).exact.all()


def test_sums_beyond_int32_may_be_any() -> None:
    scaling = _scaling([2.0**-28, 0.3])
    far = np.full(2, 2**40)
    form = float_rescale(scaling, -128, (-128, 127), centre=-128, sums=(far, far))
    # The centre's part must not wrap, either.
    assert not form.exact.any()
    plain = float_rescale(scaling, -128, (-128, 127), sums=(far, far))
    assert plain.exact.tolist() == [False, True]


def test_equal_channels_share_a_proof() -> None:
    scaling = np.repeat(_typical(3), [4, 5, 6], 1)
    form = float_rescale(scaling, 3, (-128, 127), exceptions=2)
    for values in (form.factor, form.offset, form.exact, form.exception[0]):
        assert len(set(values[:4])) == len(set(values[4:9])) == len(set(values[9:])) == 1

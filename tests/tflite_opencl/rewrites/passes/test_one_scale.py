# SPDX-License-Identifier: Apache-2.0
"""Weights with one scale: profitable clamps, and errors that cancel."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tflite_opencl.rewrites.passes.one_scale import coded

Numbers = NDArray[np.float64]


def shifts(values: Numbers, weights: Numbers, means: Numbers) -> Numbers:
    """Return the error of each output's mean."""
    errors = (values - weights) * means
    return np.asarray(np.abs(errors.reshape(len(weights), -1).sum(axis=1)))


@given(st.integers(0, 2**16), st.integers(1, 5), st.integers(1, 40))
@settings(max_examples=60)
def test_errors_cancel_and_codes_stay_near(seed: int, outputs: int, inputs: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(outputs, 3, inputs)) * rng.uniform(0.01, 1, (outputs, 1, 1))
    means = rng.uniform(0, 3, (outputs, 1, inputs)) * rng.choice([-1, 1], (outputs, 1, inputs))
    result = coded(weights, np.ones_like(weights), means)
    nearest = np.clip(np.rint(weights / result.scale), -127, 127)
    assert np.abs(result.codes).max() <= 127
    assert np.abs(result.codes - nearest).max() <= 1
    before, after = (
        shifts(each * result.scale, weights, means) for each in (nearest, result.codes)
    )
    assert (after <= before).all()


def test_equal_inputs_shift_no_output() -> None:
    # All errors are positive: 0.4 of a step each, 16 steps in total.
    weights = np.full((1, 1, 40), 0.6)
    weights[0, 0, 0] = 127.0
    result = coded(weights, np.ones_like(weights), np.full_like(weights, 3))
    assert result.scale == 1.0
    assert result.codes[0, 0, 0] == 127
    assert np.bincount(result.codes[0, 0, 1:].astype(int)).tolist() == [16, 23]


def test_irrelevant_weights_are_clamped() -> None:
    weights = np.array([[[100.0]], [[1.0]], [[0.5]]])
    counts = np.array([[[0.0]], [[1.0]], [[1.0]]])
    means = np.ones_like(weights)
    fine = coded(weights, counts, means).scale
    assert fine < 0.5 * coded(weights, np.ones_like(weights), means).scale


def test_scale_fits_all_its_weights() -> None:
    weights = np.ones((1, 1, 2))
    assert coded(weights, weights, weights, least_scale=0.5).scale == 0.5
    zeros = coded(np.zeros_like(weights), weights, weights)
    assert zeros.scale > 0
    assert not zeros.codes.any()

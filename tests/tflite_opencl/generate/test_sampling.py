# SPDX-License-Identifier: Apache-2.0
"""Sampling of tokens: the best one, or random by probability."""

from __future__ import annotations

import numpy as np
import pytest

from tflite_opencl.generate.sampling import Sampler

LOGITS = np.log(np.array([0.1, 0.6, 0.05, 0.25], np.float32))


def test_best_token() -> None:
    assert Sampler().token(LOGITS) == 1


def test_probabilities() -> None:
    sampler = Sampler(temperature=1.0, seed=3)
    drawn = np.bincount([sampler.token(LOGITS) for _ in range(4000)], minlength=4) / 4000
    np.testing.assert_allclose(drawn, np.exp(LOGITS), atol=0.03)


def test_top_k() -> None:
    sampler = Sampler(temperature=5.0, top_k=2, seed=3)
    assert {sampler.token(LOGITS) for _ in range(200)} == {1, 3}
    assert {Sampler(5.0, 1, 3).token(LOGITS) for _ in range(9)} == {1}


def test_seed_is_deterministic() -> None:
    samplers = Sampler(1.0, seed=7), Sampler(1.0, seed=7), Sampler(1.0, seed=8)
    one, again, other = ([each.token(LOGITS) for _ in range(50)] for each in samplers)
    assert one == again
    assert one != other


@pytest.mark.parametrize("temperature", [1e-300, 1e-9, 1e6])
def test_extreme_temperatures(temperature: float) -> None:
    token = Sampler(temperature, seed=1).token(LOGITS * 100)
    assert token == 1 or temperature > 1


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"temperature": np.nan}, {"top_k": -1}])
def test_invalid_numbers_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="temperature and top_k are 0 or more"):
        Sampler(**wrong)  # type: ignore[arg-type]

# SPDX-License-Identifier: Apache-2.0
"""Noise of other processes changes no choice, and the expected candidate wins ties."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from delegate.plan.tuning import interleaved_timing

_DRAWN = 400
_WRONG = 0.02  # of choices on a busy machine


def run_of(seconds: float, share: float, draw: np.random.Generator) -> Callable[[], float]:
    """Return a function with times of 1 % noise, and much more in this share of rounds."""

    def run() -> float:
        more = draw.exponential(1.5) if draw.random() < share else abs(draw.normal(0, 0.01))
        return seconds * (1 + more)

    return run


@pytest.mark.parametrize("rounds", [3, 12], ids=["quick", "full"])
@pytest.mark.parametrize("share", [0, 0.3, 0.6])
def test_expected_candidate_wins_ties(rounds: int, share: float) -> None:
    draw = np.random.default_rng(7)
    wrong = 0
    for _ in range(_DRAWN):
        best = draw.uniform(1e-6, 1e-2)
        expected = draw.integers(4)
        # Earlier ones are clearly slower, later ones slower or equal.
        factors = [*draw.uniform(1.2, 3, expected), 1, *draw.uniform(0.97, 2, 3 - expected)]
        runs = [run_of(best * factor, share, draw) for factor in factors]
        wrong += interleaved_timing.fastest(runs, rounds, 10 * rounds, 60)[0] != expected
    assert wrong <= _DRAWN * (_WRONG if share else 0)


def test_idle_machine_needs_few_rounds() -> None:
    counts = [0, 0]

    def run(place: int) -> float:
        counts[place] += 1
        return 1e-3 * (1 + 0.01 * (counts[place] % 3) - 0.04 * place)

    assert interleaved_timing.fastest([lambda: run(0), lambda: run(1)], 3, 30, 60) == (
        0,
        [1e-3, 0.96e-3],
    )
    assert counts == [3, 3]


def test_candidate_that_is_far_behind_is_timed_three_times() -> None:
    counts = [0, 0, 0]

    def run(place: int, seconds: float) -> float:
        counts[place] += 1
        return seconds * (1 + 0.001 * counts[place])

    runs = [lambda: run(0, 3.0), lambda: run(1, 1.0), lambda: run(2, 2.0)]
    assert interleaved_timing.fastest(runs, 12, 120, 60)[0] == 1
    assert counts == [3, 12, 12]


def test_noisy_times_end_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(1)
    now = iter(range(1000))

    def run() -> float:
        return float(draw.uniform(1, 100)) ** 3

    assert interleaved_timing.fastest([run, run], 3, 30, 60)[0] == 0
    assert interleaved_timing.fastest([run, lambda: 1e-3], 3, 30, 60)[0] == 1
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    assert interleaved_timing.fastest([run], 3, 1000, 5)[0] == 0
    assert next(now) == 7


def test_one_round() -> None:
    runs = [lambda: 2.0, lambda: 1.0, lambda: 0.99]
    assert interleaved_timing.fastest(runs, 1, 1, 60) == (1, [2.0, 1.0, 0.99])
    assert interleaved_timing.fastest(runs, 1, 9, 0) == (1, [2.0, 1.0, 0.99])

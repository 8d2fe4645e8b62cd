# SPDX-License-Identifier: Apache-2.0
"""Which of several ways is the fastest, by times that other work on the machine disturbs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

MARGIN = 0.05  # of a time: what is less faster than that is as fast
_UNCLEAR = 0.5  # the same, where the times of the one that was taken until then do not agree
_ALIKE = 3  # times that agree within the margin: then the least of them is no accident


def fastest(
    runs: Sequence[Callable[[], float]], least: int, most: int, seconds: float
) -> tuple[int, list[float]]:
    """Return which is taken, and the least time of each in seconds; they run in turns.

    The one that is expected to be the fastest comes first. It is taken, unless another one is
    faster by more than the margin in several rounds. Times to which other work adds do not agree:
    then there are more rounds than the `least`, up to the `most`, for so many seconds.
    """
    series: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + seconds
    for done in range(most):
        if done >= least and (all(map(_agree, series)) or time.perf_counter() > end):
            break
        for times, run in zip(series, runs, strict=True):
            times.append(run())
    return _first(series), [min(times) for times in series]


def _first(series: Sequence[Sequence[float]]) -> int:
    """Return the first one that none behind it is clearly faster than."""
    best = 0
    for place, times in enumerate(series):
        margin = _UNCLEAR if len(times) >= _ALIKE and not _agree(series[best]) else MARGIN
        if _several(times) < min(series[best]) * (1 - margin):
            best = place
    return best


def _agree(times: Sequence[float]) -> bool:
    return len(times) >= _ALIKE and _several(times) <= min(times) * (1 + MARGIN)


def _several(times: Sequence[float]) -> float:
    """Return below which time several of them are, or all if there are fewer."""
    return sorted(times)[:_ALIKE][-1]

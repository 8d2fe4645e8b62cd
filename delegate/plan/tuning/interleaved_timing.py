# SPDX-License-Identifier: Apache-2.0
"""Picks the fastest of several candidates by interleaved timing, robust to other load."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

MARGIN = 0.05  # relative; smaller differences do not count
_UNCLEAR = 0.5  # the same, if the timings of the current choice disagree
_ALIKE = 3  # timings that agree within the margin: then their minimum is no accident
# Of a candidate that is given up. Above the inverse of 1 - _UNCLEAR, it could not be chosen.
_BEHIND = 2.5


def fastest(
    runs: Sequence[Callable[[], float]], least: int, most: int, seconds: float
) -> tuple[int, list[float]]:
    """Return the choice, and the minimum seconds of each; candidates run in turn.

    The one expected to be fastest comes first. It is chosen unless another one is faster by more
    than the margin in several rounds. Timings under other load disagree: then there are more
    rounds than the `least`, up to the `most`, within a time limit. Candidates that are far slower
    than another one take part in the first rounds only.
    """
    series: list[list[float]] = [[] for _ in runs]
    running = [*range(len(runs))]
    end = time.perf_counter() + seconds
    for done in range(most):
        if done >= _ALIKE:
            running = [place for place in running if not _is_far_behind(series, place)]
        agree = all(_agree(series[place]) for place in running)
        if done >= least and (agree or time.perf_counter() > end):
            break
        for place in running:
            series[place].append(runs[place]())
    return _first(series), [min(times) for times in series]


def _first(series: Sequence[Sequence[float]]) -> int:
    """Return the first one that no later one clearly beats."""
    best = 0
    for place, times in enumerate(series):
        margin = _UNCLEAR if len(times) >= _ALIKE and not _agree(series[best]) else MARGIN
        if _several(times) < min(series[best]) * (1 - margin):
            best = place
    return best


def _is_far_behind(series: Sequence[Sequence[float]], place: int) -> bool:
    """Whether its best time is far above what another one stays within."""
    return min(series[place]) > _BEHIND * min(map(_several, series))


def _agree(times: Sequence[float]) -> bool:
    return len(times) >= _ALIKE and _several(times) <= min(times) * (1 + MARGIN)


def _several(times: Sequence[float]) -> float:
    """Return the time that several measurements stay within, or all if there are fewer."""
    return sorted(times)[:_ALIKE][-1]

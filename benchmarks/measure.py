# SPDX-License-Identifier: Apache-2.0
"""Interleaved timing of callables, and the comparison of their times."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

from tflite_opencl.timing.timing import SETTLE_S, Times, measure, turns

BLOCK_RUNS = 10
_WARM_UP_RUNS = 2


class Skipped(Exception):
    """A row or a peer cannot run here; the text is one line that says why."""


def imported(module: str, package: str = "") -> ModuleType:
    """Return an optional module.

    Raises: Skipped: it is not installed, or does not load.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            package = package or module
            raise Skipped(f"{package} is not installed (pip install {package})") from None
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise Skipped(f"{package or module} does not load: {reason}") from error


@dataclass(frozen=True, slots=True)
class Contender:
    """Something to time."""

    name: str
    run: Callable[[], object]
    every: int = 1  # takes part in every n-th round: n > 1 for slow paths that are not judged
    # Times runs after warm-up runs in another process.
    measure: Callable[[Callable[[], object], int, int], Times] = measure


@dataclass(frozen=True, slots=True)
class PathTimes:
    """The times of one contender, and the ratio of the leader's time to its time."""

    runs: int
    min_ms: float
    median_ms: float  # of the blocks' medians
    ratio: float  # of the minima: the leader's over this one's
    ratio_of_medians: float
    ratio_quartiles: tuple[float, float]  # lower and upper, of the medians of each common round


def in_turns(
    contenders: Sequence[Contender], runs: int, settle_s: float = SETTLE_S
) -> Mapping[str, Mapping[int, Times]]:
    """Return each contender's times by round, of at least `runs` runs in at least 2 rounds.

    A block's first runs are not timed: they find the other contenders' data in the caches.
    """
    blocks: dict[str, dict[int, Times]] = {contender.name: {} for contender in contenders}
    rounds = max(2, -(-runs // BLOCK_RUNS))
    for round_, contender in turns(contenders, rounds):
        if round_ % contender.every == 0 or rounds <= 2:
            time.sleep(settle_s)
            blocks[contender.name][round_] = contender.measure(
                contender.run, BLOCK_RUNS, _WARM_UP_RUNS
            )
    return blocks


def compared(blocks: Mapping[str, Mapping[int, Times]]) -> Mapping[str, PathTimes]:
    """Return the summary of each contender, compared with the first one."""

    least = {name: min(each.min_ms for each in own.values()) for name, own in blocks.items()}
    median = {
        name: statistics.median(each.median_ms for each in own.values())
        for name, own in blocks.items()
    }
    leader, summary = next(iter(blocks)), {}
    for name, own in blocks.items():
        both = [(theirs, own[at]) for at, theirs in blocks[leader].items() if at in own]
        ratios = [theirs.median_ms / ours.median_ms for theirs, ours in both]
        quartiles = statistics.quantiles(ratios, n=4, method="inclusive") if ratios[1:] else ratios
        summary[name] = PathTimes(
            runs=sum(each.runs for each in own.values()),
            min_ms=least[name],
            median_ms=median[name],
            ratio=least[leader] / least[name],
            ratio_of_medians=median[leader] / median[name],
            ratio_quartiles=(quartiles[0], quartiles[-1]),
        )
    return summary


def timed(contenders: Sequence[Contender], runs: int) -> Mapping[str, PathTimes]:
    """Return the summary of each contender, of at least `runs` interleaved runs."""
    return compared(in_turns(contenders, runs))


def repeated(run: Callable[[], object], times: int) -> Callable[[], object]:
    """Return `count` runs as one callable."""

    def several() -> None:
        for _ in range(times):
            run()

    return several

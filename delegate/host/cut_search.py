# SPDX-License-Identifier: Apache-2.0
"""Times candidates in turns, and predicts where to cut a partition in two."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import accumulate

from delegate.graph.ir import Graph, Tensor

Run = Callable[[int], float]  # a count -> the seconds of a run
_TURN_SECONDS = 2e-3  # of a turn, so that what the other sides leave in caches counts little
_MOST_RUNS = 50  # of a turn
_LEAST_TURNS, _MOST_TURNS = 5, 25
_FEWEST_TURNS = 2  # of runs so long that the least would take more than these seconds
_LONG_SECONDS = 3.0
_COLD_SECONDS = 0.05  # of a run that cold caches change little
_UNDISTURBED = 0.25  # part of the turns: other load slows turns down, and never speeds one up
_SECONDS = 0.6  # after that no further turn begins
_MOST_BORDERS = 7
_LEAST_GAIN = 0.9  # the predicted time of a cut that is tried, in the shortest without one


def in_turns(runs: Sequence[Run]) -> list[float]:
    """Return the seconds of a run of each candidate: the lower quartile of its turns."""
    firsts = [max(run(1), 1e-9) for run in runs]
    counts = [max(1, min(_MOST_RUNS, round(_TURN_SECONDS / first))) for first in firsts]
    least = max(_FEWEST_TURNS, min(_LEAST_TURNS, int(_LONG_SECONDS / sum(firsts))))
    turns: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + _SECONDS
    for done in range(_MOST_TURNS):
        if done >= least and time.perf_counter() > end:
            break
        for took, run, count, first in zip(turns, runs, counts, firsts, strict=True):
            if first < _COLD_SECONDS:  # after the others, caches and threads are cold
                run(1)
            took.append(run(count))
    return [sorted(took)[int(_UNDISTURBED * len(took))] for took in turns]


def borders_of(graph: Graph, times: Sequence[float]) -> list[int]:
    """Return the positions at which a graph may be cut, about evenly spread over the time.

    Fewer elements cross there than at their neighbours. `times`: of each node, in any unit.
    """
    if len(graph.nodes) <= _MOST_BORDERS + 1:
        return [*range(1, len(graph.nodes))]
    crossing = _crossing_elements(graph)
    total, before = sum(times), [0.0, *accumulate(times)]
    found: dict[int, int] = {}  # by part of the time
    for border in range(1, len(graph.nodes)):
        part = math.floor((_MOST_BORDERS + 1) * before[border] / total - 0.5)
        best = found.get(part)
        if 0 <= part < _MOST_BORDERS and (best is None or crossing[border] < crossing[best]):
            found[part] = border
    return sorted(found.values())


def _crossing_elements(graph: Graph) -> list[int]:
    """Return the elements that nodes before each position pass to nodes after it."""
    last: dict[Tensor, int] = {}
    for place, node in enumerate(graph.nodes):
        last.update((tensor, place) for tensor in node.inputs if tensor is not None)
    last.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
    found = [0] * (len(graph.nodes) + 1)
    for place, node in enumerate(graph.nodes):
        for tensor in node.outputs:
            for border in range(place + 1, last.get(tensor, place) + 1):
                found[border] += math.prod(tensor.shape)
    return found


def best_cut(
    times: Sequence[float],
    borders: Sequence[int],
    cpu_before: Sequence[float],
    device_s: float,
    cpu_s: float,
) -> tuple[int, bool] | None:
    """Return the border of the best cut, and whether the device has the nodes before it.

    None: none is predicted to gain enough. `times`: of each node on the device, in any unit.
    `cpu_before`: of the nodes before each border on the CPU, then of all nodes. `device_s`,
    `cpu_s`: the seconds of all nodes on either.
    """
    before, total = [0.0, *accumulate(times)], sum(times)
    # More nodes take no less time: where they do, the fewer were disturbed by other load.
    least = [*accumulate(reversed(cpu_before), min)][::-1]
    found: list[tuple[float, int, bool]] = []
    for place, border in enumerate(borders):
        if cpu_before[place] > least[place]:
            continue
        device = device_s * before[border] / total
        cpu = cpu_s * cpu_before[place] / cpu_before[-1]
        found.append((device + cpu_s - cpu, border, True))
        found.append((cpu + device_s - device, border, False))
    seconds, border, is_first_on_device = min(found, default=(math.inf, 0, True))
    if seconds > _LEAST_GAIN * min(device_s, cpu_s):
        return None
    return border, is_first_on_device

# SPDX-License-Identifier: Apache-2.0
"""Candidates in turns, with a fake clock, and the cuts that node times predict."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delegate.host import cut_search
from delegate.host.cut_search import best_cut, borders_of, in_turns
from delegate.inspect import Graph
from tests.support.nets import net


class _Clock:
    """A clock that candidates move: each run takes the next of its times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.order = 0.0, ""
        monkeypatch.setattr(cut_search.time, "perf_counter", lambda: self.now)

    def candidate(self, name: str, *seconds: float) -> Callable[[int], float]:
        """Return one that takes these seconds in turn, from the first again after the last."""
        calls = 0

        def run(count: int) -> float:
            nonlocal calls
            took = seconds[calls % len(seconds)]
            calls += 1
            self.now += took * count
            self.order += name
            return took

        return run


def test_candidates_run_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch)
    times = in_turns([clock.candidate("d", 0.03), clock.candidate("c", 0.04)])
    assert times == [0.03, 0.04]
    assert clock.order == "dc" + 5 * "ddcc"  # an untimed run of each turn, and 5 turns: 0.7 s


@pytest.mark.parametrize(
    ("seconds", "turns"), [((0.1, 0.2), 5), ((0.25, 0.5), 4), ((1.0, 3.0), 2), ((20.0, 40.0), 2)]
)
def test_long_runs_have_few_turns(
    monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, float], turns: int
) -> None:
    """A slow model on a board: a start must not take minutes."""
    clock = _Clock(monkeypatch)
    times = in_turns([clock.candidate(name, s) for name, s in zip("dc", seconds, strict=True)])
    assert times == [*seconds]
    assert clock.order == "dc" * (1 + turns)


def test_disturbed_turns_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch)
    # Half of the turns are disturbed, and a single one is implausibly short.
    noisy = clock.candidate("d", 0.03, 0.03, 0.02, 0.5, 0.02, 0.3, 0.02, 0.001, 0.3)
    assert in_turns([noisy, clock.candidate("c", 0.04)]) == [0.02, 0.04]


def _blocks(count: int) -> Graph:
    """Return blocks of three nodes; inside a block two tensors cross, between blocks one."""
    nodes: list[tuple[str, list[int], int]] = []
    for n in range(0, 3 * count, 3):
        nodes += [
            ("AVERAGE_POOL_2D", [n], n + 1),
            ("MAX_POOL_2D", [n], n + 2),
            ("ADD", [n + 1, n + 2], n + 3),
        ]
    return net(nodes)


def test_short_graphs_have_every_border() -> None:
    assert borders_of(_blocks(2), [1.0, 0.0, 0.0, 0.0, 0.0, 9.0]) == [1, 2, 3, 4, 5]


def test_borders_are_where_the_least_crosses() -> None:
    assert borders_of(_blocks(8), [1.0] * 24) == [3, 6, 9, 12, 15, 18, 21]
    # Spread over the time: the first block has most of it, and no border splits the others.
    assert borders_of(_blocks(8), [10.0] * 3 + [0.01] * 21) == [1, 2]


@pytest.mark.parametrize(
    ("times", "cpu_before", "device_s", "cpu_s", "expected"),
    [
        # The device is fast on the first node alone: 1 + 1 instead of 10 and 11.
        ([1, 9], [10.0, 11.0], 10.0, 11.0, (1, True)),
        # The other way round: the CPU has the node before the border.
        ([9, 1], [1.0, 11.0], 10.0, 11.0, (1, False)),
        # Both are as fast everywhere: no cut gains.
        ([5, 5], [5.0, 10.0], 10.0, 10.0, None),
        # A gain of less than a tenth is not worth the trial.
        ([5, 5], [4.5, 10.0], 10.0, 10.0, None),
        # Other load disturbed the time of the first node, which cannot be longer than of both.
        ([5, 5], [30.0, 10.0], 10.0, 20.0, None),
        # All times of the CPU are from a slower moment.
        ([9, 1], [2.0, 22.0], 10.0, 11.0, (1, False)),
    ],
)
def test_best_cut(
    times: list[float],
    cpu_before: list[float],
    device_s: float,
    cpu_s: float,
    expected: tuple[int, bool] | None,
) -> None:
    assert best_cut(times, [1], cpu_before, device_s, cpu_s) == expected

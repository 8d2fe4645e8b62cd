# SPDX-License-Identifier: Apache-2.0
"""The times of a run's launches: by the device's own timers, or a launch at a time where these lie.

Also which nodes have no launch because another node's kernel computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from delegate import OpenCLDelegate, Verdict
from delegate.inspect import Graph, LaunchTime

# A timer tells less than this share of what the host waits: it does not count the work. Of what the
# host waits, some is the launch's own cost, which is most of it where launches are short.
LEAST_SHARE = 0.02
_TRIES = 3  # what else the machine does makes a wait longer


@dataclass(frozen=True, slots=True)
class RunTimes:
    """A run's launches, in execution order."""

    launches: Sequence[LaunchTime]
    has_timers: bool  # False: each by itself on the host's clock, its call and the wait included


def run_times(delegate: OpenCLDelegate, run: Callable[[], None], runs: int = 1) -> RunTimes:
    """Run some times; return each launch's shortest time.

    Raises:
        DelegateError: the delegate was made without profiling=True. And what `run` raises.
    """
    apart = _shortest([_one_at_a_time(delegate, run) for _ in range(_TRIES)])
    timed = []
    for _ in range(runs):
        run()
        timed.append(delegate.profile())
    best = _shortest(timed)
    waited = sum(each.microseconds for each in apart)
    if sum(each.microseconds for each in best) >= LEAST_SHARE * waited:
        return RunTimes(best, True)
    more = [_one_at_a_time(delegate, run) for _ in range(runs - _TRIES)]
    return RunTimes(_shortest([apart, *more]), False)


def _one_at_a_time(delegate: OpenCLDelegate, run: Callable[[], None]) -> list[LaunchTime]:
    return [
        LaunchTime(
            step.node,
            step.op,
            launch.kernel,
            step.alternative,
            launch.global_size,
            launch.microseconds,
            launch.local_size,
        )
        for step in delegate.step_through(run)
        for launch in step.launches
    ]


def _shortest(runs: Sequence[Sequence[LaunchTime]]) -> list[LaunchTime]:
    return [
        min(same, key=lambda each: each.microseconds) for same in zip(*runs, strict=True) if same
    ]


def joined_nodes(graph: Graph, verdicts: Sequence[Verdict], own: Collection[int]) -> dict[int, int]:
    """Return the nodes that the kernel of another node computes, each with that node.

    `own`: the nodes that the device runs by themselves.
    """
    found: dict[int, int] = {}
    for verdict in reversed(verdicts):
        if not verdict.is_taken or verdict.node in own:
            continue
        results = {*graph.nodes[verdict.node].outputs}
        reader = next((n.index for n in graph.nodes if results & {*n.inputs}), None)
        if reader is not None:
            found[verdict.node] = found.get(reader, reader)
    return found

# SPDX-License-Identifier: Apache-2.0
"""The profile of a run: each node on the device, and the time spent around the kernels.

Launches are timed by the device's own timers, or one at a time if these are wrong.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from delegate import OpenCLDelegate, Verdict
from delegate.inspect import Graph, LaunchTime, Node, PartitionRun, Tensor

RUNS = 9  # the shortest counts: other load only adds time
_WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


@dataclass(frozen=True, slots=True)
class NodeTime:
    """A node on the device."""

    node: int
    op: str  # TFLite's name, or the delegate's for a node fused from several
    shape: str  # of the input and of the output
    kernels: str
    alternative: str
    sizes: str  # work-items / work-group size of each launch
    microseconds: float
    gap: float | None  # microseconds of queue idle time before its first launch
    multiply_adds: int | None  # None: not a sum of products with weights
    bytes: int  # read and written, each tensor once


@dataclass(frozen=True, slots=True)
class Profile:
    """One run; `parts` add up to `wall`, all in microseconds."""

    device: str
    rows: tuple[NodeTime, ...]  # in execution order
    wall: float
    parts: tuple[tuple[str, float], ...]
    has_timers: bool  # False: each row is a single launch on the host's clock, including the wait
    in_queue: float  # launch overhead and kernels that overlap: the host enqueues ahead
    launches: int
    up_bytes: int
    down_bytes: int
    # A node fused into another node's kernel -> that node.
    fused: Mapping[int, int] = field(default_factory=dict)

    @property
    def kernels(self) -> float:
        """Total microseconds of all rows."""
        return sum(row.microseconds for row in self.rows)


@dataclass(frozen=True, slots=True)
class TimedRun:
    """One call of an interpreter, in ns of the host's clock, and its partitions' parts."""

    begun: int
    ended: int
    partitions: Sequence[PartitionRun]
    cpu_ns: int  # CPU time of all threads of this process


def timed_runs(delegate: OpenCLDelegate, run: Callable[[], None], count: int) -> list[TimedRun]:
    """Run this many times, recording the parts of each partition in sequence."""
    found = []
    for _ in range(count):
        marks: list[int] = []

        def marked(marks: list[int] = marks) -> None:
            marks += time.process_time_ns(), time.perf_counter_ns()
            run()
            marks += time.perf_counter_ns(), time.process_time_ns()

        partitions = delegate.timed_runs(marked)
        found.append(TimedRun(marks[1], marks[2], partitions, marks[3] - marks[0]))
    return found


def profile_of(delegate: OpenCLDelegate, graph: Graph, run: Callable[[], None]) -> Profile:
    """Run several times, and return the profile of the shortest run.

    `graph`: the model's, with known shapes.
    Raises: DelegateError: the delegate was created without profiling=True; and `run`'s errors.
    """
    launches_apart, has_timers = launch_times(delegate, run, RUNS)
    chosen = min(timed_runs(delegate, run, RUNS), key=lambda each: each.ended - each.begun)
    wall = (chosen.ended - chosen.begun) / 1e3
    launches = [launch for each in chosen.partitions for launch in each.launches]
    gaps = [gap for each in chosen.partitions for gap in _gaps(each)]
    times = launches if has_timers else launches_apart
    verdicts = delegate.verdicts
    homes = joined_nodes(graph, verdicts, {each.node for each in delegate.alternatives})
    of_node: dict[int, list[tuple[LaunchTime, float]]] = {}
    for launch, gap in zip(times, gaps, strict=True):
        of_node.setdefault(launch.node, []).append((launch, gap))

    def row(number: int) -> NodeTime:
        own = [launch for launch, _ in of_node[number]]
        nodes = [graph.nodes[each] for each, home in homes.items() if home == number]
        nodes.append(graph.nodes[number])
        return NodeTime(
            node=number,
            op=own[0].op,
            shape=_shapes(nodes),
            kernels=", ".join(each.kernel for each in own),
            alternative=own[-1].alternative,
            sizes=", ".join(f"{each.global_size}/{each.local_size}" for each in own),
            microseconds=sum(each.microseconds for each in own),
            gap=sum(gap for _, gap in of_node[number]) if has_timers else None,
            multiply_adds=_multiply_adds(nodes),
            bytes=_bytes(nodes),
        )

    return Profile(
        device=delegate.device_name,
        rows=tuple(map(row, of_node)),
        wall=wall,
        parts=tuple(_parts(chosen, wall, sum(gaps), has_timers).items()),
        has_timers=has_timers,
        in_queue=sum(b - a for each in chosen.partitions for a, b in each.calls) / 1e3,
        launches=len(launches),
        up_bytes=sum(each.up_bytes for each in chosen.partitions),
        down_bytes=sum(each.down_bytes for each in chosen.partitions),
        fused=homes,
    )


def _gaps(run: PartitionRun) -> list[float]:
    """Return the microseconds of idle time before each launch."""
    found, last = [], 0
    for launch in run.launches:
        _, _, begun, ended = launch.clock_ns
        found.append(max(0, begun - last) / 1e3 if last else 0.0)
        last = max(last, ended)
    return found


def _parts(run: TimedRun, wall: float, gaps: float, has_timers: bool) -> Mapping[str, float]:
    """Return the parts of the wall time, in microseconds; names are for people."""
    each = run.partitions
    inside = sum(p.returned - p.called for p in each) / 1e3
    queue = sum(p.computed - p.uploaded for p in each) / 1e3
    kernels = sum(launch.microseconds for p in each for launch in p.launches)
    on_device = {"kernels, launch overhead and the wait": queue}
    if has_timers:
        on_device = {
            "kernels": kernels,
            "gaps between kernels": gaps,
            "launch overhead, and the wait": queue - kernels - gaps,
        }
    return {
        "TFLite, and the nodes on the CPU": wall - inside,
        "Python": sum(p.begun - p.called + p.returned - p.ended for p in each) / 1e3,
        "upload": sum(p.uploaded - p.begun for p in each) / 1e3,
        **on_device,
        "download": sum(p.ended - p.computed for p in each) / 1e3,
    }


def _shapes(nodes: Sequence[Node]) -> str:
    first = next((t for t in nodes[0].inputs if t is not None and t.data is None), None)
    given = "x".join(map(str, first.shape)) if first else ""
    return f"{given} -> {'x'.join(map(str, nodes[-1].outputs[0].shape))}"


def _multiply_adds(nodes: Sequence[Node]) -> int | None:
    """Return the number of multiply-adds with weights.

    Each output element sums as many products as an output channel has weights.
    """
    counts = []
    for node in nodes:
        if node.op in _WEIGHTED and (weights := node.inputs[1]) is not None:
            channels = weights.shape[3 if node.op == "DEPTHWISE_CONV_2D" else 0]
            of_each = math.prod(weights.shape) // max(1, channels)
            counts.append(math.prod(node.outputs[0].shape) * of_each)
    return sum(counts) if counts else None


def _bytes(nodes: Sequence[Node]) -> int:
    made = {t for node in nodes for t in node.outputs}
    read = {t for node in nodes for t in node.inputs if t is not None} - made
    return sum(_size(tensor) for tensor in (*read, *nodes[-1].outputs))


def _size(tensor: Tensor) -> int:
    if tensor.data is not None:
        return int(tensor.data.nbytes)
    try:
        return math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
    except TypeError:  # text has no size
        return 0


# A timer below this share of the host's wait does not count the work. Part of the host's
# wait is the launch's own cost, which dominates short launches.
LEAST_SHARE = 0.02
_TRIES = 3  # other load makes a wait longer


def launch_times(
    delegate: OpenCLDelegate, run: Callable[[], None], runs: int
) -> tuple[Sequence[LaunchTime], bool]:
    """Run several times; return each launch's minimum, and whether device timers were used.

    Otherwise launches ran one at a time on the host's clock, including call and wait.
    """
    apart = _shortest([_one_at_a_time(delegate, run) for _ in range(_TRIES)])
    timed = []
    for _ in range(runs):
        run()
        timed.append(delegate.profile())
    best = _shortest(timed)
    waited = sum(each.microseconds for each in apart)
    if sum(each.microseconds for each in best) >= LEAST_SHARE * waited:
        return best, True
    more = [_one_at_a_time(delegate, run) for _ in range(runs - _TRIES)]
    return _shortest([apart, *more]), False


def _one_at_a_time(delegate: OpenCLDelegate, run: Callable[[], None]) -> list[LaunchTime]:
    return [
        LaunchTime(
            step.node, step.op, of.kernel, step.alternative, of.global_size, of.microseconds,
            of.local_size,
        )
        for step in delegate.step_through(run)
        for of in step.launches
    ]  # fmt: skip


def _shortest(runs: Sequence[Sequence[LaunchTime]]) -> list[LaunchTime]:
    return [
        min(same, key=lambda each: each.microseconds) for same in zip(*runs, strict=True) if same
    ]


def joined_nodes(graph: Graph, verdicts: Sequence[Verdict], own: Collection[int]) -> dict[int, int]:
    """Return the nodes fused into the kernel of another node, each with that node.

    `own`: the nodes with kernels of their own.
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

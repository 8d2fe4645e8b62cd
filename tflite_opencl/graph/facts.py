# SPDX-License-Identifier: Apache-2.0
"""Where each node of a model runs, and how long it takes there. It prints and formats nothing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from delegate import DelegateError, NoDeviceError, ProfileError, Verdict
from delegate.inspect import Graph, LaunchTime, Node, NodeAlternatives, infer
from tflite_opencl.common import bars
from tflite_opencl.common.errors import CommandError, OneLineError, code_of
from tflite_opencl.common.interpreter import run
from tflite_opencl.common.launch_times import run_times
from tflite_opencl.common.opening import delegated, failures, options_of
from tflite_opencl.common.runtime import find_runtime
from tflite_opencl.common.values import input_sets

DEVICE, CPU, CONSTANT, UNKNOWN = "opencl", "cpu", "constant", "not judged"
_RUNS = 5


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """A model's graph and what became of its nodes."""

    graph: Graph  # with the shapes and values that follow from constants
    device: str  # "": none judged it
    why_not: str  # why no device judged it
    verdicts: Sequence[Verdict]
    alternatives: Mapping[int, NodeAlternatives] = field(default_factory=dict)
    times: Mapping[int, Sequence[LaunchTime]] = field(default_factory=dict)  # the shortest of some
    has_timers: bool = True  # of RunTimes

    def place(self, node: Node) -> str:
        """Return where a node runs."""
        if not self.device:
            return UNKNOWN
        if not self.verdicts[node.index].is_taken:
            return CPU
        is_constant = bool(node.outputs) and all(tensor.is_folded for tensor in node.outputs)
        return CONSTANT if is_constant else DEVICE

    def microseconds(self, node: Node) -> float | None:
        """Return the time of a node's launches on the device; None: it has none."""
        found = self.times.get(node.index)
        return None if not found else sum(each.microseconds for each in found)


def graph_facts(model: str, file: Graph, given: argparse.Namespace, with_times: bool) -> GraphFacts:
    """Return what the device that is meant says of each node; without one, the graph alone.

    `file`: the model's graph as it was read.
    Raises:
        CommandError: a device, a profile or an op that was asked for does not exist.
    """
    graph, options = infer(file), options_of(given, [file], profiling=with_times)
    try:
        runtime = find_runtime()
        with delegated(model, file, options, runtime, "auto") as (interpreter, delegate):
            times: dict[int, list[LaunchTime]] = {}
            has_timers = True
            if with_times and any(each.is_taken for each in delegate.verdicts):
                inputs = input_sets(file)[0]
                with bars.waiting("timing the nodes"), failures():
                    found = run_times(delegate, lambda: run(interpreter, inputs), _RUNS)
                has_timers = found.has_timers
                for launch in found.launches:
                    times.setdefault(launch.node, []).append(launch)
            return GraphFacts(
                graph,
                delegate.device_name,
                "",
                tuple(delegate.verdicts),
                {each.node: each for each in delegate.alternatives},
                times,
                has_timers,
            )
    except (CommandError, DelegateError, OneLineError) as error:
        why = " ".join(str(error).split())
        if isinstance(error, ProfileError) or (isinstance(error, NoDeviceError) and options.device):
            raise CommandError(why, code_of(error)) from error
        return GraphFacts(graph, "", why, [Verdict(n.index, n.op, UNKNOWN) for n in graph.nodes])

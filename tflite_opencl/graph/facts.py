# SPDX-License-Identifier: Apache-2.0
"""Where each node of a model runs, and how long it takes there. It prints and formats nothing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from delegate import DelegateError, NoDeviceError, ProfileError, Verdict
from delegate.inspect import Graph, Node, infer
from tflite_opencl.common import bars
from tflite_opencl.common.errors import CommandError, OneLineError, code_of
from tflite_opencl.common.flags import options_of
from tflite_opencl.common.interpreter import delegated, failures, run
from tflite_opencl.common.profile import NodeTime, Profile, profile_of
from tflite_opencl.common.runtime import find_runtime
from tflite_opencl.common.values import input_sets

DEVICE, CPU, CONSTANT, UNKNOWN = "opencl", "cpu", "constant", "not judged"


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """A model's graph and what became of its nodes."""

    graph: Graph  # with the shapes and values that follow from constants
    device: str  # "": none judged it
    why_not: str  # why no device judged it
    verdicts: Sequence[Verdict]
    alternatives: Mapping[int, str] = field(default_factory=dict)  # node -> the one that is taken
    profile: Profile | None = None
    times: Mapping[int, NodeTime] = field(default_factory=dict)  # the profile's, by node

    def place(self, node: Node) -> str:
        """Return where a node runs."""
        if not self.device:
            return UNKNOWN
        if not self.verdicts[node.index].is_taken:
            return CPU
        is_constant = bool(node.outputs) and all(tensor.is_folded for tensor in node.outputs)
        return CONSTANT if is_constant else DEVICE


def graph_facts(model: str, file: Graph, given: argparse.Namespace, with_times: bool) -> GraphFacts:
    """Return what the device that is meant says of each node; without one, the graph alone.

    `file`: the model's graph as it was read.
    Raises: CommandError: a device, a profile or an op that was asked for does not exist.
    """
    graph, options = infer(file), options_of(given, [file], profiling=with_times)
    try:
        runtime = find_runtime()
        with delegated(model, file, options, runtime, "auto") as (interpreter, delegate):
            profile = None
            if with_times and any(each.is_taken for each in delegate.verdicts):
                inputs = input_sets(file)[0]
                with bars.waiting("timing the nodes"), failures():
                    profile = profile_of(delegate, graph, lambda: run(interpreter, inputs))
            return GraphFacts(
                graph,
                delegate.device_name,
                "",
                tuple(delegate.verdicts),
                {each.node: each.taken for each in delegate.alternatives},
                profile,
                {} if profile is None else {row.node: row for row in profile.rows},
            )
    except (DelegateError, OneLineError) as error:
        why = " ".join(str(error).split())
        if isinstance(error, ProfileError) or (isinstance(error, NoDeviceError) and options.device):
            raise CommandError(why, code_of(error)) from error
        return GraphFacts(graph, "", why, [Verdict(n.index, n.op, UNKNOWN) for n in graph.nodes])

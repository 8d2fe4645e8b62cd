# SPDX-License-Identifier: Apache-2.0
"""Collects each node's device and times, and renders them as an HTML page."""

from __future__ import annotations

import argparse
import importlib.util
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delegate import DelegateError, NoDeviceError, ProfileError, Verdict
from delegate.inspect import Graph, Node, Tensor, infer
from tflite_opencl.cli.flags import options_of
from tflite_opencl.console import bars
from tflite_opencl.console.errors import CommandError, OneLineError, code_of
from tflite_opencl.graph.layout import HEIGHT, WIDTH, layout_of
from tflite_opencl.interpreters.interpreter import delegated, failures, run
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.models.build import sizes
from tflite_opencl.oracle.values import input_sets
from tflite_opencl.timing.profile import NodeTime, Profile, profile_of

# A node's device, for people -> its CSS class.
_PLACES = {"OpenCL": "device", "CPU": "cpu", "constant": "constant", "not judged": "unknown"}
_DEVICE, _CPU, _CONSTANT, _UNKNOWN = _PLACES


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """A model's graph and the delegate's verdicts on its nodes."""

    graph: Graph  # with inferred shapes and constants
    device: str  # "": none was queried
    why_not: str  # why no device was queried
    verdicts: Sequence[Verdict]
    alternatives: Mapping[int, str] = field(default_factory=dict)  # node -> the selected one
    profile: Profile | None = None
    times: Mapping[int, NodeTime] = field(default_factory=dict)  # the profile's, by node

    def place(self, node: Node) -> str:
        """Return the device of a node."""
        if not self.device:
            return _UNKNOWN
        if not self.verdicts[node.index].is_taken:
            return _CPU
        is_constant = bool(node.outputs) and all(tensor.is_folded for tensor in node.outputs)
        return _CONSTANT if is_constant else _DEVICE


def graph_facts(model: str, file: Graph, given: argparse.Namespace, with_times: bool) -> GraphFacts:
    """Return the selected device's verdict on each node; without a device, only the graph.

    `file`: the model's graph as read.
    Raises: CommandError: a requested device, profile or op does not exist.
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
        return GraphFacts(graph, "", why, [Verdict(n.index, n.op, _UNKNOWN) for n in graph.nodes])


def require_jinja() -> None:
    """Raise CommandError if jinja2 is missing."""
    if importlib.util.find_spec("jinja2") is None:
        raise CommandError("--html needs jinja2 (pip install tflite-opencl[suite])")


def html(name: str, facts: GraphFacts) -> str:
    """Return the page; raises ImportError if jinja2 is missing."""
    # Part of the extra "suite", which the table does not need.
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    nodes = [*_page_nodes(facts)]
    total = sum(each.microseconds for each in facts.times.values())
    text = (Path(__file__).parent / "graph.html").read_text(encoding="utf-8")
    return environment.from_string(text).render(
        name=name,
        facts=facts,
        nodes=nodes,
        counts=Counter((each["css"], each["place"]) for each in nodes),
        total=_time(total) if total else "",
        layout=layout_of(facts.graph),
        box={"width": WIDTH, "height": HEIGHT},
    )


def _page_nodes(facts: GraphFacts) -> Iterator[Mapping[str, Any]]:
    """Yield each node's template variables: text, except for its index and share."""
    longest = max((each.microseconds for each in facts.times.values()), default=0) or 1
    fused = facts.profile.fused if facts.profile else {}
    for node in facts.graph.nodes:
        place, times = facts.place(node), facts.times.get(node.index)
        first = node.outputs[0] if node.outputs else None
        home = fused.get(node.index)
        yield {
            "index": node.index,
            "op": node.op,
            "css": _PLACES[place],
            "place": place,
            "reason": (facts.verdicts[node.index].reason or "") if place == _CPU else "",
            "shape": sizes(first.shape) if first else "",
            "dtype": first.dtype if first else "",
            "time": _time(times.microseconds) if times else f"in {home}" if home else "",
            "share": times.microseconds / longest if times else 0,  # relative to the slowest node
            "alternative": facts.alternatives.get(node.index, ""),
            "kernels": _kernels(times) if times else "",
            "inputs": [_tensor(tensor) for tensor in node.inputs if tensor is not None],
            "outputs": [_tensor(tensor) for tensor in node.outputs],
            "options": ", ".join(f"{k} {v}" for k, v in sorted(node.options.items())),
        }


def _kernels(times: NodeTime) -> str:
    pairs = zip(times.kernels.split(", "), times.sizes.split(", "), strict=True)
    return ", ".join(map(" ".join, pairs))


def _tensor(tensor: Tensor) -> str:
    kind = ", constant" if tensor.data is not None else ""
    name = f" {tensor.name}" if tensor.name else ""
    scale = ""
    if tensor.quantization is not None:
        scales = tensor.quantization.scale
        scale = f", scale {scales[0]:g}" if len(scales) == 1 else f", {len(scales)} scales"
    return f"{tensor.index}{name}: {sizes(tensor.shape)} {tensor.dtype}{scale}{kind}"


def _time(microseconds: float) -> str:
    return f"{microseconds / 1000:.2f} ms" if microseconds >= 1000 else f"{microseconds:.0f} us"

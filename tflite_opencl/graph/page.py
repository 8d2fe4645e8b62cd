# SPDX-License-Identifier: Apache-2.0
"""A graph as one page of HTML that needs nothing else: boxes, lines, a search, and a table."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from delegate.inspect import Tensor
from tflite_opencl.common.build import sizes
from tflite_opencl.common.errors import CommandError
from tflite_opencl.common.profile import NodeTime
from tflite_opencl.graph.facts import CONSTANT, CPU, DEVICE, UNKNOWN, GraphFacts
from tflite_opencl.graph.layout import HEIGHT, WIDTH, layout_of

_CLASSES = {DEVICE: "device", CPU: "cpu", CONSTANT: "constant", UNKNOWN: "unknown"}
_WORDS = {DEVICE: "OpenCL", CPU: "CPU", CONSTANT: "constant", UNKNOWN: "not judged"}


def require_jinja() -> None:
    """Raise CommandError without jinja2."""
    if importlib.util.find_spec("jinja2") is None:
        raise CommandError("--html needs jinja2 (pip install tflite-opencl[suite])")


def html(name: str, facts: GraphFacts) -> str:
    """Return the page; raises ImportError without jinja2."""
    # Of the extra "suite", which the table does without.
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
    """Yield each node as the page shows it: text for people, but for its index and its share."""
    longest = max((each.microseconds for each in facts.times.values()), default=0) or 1
    joined = facts.profile.joined if facts.profile else {}
    for node in facts.graph.nodes:
        place, times = facts.place(node), facts.times.get(node.index)
        first = node.outputs[0] if node.outputs else None
        home = joined.get(node.index)
        yield {
            "index": node.index,
            "op": node.op,
            "css": _CLASSES[place],
            "place": _WORDS[place],
            "reason": (facts.verdicts[node.index].reason or "") if place == CPU else "",
            "shape": sizes(first.shape) if first else "",
            "dtype": first.dtype if first else "",
            "time": _time(times.microseconds) if times else f"in {home}" if home else "",
            "share": times.microseconds / longest if times else 0,  # of the longest node's time
            "alternative": facts.alternatives.get(node.index, ""),
            "kernels": _kernels(times) if times else "",
            "inputs": [_tensor(tensor) for tensor in node.inputs if tensor is not None],
            "outputs": [_tensor(tensor) for tensor in node.outputs],
            "options": ", ".join(f"{k} {v}" for k, v in sorted(node.options.items())),
        }


def _kernels(times: NodeTime) -> str:
    pairs = zip(times.kernels.split(", "), times.sizes.split(", "), strict=True)
    return ", ".join(f"{kernel} {size}" for kernel, size in pairs)


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

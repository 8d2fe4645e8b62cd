# SPDX-License-Identifier: Apache-2.0
"""A whole .tflite file through passes: every subgraph of it, and all else as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from delegate.inspect import Graph
from delegate.tflite.reader import read_subgraph
from delegate.tflite.source import Source, named, open_model
from tflite_opencl.rewrites.registry import PassStep, rewrite_steps
from tflite_opencl.rewrites.rewriting import rewritten


@dataclass(frozen=True, slots=True, eq=False)
class RewrittenModel:
    """A model file after passes."""

    content: bytes
    steps: tuple[tuple[PassStep, ...], ...]  # one tuple a subgraph, with one step a pass


def rewrite_model(
    source: Source, passes: Sequence[str], watch: Callable[[], None] | None = None
) -> RewrittenModel:
    """Return a .tflite file after these passes, in this order, on each of its subgraphs.

    `watch` is called after each pass on each subgraph.

    Raises:
        ModelError: the file is damaged or foreign, or too large for the format afterwards.
        ValueError: a name is no pass. OSError: the path cannot be read.
    """
    with named(source):
        content = open_model(source)
        graph = read_subgraph(content, 0)
        graphs = [graph, *(read_subgraph(content, n) for n in range(1, graph.subgraphs))]
    steps = []
    for graph in graphs:
        own = []
        for step in rewrite_steps(graph, passes):
            own.append(step)
            if watch is not None:
                watch()
        steps.append(tuple(own))
    changed: dict[int, Graph] = {
        number: own[-1].graph
        for number, (graph, own) in enumerate(zip(graphs, steps, strict=True))
        if own and own[-1].graph is not graph
    }
    return RewrittenModel(rewritten(source, changed), tuple(steps))

# SPDX-License-Identifier: Apache-2.0
"""Dead code elimination: nodes without effect on outputs, and unread constants (exact).

    x -A-> y, x -B-> z, output y        becomes        x -A-> y

Nodes with side effects stay: those that assign variables, call a subgraph,
or are custom ops. TFLite runs dead nodes, too, so every target saves their time.
"""

from __future__ import annotations

from delegate.graph.partition import CALLERS
from delegate.graph.resources import OPS
from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.changes import Change, NoMatch, Notes, changed, without_unread

# Ops with side effects. Source: tflite/core/subgraph.cc, OpMightHaveSideEffect
_SIDE_EFFECTS = (
    *(*CALLERS, "STABLEHLO_COMPOSITE", *OPS, "HASHTABLE", "HASHTABLE_IMPORT"),
    *("MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"),
)


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph without dead nodes and unread constants; the same object if it has none."""
    wanted: set[Tensor] = set(graph.outputs)

    def change(node: Node) -> Change | None:
        is_dead, reason = wanted.isdisjoint(node.outputs), _reason(node)
        if is_dead and reason is None:
            return Change("no output depends on it", {node: []})
        wanted.update(tensor for tensor in node.inputs if tensor is not None)
        if is_dead:
            raise NoMatch(f"no output depends on it, but {reason}")
        return None

    return without_unread(changed(graph, notes, change, reversed(graph.nodes)))


def _reason(node: Node) -> str | None:
    """Return why a node is needed even if its outputs are not read."""
    if node.is_custom:
        return "a custom op may do more than that"
    if node.op in _SIDE_EFFECTS:
        return f"{node.op} may do more than that"
    if any(tensor is not None and tensor.is_variable for tensor in node.inputs):
        return "it changes a variable"
    return None

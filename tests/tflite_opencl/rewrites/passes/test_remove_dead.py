# SPDX-License-Identifier: Apache-2.0
"""Removal of dead nodes and unread constants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.inspect import Graph
from tests.support.model import const, graph_of, op, t
from tests.support.rewrites import assert_exact_rewrite, left_by, whole
from tflite_opencl.rewrites.passes.remove_dead import rewrite


def forked(dead: str = "RELU", **options: bool) -> Graph:
    """Return x -RELU6-> y, the output; x -dead-> a -MUL k-> b, which is unread."""
    x, y, a, b = (t((2, 3), name=name) for name in "xyab")
    k = const(np.float32([[2, 3, 4]]), name="k")
    nodes = [op(dead, [x], [a], **options), op("RELU6", [x], [y]), op("MUL", [a, k], [b])]
    return whole(graph_of(nodes, outputs=[y]))


def test_dead_branch_is_removed() -> None:
    after, notes = assert_exact_rewrite(forked(), rewrite)
    assert [node.op for node in after.nodes] == ["RELU6"]
    assert [tensor.name for tensor in after.tensors] == ["x", "y"]
    assert {note.text for note in notes} == {"no output depends on it"}


def test_unread_constant_is_removed_but_not_unread_input() -> None:
    graph = forked()
    spare = replace(const(np.float32([1])), name="spare", index=len(graph.tensors))
    live = graph.nodes[1]
    unread = replace(t((3,), name="unread"), index=len(graph.tensors) + 1)
    graph = replace(
        graph,
        tensors=(*graph.tensors, spare, unread),
        nodes=(replace(live, index=0),),
        inputs=(*graph.inputs, unread),
    )
    after, _ = assert_exact_rewrite(graph, rewrite)
    # Computed tensors without a node stay, such as an LSTM's intermediates.
    assert [tensor.name for tensor in after.tensors] == ["x", "a", "y", "b", "unread"]


def test_custom_op_stays() -> None:
    graph = forked("mine", is_custom=True)
    assert rewrite(graph) is not graph  # the MUL after it is removed
    assert [node.op for node in rewrite(graph).nodes] == ["mine", "RELU6"]


def test_node_with_side_effects_stays() -> None:
    x, y, old = t((2, 3), name="x"), t((2, 3)), t((1,), "resource")
    nodes = [op("VAR_HANDLE", [], [old]), op("ASSIGN_VARIABLE", [old, x], []), op("RELU", [x], [y])]
    assert left_by(rewrite, whole(graph_of(nodes))) == [
        "no output depends on it, but ASSIGN_VARIABLE may do more than that"
    ]


def test_graph_without_dead_nodes_is_unchanged() -> None:
    graph = whole(graph_of([op("RELU", [t((2,))], [t((2,))])]))
    assert left_by(rewrite, graph) == []

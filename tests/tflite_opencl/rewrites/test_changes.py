# SPDX-License-Identifier: Apache-2.0
"""The building blocks of passes: changes of nodes, unchanged nodes, and notes."""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.def_use import DefUse
from delegate.inspect import Graph, Node
from tests.support.model import graph_of, op, t
from tests.support.rewrites import whole
from tflite_opencl.rewrites.changes import Change, NoMatch, Note, changed, changed_one_by_one, note


def chain(*ops: str) -> Graph:
    """Return a chain of ops; tensor 0 is the input."""
    tensors = [t((4,), name=f"t{number}") for number in range(len(ops) + 1)]
    rows = zip(ops, tensors, tensors[1:], strict=False)
    return whole(graph_of([op(name, [source], [result]) for name, source, result in rows]))


def names(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def test_note_names_node_and_output() -> None:
    (node,) = chain("RELU").nodes
    notes: list[Note] = []
    note(notes, node, True, "became MUL", 41.5)
    note(notes, replace(node, outputs=()), False, "it calls a subgraph")
    assert notes == [
        Note(0, "RELU", "t1", True, "became MUL", 41.5),
        Note(0, "RELU", "", False, "it calls a subgraph", None),
    ]


def abs_for_neg(node: Node) -> Change | None:
    if node.op == "COS":
        raise NoMatch("no")
    return Change("done", {node: [replace(node, op="ABS")]}) if node.op == "NEG" else None


def test_notes_are_in_order() -> None:
    notes: list[Note] = []
    after = changed(chain("NEG", "COS", "RELU", "NEG"), notes, abs_for_neg)
    assert names(after) == ["ABS", "COS", "RELU", "ABS"]
    results = [(n.node_index, n.treated) for n in notes]
    assert results == [(0, True), (1, False), (3, True)]
    assert changed(after, None, abs_for_neg) is after


def without_repeats(graph: Graph, links: DefUse, node: Node) -> Change | None:
    before = links.producer(node.inputs[0])
    if before is None:
        return None
    if before.op != node.op:
        raise NoMatch(f"{before.op} is before it")
    (gone,), (stays,) = before.outputs, node.outputs
    return Change("again", {before: [replace(before, outputs=(stays,))], node: []}, {gone: stays})


def test_consecutive_changes_and_their_notes() -> None:
    notes: list[Note] = []
    after = changed_one_by_one(chain("ABS", "ABS", "ABS", "NEG"), notes, without_repeats)
    assert names(after) == ["ABS", "NEG"]
    results = [(n.node_index, n.text) for n in notes]
    assert results == [(1, "again"), (2, "again"), (3, "ABS is before it")]
    assert changed_one_by_one(after, None, without_repeats) is after

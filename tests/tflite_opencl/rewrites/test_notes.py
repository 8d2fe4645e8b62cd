# SPDX-License-Identifier: Apache-2.0
"""What a pass tells of the places it treated and of those it left."""

from __future__ import annotations

from tests.support.model import graph_of, op, t
from tflite_opencl.rewrites.changes import Note, Notes


def test_a_note_names_the_node_and_its_first_output() -> None:
    x, y = t((1, 4)), t((1, 4), name="sum")
    (node,) = graph_of([op("ADD", [x, x], [y])]).nodes
    notes = Notes()
    notes.treated(node, "became MUL", 41.5)
    notes.left(node, "two nodes read it")
    assert notes.records == [
        Note(0, "ADD", "sum", True, "became MUL", 41.5),
        Note(0, "ADD", "sum", False, "two nodes read it", None),
    ]


def test_a_note_may_be_of_the_whole_graph() -> None:
    notes = Notes()
    notes.left(None, "no quantised tensors")
    assert notes.records == [Note(-1, "", "", False, "no quantised tensors", None)]


def test_a_node_without_outputs_has_no_name() -> None:
    notes = Notes()
    notes.left(op("CALL_ONCE", [], []), "it calls a subgraph")
    assert notes.records[0].output == ""

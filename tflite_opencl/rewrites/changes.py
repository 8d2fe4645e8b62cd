# SPDX-License-Identifier: Apache-2.0
"""What every pass is made of: at a node it changes the graph, or leaves it for a reason.

Knows no op. What is done and what is left is noted here, for every pass alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from delegate.graph.links import Links
from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.editing import rebuilt

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Note:
    """One place that a pass treated, or could have treated and left."""

    node_index: int  # in the graph that the pass was given
    op: str
    output: str  # name of the node's first output; "" where it has none
    treated: bool
    text: str  # what became of the node, or why it was left
    loss_db: float | None = None  # signal to quantisation noise, in dB; None: nothing was lost


class Notes:
    """Collects the notes of one pass on one graph."""

    def __init__(self) -> None:
        self.records: list[Note] = []

    def treated(self, node: Node, text: str, loss_db: float | None = None) -> None:
        """Note that a node was rewritten, and what became of it."""
        self._add(node, True, text, loss_db)

    def left(self, node: Node, reason: str) -> None:
        """Note why a node that looks like work for the pass stays as it is."""
        self._add(node, False, reason, None)

    def _add(self, node: Node, treated: bool, text: str, loss_db: float | None) -> None:
        name = node.outputs[0].name if node.outputs else ""
        self.records.append(Note(node.index, node.op, name, treated, text, loss_db))


class Left(Exception):
    """A node looks like work for a pass and stays as it is; the text is the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What becomes of a graph at one node."""

    text: str  # what is noted
    nodes: Mapping[Node, Sequence[Node]]  # a node -> those in its place
    tensors: Mapping[Tensor, Tensor] = field(default_factory=dict)  # as in `rebuilt`
    loss_db: float | None = None
    of: Node | None = None  # the node that the note names; None: the one that was looked at


def found_at(
    nodes: Iterable[Node], notes: Notes | None, find: Callable[[Node], T | None]
) -> Iterator[tuple[Node, T]]:
    """Yield each node with what `find` returns of it, if that is not None.

    A node of which `find` raises Left is noted.
    """
    for node in nodes:
        try:
            found = find(node)
        except Left as reason:
            if notes is not None:
                notes.left(node, str(reason))
            continue
        if found is not None:
            yield node, found


def changed(
    graph: Graph,
    notes: Notes | None,
    find: Callable[[Node], Change | None],
    nodes: Iterable[Node] | None = None,
) -> Graph:
    """Return the graph with all changes that `find` returns; the same one if there are none.

    `nodes`: the order in which they are looked at, without one that of execution.
    """
    steps: dict[Node, Sequence[Node]] = {}
    tensors: dict[Tensor, Tensor] = {}
    for node, change in found_at(graph.nodes if nodes is None else nodes, notes, find):
        steps.update(change.nodes)
        tensors.update(change.tensors)
        if notes is not None:
            notes.treated(change.of or node, change.text, change.loss_db)
    return rebuilt(graph, (s for n in graph.nodes for s in steps.get(n, (n,))), tensors)


# Returns what becomes of a graph at a node; None: the node is no work for the pass. Raises Left.
Find = Callable[[Graph, Links, Node], Change | None]


def changed_one_by_one(graph: Graph, notes: Notes | None, *finds: Find) -> Graph:
    """Return the graph after changes that make room for each other; the same one if there are none.

    The first change that there is by the first function that returns one is made, then all is
    looked at again. What is left in the end is noted.
    """
    notes = Notes() if notes is None else notes
    given = graph.nodes  # at each position the node that the pass was given
    while True:
        left = Notes()
        found = _first_change(graph, left, finds)
        if found is None:
            break
        node, change = found
        notes.treated(given[node.index], change.text)
        steps = [(old, step) for old in graph.nodes for step in change.nodes.get(old, (old,))]
        given = tuple(given[old.index] for old, _ in steps)
        graph = rebuilt(graph, [step for _, step in steps], change.tensors)
    for note in left.records:
        notes.left(given[note.node_index], note.text)
    return graph


def _first_change(graph: Graph, left: Notes, finds: Sequence[Find]) -> tuple[Node, Change] | None:
    links = Links(graph)
    for find in finds:
        for found in found_at(graph.nodes, left, partial(find, graph, links)):
            return found
    return None

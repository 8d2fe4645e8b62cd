# SPDX-License-Identifier: Apache-2.0
"""Infrastructure of all passes: at a node, a pass changes the graph or leaves it for a reason.

Independent of ops. Records notes about changed and skipped nodes, and builds the new graph, for
all passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from delegate.graph.def_use import DefUse
from delegate.graph.edit import node_with
from delegate.inspect import Graph, Node, Quantization, Tensor

T = TypeVar("T")
_MADE = -1  # Tensor.origin of tensors that are not in the file


@dataclass(frozen=True, slots=True)
class Note:
    """A node that a pass changed, or could have changed and left."""

    node_index: int  # in the pass's input graph
    op: str
    output: str  # name of the node's first output; "" if it has none
    treated: bool
    text: str  # the change, or why the node was left
    loss_db: float | None = None  # signal to quantisation noise, in dB; None: lossless


Notes = list[Note]  # of one pass on one graph


def note(
    notes: Notes | None, node: Node, treated: bool, text: str, loss_db: float | None = None
) -> None:
    """Record the change of a node, or why a candidate is left unchanged."""
    if notes is not None:
        name = node.outputs[0].name if node.outputs else ""
        notes.append(Note(node.index, node.op, name, treated, text, loss_db))


class NoMatch(Exception):
    """A candidate node is left unchanged; the text is the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """The change of a graph at one node."""

    text: str  # the note's text
    nodes: Mapping[Node, Sequence[Node]]  # a node -> its replacements
    tensors: Mapping[Tensor, Tensor] = field(default_factory=dict)  # as in `rebuilt`
    loss_db: float | None = None
    of: Node | None = None  # the node that the note names; None: the candidate


def found_at(
    nodes: Iterable[Node], notes: Notes | None, find: Callable[[Node], T | None]
) -> Iterator[tuple[Node, T]]:
    """Yield each node with the result of `find`, unless that is None.

    Nodes for which `find` raises Left are noted.
    """
    for node in nodes:
        try:
            found = find(node)
        except NoMatch as reason:
            note(notes, node, False, str(reason))
            continue
        if found is not None:
            yield node, found


def changed(
    graph: Graph,
    notes: Notes | None,
    find: Callable[[Node], Change | None],
    nodes: Iterable[Node] | None = None,
) -> Graph:
    """Return the graph with all changes returned by `find`; the same object if there are none.

    `nodes`: the order of the candidates; default: execution order.
    """
    steps: dict[Node, Sequence[Node]] = {}
    tensors: dict[Tensor, Tensor] = {}
    for node, change in found_at(graph.nodes if nodes is None else nodes, notes, find):
        steps |= change.nodes
        tensors |= change.tensors
        note(notes, change.of or node, True, change.text, change.loss_db)
    return rebuilt(graph, (s for n in graph.nodes for s in steps.get(n, (n,))), tensors)


# Returns the graph's change at a node; None: the node is no candidate. Raises Left.
Find = Callable[[Graph, DefUse, Node], Change | None]


def changed_one_by_one(graph: Graph, notes: Notes | None, *finds: Find) -> Graph:
    """Return the graph after changes that enable each other; the same object if there are none.

    Applies the first change returned by the first function that returns one, then starts over.
    Nodes left at the end are noted.
    """
    given = graph.nodes  # at each position the node of the pass's input graph
    while True:
        left: Notes = []
        links = DefUse(graph)
        looks = (found_at(graph.nodes, left, partial(find, graph, links)) for find in finds)
        found = next((each for look in looks for each in look), None)
        if found is None:
            break
        node, change = found
        note(notes, given[node.index], True, change.text)
        steps = [(old, step) for old in graph.nodes for step in change.nodes.get(old, (old,))]
        given = tuple(given[old.index] for old, _ in steps)
        graph = rebuilt(graph, [step for _, step in steps], change.tensors)
    for each in left:
        note(notes, given[each.node_index], False, each.text)
    return graph


def new_tensor(
    name: str,
    shape: Sequence[int],
    dtype: str,
    quantization: Quantization | None = None,
    data: NDArray[Any] | None = None,
    shape_signature: tuple[int, ...] = (),
) -> Tensor:
    """Return a tensor for a new node; `rebuilt` assigns its index and makes its name unique.

    `name` tells its origin: "conv/pad" for the tensor inserted before "conv".
    """
    made = Tensor(-1, name, tuple(shape), dtype, quantization, data, origin=_MADE)
    return replace(made, shape_signature=shape_signature)


def is_op(node: Node, op: str, inputs: int) -> bool:
    """Whether a node is this TFLite op, with this many inputs and one output."""
    return (node.op, node.is_custom, len(node.inputs), len(node.outputs)) == (op, False, inputs, 1)


def quanta(tensor: Tensor) -> tuple[float, int]:
    """Return the scale and zero point of a quantised tensor; of several, the first."""
    assert tensor.quantization is not None
    return tensor.quantization.scale[0], tensor.quantization.zero_point[0]


def known_values(graph: Graph, tensor: Tensor | None) -> NDArray[Any] | None:
    """Return the values of a constant; None: they are computed, or set by the caller."""
    if tensor is None or tensor.data is None or tensor in graph.changeable:
        return None
    return np.asarray(tensor.data)


def same_quanta(one: Tensor, other: Tensor) -> bool:
    """Whether equal integers in two tensors represent equal real numbers."""
    ours, theirs = (t.quantization and replace(t.quantization, axis=0) for t in (one, other))
    return (one.dtype, ours) == (other.dtype, theirs)


def rebuilt(
    graph: Graph, nodes: Iterable[Node], changed: Mapping[Tensor, Tensor] | None = None
) -> Graph:
    """Return the graph of these nodes; the same object if nothing is new.

    `nodes`: all nodes of the graph, in execution order, with tensors of `graph` or new ones.
    `changed`: an old tensor -> its replacement in every node, input and output of the graph.

    Tensors keep their order, followed by new ones. Tensors used by nodes of the old graph and by
    none of the new one are dropped; tensors that no node used had another purpose, and stay.

    Raises:
        ValueError: a tensor is written twice, or read before it is written.
    """
    new = dict(changed or {})
    steps = tuple(node_with(node, new) for node in nodes)
    if steps == graph.nodes and new.keys().isdisjoint(graph.tensors):
        return graph
    ends = [new.get(t, t) for t in (*graph.inputs, *graph.outputs)]
    _check_order(steps)
    used = {*ends, *_tensors(steps)}
    was_used = {*graph.inputs, *graph.outputs, *_tensors(graph.nodes)}
    kept = [new.get(t, t) for t in graph.tensors if new.get(t, t) in used or t not in was_used]
    return _numbered_graph(graph, dict.fromkeys([*kept, *_tensors(steps)]), steps, ends)


def without_unread(graph: Graph) -> Graph:
    """Return the graph without unread constants; the same object if all are read.

    Computed tensors stay, because some are no node's input: an LSTM's intermediate tensors.
    """
    ends = [*graph.inputs, *graph.outputs]
    used = {*ends, *_tensors(graph.nodes)}
    scales = {id(tensor.blocks.scales) for tensor in used if tensor.blocks is not None}
    kept = [
        t
        for t in graph.tensors
        if t in used or t.data is None or t.is_variable or id(t.data) in scales
    ]
    if len(kept) == len(graph.tensors):
        return graph
    return _numbered_graph(graph, kept, graph.nodes, ends)


def _tensors(nodes: Iterable[Node]) -> list[Tensor]:
    return [t for node in nodes for t in (*node.inputs, *node.outputs) if t is not None]


def _numbered_graph(
    graph: Graph, tensors: Iterable[Tensor], nodes: Iterable[Node], ends: Sequence[Tensor]
) -> Graph:
    """Return a graph with consistent tensor and node indices; `ends`: inputs, then outputs."""
    numbered = _numbered(list(tensors))
    steps = (node_with(node, numbered) for node in nodes)
    inputs = len(graph.inputs)
    return replace(
        graph,
        tensors=tuple(numbered.values()),
        nodes=tuple(s if s.index == at else replace(s, index=at) for at, s in enumerate(steps)),
        inputs=tuple(numbered[t] for t in ends[:inputs]),
        outputs=tuple(numbered[t] for t in ends[inputs:]),
    )


def _numbered(tensors: Sequence[Tensor]) -> dict[Tensor, Tensor]:
    """Return each tensor with its position as index; new ones get unique names."""
    numbered: dict[Tensor, Tensor] = {}
    taken = {t.name for t in tensors if t.index >= 0}
    for position, tensor in enumerate(tensors):
        name, origin = tensor.name, tensor.origin
        if tensor.index == position:
            numbered[tensor] = tensor
            continue
        if tensor.index < 0:
            names = chain([name], (f"{tensor.name}_{number}" for number in count(1)))
            name, origin = next(each for each in names if each not in taken), _MADE
        elif origin is None:
            origin = tensor.index
        taken.add(name)
        numbered[tensor] = replace(tensor, index=position, name=name, origin=origin)
    return numbered


def _check_order(nodes: Sequence[Node]) -> None:
    made: set[Tensor] = set()
    waiting = {tensor for node in nodes for tensor in node.outputs}
    for node in nodes:
        for tensor in node.inputs:
            if tensor in waiting:
                raise ValueError(f"{node.op} reads {tensor.name!r} before a node makes it")
        for tensor in node.outputs:
            if tensor in made:
                raise ValueError(f"{tensor.name!r} is made twice")
            made.add(tensor)
            waiting.discard(tensor)

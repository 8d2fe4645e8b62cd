# SPDX-License-Identifier: Apache-2.0
"""What every pass is made of: at a node it changes the graph, or leaves it for a reason.

Knows no op. What is done and what is left is noted here, and a graph of new nodes is made here, for
every pass alike.
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
_MADE = -1  # Tensor.origin of what no file has


@dataclass(frozen=True, slots=True)
class Note:
    """One place that a pass treated, or could have treated and left."""

    node_index: int  # in the graph that the pass was given
    op: str
    output: str  # name of the node's first output; "" where it has none
    treated: bool
    text: str  # what became of the node, or why it was left
    loss_db: float | None = None  # signal to quantisation noise, in dB; None: nothing was lost


Notes = list[Note]  # of one pass on one graph


def note(
    notes: Notes | None, node: Node, treated: bool, text: str, loss_db: float | None = None
) -> None:
    """Note what became of a node, or why one that looks like work for the pass stays as it is."""
    if notes is not None:
        name = node.outputs[0].name if node.outputs else ""
        notes.append(Note(node.index, node.op, name, treated, text, loss_db))


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
    """Return the graph with all changes that `find` returns; the same one if there are none.

    `nodes`: the order in which they are looked at, without one that of execution.
    """
    steps: dict[Node, Sequence[Node]] = {}
    tensors: dict[Tensor, Tensor] = {}
    for node, change in found_at(graph.nodes if nodes is None else nodes, notes, find):
        steps |= change.nodes
        tensors |= change.tensors
        note(notes, change.of or node, True, change.text, change.loss_db)
    return rebuilt(graph, (s for n in graph.nodes for s in steps.get(n, (n,))), tensors)


# Returns what becomes of a graph at a node; None: the node is no work for the pass. Raises Left.
Find = Callable[[Graph, DefUse, Node], Change | None]


def changed_one_by_one(graph: Graph, notes: Notes | None, *finds: Find) -> Graph:
    """Return the graph after changes that make room for each other; the same one if there are none.

    The first change that there is by the first function that returns one is made, then all is
    looked at again. What is left in the end is noted.
    """
    given = graph.nodes  # at each position the node that the pass was given
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
    """Return a tensor for a node that a pass makes; `rebuilt` numbers it and makes its name unique.

    `name` tells where it comes from: "conv/pad" for what stands before the tensor "conv".
    """
    made = Tensor(-1, name, tuple(shape), dtype, quantization, data, origin=_MADE)
    return replace(made, shape_signature=shape_signature)


def is_op(node: Node, op: str, inputs: int) -> bool:
    """Whether a node is TFLite's op of this name, with so many inputs and one output."""
    return (node.op, node.is_custom, len(node.inputs), len(node.outputs)) == (op, False, inputs, 1)


def quanta(tensor: Tensor) -> tuple[float, int]:
    """Return the scale and the zero point of a quantised tensor; of several, the first."""
    assert tensor.quantization is not None
    return tensor.quantization.scale[0], tensor.quantization.zero_point[0]


def known_values(graph: Graph, tensor: Tensor | None) -> NDArray[Any] | None:
    """Return the values of a constant; None: they are computed, or a caller may set them."""
    if tensor is None or tensor.data is None or tensor in graph.changeable:
        return None
    return np.asarray(tensor.data)


def same_quanta(one: Tensor, other: Tensor) -> bool:
    """Whether equal codes of two tensors stand for equal numbers."""
    ours, theirs = (t.quantization and replace(t.quantization, axis=0) for t in (one, other))
    return (one.dtype, ours) == (other.dtype, theirs)


def rebuilt(
    graph: Graph, nodes: Iterable[Node], changed: Mapping[Tensor, Tensor] | None = None
) -> Graph:
    """Return the graph of these nodes; the same object where nothing is new.

    `nodes`: all nodes of the graph, in execution order, with tensors of `graph` or new ones.
    `changed`: an old tensor -> the one in its place, in every node, input and output of the graph.

    Tensors keep their order, new ones follow them. Dropped is what a node of the old graph used
    and nothing uses now; what no node used has stayed for another reason, and stays.

    Raises:
        ValueError: a tensor is made twice, or read before it is made.
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
    """Return the graph without constants that nobody reads; the same one where all are read.

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
    """Return a graph whose tensors and nodes have their positions; `ends`: inputs, then outputs."""
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
    """Return each tensor with its position as index; a made one gets a name of its own."""
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

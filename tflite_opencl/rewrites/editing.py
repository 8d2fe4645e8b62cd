# SPDX-License-Identifier: Apache-2.0
"""What is known of tensors, new ones, and a graph of new nodes. Knows no op."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.graph.edit import node_with
from delegate.inspect import Graph, Node, Quantization, Tensor

_MADE = -1  # Tensor.origin of what no file has


def new_tensor(
    name: str,
    shape: Sequence[int],
    dtype: str,
    quantization: Quantization | None = None,
    data: NDArray[Any] | None = None,
) -> Tensor:
    """Return a tensor for a node that a pass makes; `rebuilt` numbers it and makes its name unique.

    `name` tells where it comes from: "conv/pad" for what stands before the tensor "conv".
    """
    return Tensor(
        index=-1,
        name=name,
        shape=tuple(shape),
        dtype=dtype,
        quantization=quantization,
        data=data,
        origin=_MADE,
    )


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
    if one.dtype != other.dtype or (one.quantization is None) != (other.quantization is None):
        return False
    ours, theirs = one.quantization, other.quantization
    if ours is None or theirs is None:
        return True
    return (ours.scale, ours.zero_point) == (theirs.scale, theirs.zero_point)


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


def _tensors(nodes: Iterable[Node]) -> list[Tensor]:
    return [t for node in nodes for t in (*node.inputs, *node.outputs) if t is not None]


def _at(node: Node, position: int) -> Node:
    return node if node.index == position else replace(node, index=position)


def _numbered_graph(
    graph: Graph, tensors: Iterable[Tensor], nodes: Iterable[Node], ends: Sequence[Tensor]
) -> Graph:
    """Return a graph whose tensors and nodes have their positions; `ends`: inputs, then outputs."""
    numbered = _numbered(tensors)
    count = len(graph.inputs)
    return replace(
        graph,
        tensors=tuple(numbered.values()),
        nodes=tuple(
            _at(node_with(node, numbered), position) for position, node in enumerate(nodes)
        ),
        inputs=tuple(numbered[t] for t in ends[:count]),
        outputs=tuple(numbered[t] for t in ends[count:]),
    )


def _numbered(tensors: Iterable[Tensor]) -> dict[Tensor, Tensor]:
    """Return each tensor with its position as index; a made one gets a name of its own."""
    numbered: dict[Tensor, Tensor] = {}
    ordered = list(tensors)
    taken = {t.name for t in ordered if t.index >= 0}
    for position, tensor in enumerate(ordered):
        if tensor.index < 0:
            name = _unique(tensor.name, taken)
            taken.add(name)
            numbered[tensor] = replace(tensor, index=position, name=name, origin=_MADE)
        elif tensor.index == position:
            numbered[tensor] = tensor
        else:
            origin = tensor.index if tensor.origin is None else tensor.origin
            numbered[tensor] = replace(tensor, index=position, origin=origin)
    return numbered


def _unique(name: str, taken: set[str]) -> str:
    number, unique = 1, name
    while unique in taken:
        unique, number = f"{name}_{number}", number + 1
    return unique


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


def without_unread(graph: Graph) -> Graph:
    """Return the graph without constants that no node reads; the same one where all are read.

    Computed tensors stay, because some are no node's input: an LSTM's intermediate tensors.
    """
    ends = [*graph.inputs, *graph.outputs]
    used = {*ends, *_tensors(graph.nodes)}
    kept = [t for t in graph.tensors if t in used or t.data is None or t.is_variable]
    if len(kept) == len(graph.tensors):
        return graph
    return _numbered_graph(graph, kept, graph.nodes, ends)

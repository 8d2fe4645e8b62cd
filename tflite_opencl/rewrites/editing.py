# SPDX-License-Identifier: Apache-2.0
"""What passes on graphs share: who reads and makes a tensor, new tensors, a graph of new nodes.

Knows no op.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from delegate.inspect import Graph, Node, Quantization, Tensor

_MADE = -1  # Tensor.origin of what no file has


def readers(graph: Graph) -> dict[Tensor, tuple[Node, ...]]:
    """Return who reads each tensor of the graph; a node that reads it twice stands there twice."""
    found: dict[Tensor, list[Node]] = {tensor: [] for tensor in graph.tensors}
    for node in graph.nodes:
        for tensor in node.inputs:
            if tensor is not None:
                found[tensor].append(node)
    return {tensor: tuple(nodes) for tensor, nodes in found.items()}


def makers(graph: Graph) -> dict[Tensor, Node]:
    """Return the node that makes each computed tensor; inputs and constants have none."""
    return {tensor: node for node in graph.nodes for tensor in node.outputs}


def only_reader(
    graph: Graph, read_by: Mapping[Tensor, tuple[Node, ...]], tensor: Tensor
) -> Node | None:
    """Return the node that alone reads a tensor, and once; None where a caller sees it, too."""
    nodes = read_by[tensor]
    return nodes[0] if len(nodes) == 1 and tensor not in graph.outputs else None


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
    steps = tuple(_with_tensors(node, new) for node in nodes)
    is_same = len(steps) == len(graph.nodes) and all(map(_is, steps, graph.nodes))
    if is_same and all(t not in new for t in graph.tensors):
        return graph
    ends = [new.get(t, t) for t in (*graph.inputs, *graph.outputs)]
    _check_order(steps)
    used = {*ends, *_tensors(steps)}
    was_used = {*graph.inputs, *graph.outputs, *_tensors(graph.nodes)}
    kept = [new.get(t, t) for t in graph.tensors if new.get(t, t) in used or t not in was_used]
    numbered = _numbered(dict.fromkeys([*kept, *_tensors(steps)]))
    return replace(
        graph,
        tensors=tuple(numbered.values()),
        nodes=tuple(
            _at(_with_tensors(node, numbered), position) for position, node in enumerate(steps)
        ),
        inputs=tuple(numbered[t] for t in ends[: len(graph.inputs)]),
        outputs=tuple(numbered[t] for t in ends[len(graph.inputs) :]),
    )


def _is(one: object, other: object) -> bool:
    return one is other


def _tensors(nodes: Iterable[Node]) -> list[Tensor]:
    return [t for node in nodes for t in (*node.inputs, *node.outputs) if t is not None]


def _with_tensors(node: Node, new: Mapping[Tensor, Tensor]) -> Node:
    inputs = tuple(None if t is None else new.get(t, t) for t in node.inputs)
    outputs = tuple(new.get(t, t) for t in node.outputs)
    if all(map(_is, (*inputs, *outputs), (*node.inputs, *node.outputs))):
        return node
    return replace(node, inputs=inputs, outputs=outputs)


def _at(node: Node, position: int) -> Node:
    return node if node.index == position else replace(node, index=position)


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
    used = {*graph.inputs, *graph.outputs, *_tensors(graph.nodes)}
    kept = [t for t in graph.tensors if t in used or t.data is None or t.is_variable]
    if len(kept) == len(graph.tensors):
        return graph
    numbered = _numbered(kept)
    return replace(
        graph,
        tensors=tuple(numbered.values()),
        nodes=tuple(_with_tensors(node, numbered) for node in graph.nodes),
        inputs=tuple(numbered[t] for t in graph.inputs),
        outputs=tuple(numbered[t] for t in graph.outputs),
    )

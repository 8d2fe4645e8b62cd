# SPDX-License-Identifier: Apache-2.0
"""Pure Graph -> Graph functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from delegate.graph.ir import Graph, Node, Tensor


def with_shapes(graph: Graph, shapes: Mapping[int, tuple[int, ...]]) -> Graph:
    """Return the graph with these tensor shapes, by tensor index; constants keep theirs."""
    changed: dict[Tensor, Tensor] = {
        tensor: replace(tensor, shape=shapes[tensor.index])
        for tensor in graph.tensors
        if tensor.data is None and shapes.get(tensor.index, tensor.shape) != tensor.shape
    }
    return with_tensors(graph, changed)


def with_input_shapes(graph: Graph, shapes: Mapping[int, Sequence[int]]) -> Graph:
    """Return the graph with these input shapes, by input number, and without dynamic sizes.

    Dependent shapes are not inferred yet: see graph/infer.py.
    Raises: ValueError: a shape of another rank, or a size below 1.
    """
    changed = {}
    for number, shape in shapes.items():
        tensor, sizes = graph.inputs[number], tuple(int(size) for size in shape)
        is_own = sizes == tensor.shape
        if not is_own and (len(sizes) != len(tensor.shape) or min(sizes) < 1):
            own = tensor.shape_signature or tensor.shape
            raise ValueError(f"input {tensor.name or number} is {own}: {sizes} is no shape of it")
        if not is_own or tensor.shape_signature:
            changed[tensor] = replace(tensor, shape=sizes, shape_signature=())
    return with_tensors(graph, changed)


def with_named_shapes(graph: Graph, shapes: Mapping[str | int, Sequence[int]]) -> Graph:
    """As `with_input_shapes`; `shapes`: by the inputs' names or indices in the file.

    Raises: ValueError: no such input; else as `with_input_shapes`.
    """
    found = {}
    for which, shape in shapes.items():
        numbers = [n for n, each in enumerate(graph.inputs) if which in (each.name, each.index)]
        if len(numbers) != 1:
            known = ", ".join(each.name or str(each.index) for each in graph.inputs)
            raise ValueError(f"shapes: there is no input {which!r}: {known}")
        found[numbers[0]] = shape
    return with_input_shapes(graph, found)


def with_tensors(graph: Graph, changed: Mapping[Tensor, Tensor]) -> Graph:
    """Return the graph with these tensors replaced; the same object if there are none.

    They are replaced in every node, input and output, and in nodes' bodies.
    """
    if not changed:
        return graph
    return replace(
        graph,
        tensors=_new(graph.tensors, changed),
        nodes=tuple(node_with(node, changed) for node in graph.nodes),
        inputs=_new(graph.inputs, changed),
        outputs=_new(graph.outputs, changed),
    )


def node_with(node: Node, changed: Mapping[Tensor, Tensor]) -> Node:
    """Return the node with these tensors replaced; the same object if it has none."""
    inputs, between = (
        tuple(None if t is None else changed.get(t, t) for t in tensors)
        for tensors in (node.inputs, node.intermediates)
    )
    outputs, inner = _new(node.outputs, changed), _new(node.inner, changed)
    body = node.body
    if body is not None and node.calls is not None:  # it uses the node's own tensors
        body = with_tensors(body, changed)
    if (inputs, outputs, inner, between, body) == (
        node.inputs,
        node.outputs,
        node.inner,
        node.intermediates,
        node.body,
    ):
        return node
    return replace(
        node, inputs=inputs, outputs=outputs, inner=inner, intermediates=between, body=body
    )


def _new(tensors: tuple[Tensor, ...], changed: Mapping[Tensor, Tensor]) -> tuple[Tensor, ...]:
    return tuple(changed.get(tensor, tensor) for tensor in tensors)


def of_one_node(node: Node) -> Graph:
    """Return a graph of a single node, with the tensors in the same order."""
    all_tensors = (*node.inputs, *node.outputs, *node.intermediates)
    used = dict.fromkeys(t for t in all_tensors if t is not None)
    own = {
        tensor: replace(tensor, index=index, is_sparse=False, shape_signature=())
        for index, tensor in enumerate(used)
    }
    inputs = tuple(None if tensor is None else own[tensor] for tensor in node.inputs)
    outputs = tuple(own[tensor] for tensor in node.outputs)
    given = tuple(tensor for tensor in dict.fromkeys(inputs) if tensor and tensor.data is None)
    between = tuple(None if tensor is None else own[tensor] for tensor in node.intermediates)
    alone = replace(node, index=0, inputs=inputs, outputs=outputs, intermediates=between)
    return Graph(tuple(own.values()), (alone,), given, outputs)


def unfolded(graph: Graph, members: Collection[int]) -> list[Node]:
    """Return the nodes of these indices whose results are not all known constants."""
    nodes = (node for node in graph.nodes if node.index in members)
    return [node for node in nodes if not all(tensor.is_folded for tensor in node.outputs)]


def of_nodes(graph: Graph, members: Collection[int]) -> Graph:
    """Return a graph of some nodes of a graph, as TFLite has them, with its own tensor indices.

    Nodes with known results are left out, and their results are constants. Values that other nodes
    read are outputs. All versions of a variable tensor are one tensor, which nodes update.
    `Tensor.origin` is the tensor's index in `graph`.
    """
    first = {t.state_name: t for t in graph.tensors if _is_kept_by_tflite(t) and t.index >= 0}
    nodes = [_with_one_version(node, first) for node in unfolded(graph, members)]
    made = {tensor for node in nodes for tensor in node.outputs}
    every = (t for node in nodes for t in (*node.inputs, *node.outputs, *node.intermediates))
    own = {
        t: replace(
            t,
            index=index,
            data=None if t in made else t.data,
            is_folded=False,
            is_sparse=False,
            shape_signature=(),
            origin=t.index,
        )
        for index, t in enumerate(dict.fromkeys(t for t in every if t is not None))
    }
    others = (node for node in graph.nodes if node.index not in members)
    wanted = {t for node in others for t in node.inputs}.union(graph.outputs) & made
    read = dict.fromkeys(t for node in nodes for t in node.inputs if t is not None)
    given = [own[t] for t in read if t not in made and t.data is None and not t.is_variable]
    renumbered = (replace(node_with(node, own), index=n) for n, node in enumerate(nodes))
    outputs = tuple(own[t] for t in own if t in wanted)
    return Graph(tuple(own.values()), tuple(renumbered), tuple(given), outputs)


def _is_kept_by_tflite(tensor: Tensor | None) -> bool:
    """Whether it is a version of a variable tensor."""
    return tensor is not None and tensor.is_variable and bool(tensor.state_name)


def _with_one_version(node: Node, first: Mapping[str, Tensor]) -> Node:
    """Return the node with the first version of each variable tensor, by state name."""
    if not any(map(_is_kept_by_tflite, (*node.inputs, *node.outputs))):
        return node
    inputs = (first.get(t.state_name, t) if t is not None else None for t in node.inputs)
    outputs = (tensor for tensor in node.outputs if not _is_kept_by_tflite(tensor))
    return replace(node, inputs=tuple(inputs), outputs=tuple(outputs))

# SPDX-License-Identifier: Apache-2.0
"""Inlining of WHILE and IF: Node -> Node with the nodes that replace it, on its own tensors.

TFLite runs both subgraphs itself, with copies and a call of every partition per iteration. If
constants decide which nodes run, and how often, they are known before a run: a loop of known trip
count is unrolled, and an IF is replaced by the branch taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from delegate.graph.edit import node_with, with_tensors
from delegate.graph.ir import UNSIZED, Graph, Node, Tensor
from delegate.graph.partition import dynamic_tensors, plain_nodes
from delegate.graph.shapes import output_shapes

# Of an unrolled loop, with a node per iteration: a node costs about a millisecond at startup.
MOST_NODES = 4096
# Total of all visits to nodes of called graphs: a small file could require 2^30.
_MOST_VISITS = 1 << 15
# Inner tensors have their own indices, below those of graph/persistent.py: this many per node.
_INDICES = 1 << 20
Infer = Callable[[Graph], Graph]


class _NotInlined(Exception):
    """Why a node is not inlined."""


class Visits:
    """Budget of visits to nodes of called graphs."""

    def __init__(self) -> None:
        self._left = _MOST_VISITS

    def counted(self, graph: Graph) -> Graph:
        """Return the graph, or give up on the calling node if the budget is exceeded."""
        self._left -= len(graph.nodes) + 1
        if self._left < 0:
            raise _NotInlined(f"calls lead to more than {_MOST_VISITS} nodes")
        return graph


def inlined(node: Node, infer: Infer) -> Node:
    """Return a WHILE or an IF with what is known of its calls, and its body if it is inlined.

    Outputs get their shapes, values and ranges. `infer` is `infer.infer`.
    Source: tflite/kernels/while.cc, if.cc
    """
    calls = node.calls
    if calls is None:
        return node
    try:
        made, results = _if(node, infer) if node.op == "IF" else _while(node, infer)
        nodes, outputs = _placed(made, results, node)
    except _NotInlined as obstacle:
        shapes = _sizes(node, infer)
        sizes = [t.shape for t in node.outputs] if shapes is None else shapes
        outputs = tuple(
            t if t.shape == shape else replace(t, shape=shape)
            for t, shape in zip(node.outputs, sizes, strict=True)
        )
        known = replace(calls, obstacle=str(obstacle), is_sized=shapes is not None)
        return replace(node, calls=known, outputs=outputs)
    inner = dict.fromkeys(t for each in nodes for t in (*each.inputs, *each.outputs) if t)
    given = tuple(t for t in dict.fromkeys(node.inputs) if t is not None and t.data is None)
    body = Graph(tuple(inner), nodes, given, outputs)
    return replace(
        node, body=body, calls=replace(calls, obstacle="", is_sized=True), outputs=outputs
    )


def _if(node: Node, infer: Infer) -> tuple[list[Node], Sequence[Tensor]]:
    condition, *given = _given(node)
    value = _value(condition, "which branch runs is known only at run time")
    assert node.calls is not None
    branch, other = node.calls.graphs if value else node.calls.graphs[::-1]
    if len(branch.outputs) != len(node.outputs) or len(other.outputs) != len(node.outputs):
        raise _NotInlined("its branches have a different number of outputs")
    made = _called(branch, given, infer)
    return _checked(made), made.outputs


def _while(node: Node, infer: Infer) -> tuple[list[Node], Sequence[Tensor]]:
    state: Sequence[Tensor] = _given(node)
    assert node.calls is not None
    condition, body = node.calls.graphs
    if not len(state) == len(body.inputs) == len(body.outputs) == len(node.outputs):
        raise _NotInlined("its body has a different number of inputs or outputs")
    if _is_overwritten(body):
        raise _NotInlined(
            "its body hands an input on to a later place, and TFLite overwrites it before"
        )
    nodes: list[Node] = []
    rounds = 0
    while _holds(condition, state, infer):
        rounds += 1
        made = _called(body, state, infer)
        nodes += _checked(made)
        state = made.outputs
        if len(nodes) + rounds > MOST_NODES:
            raise _NotInlined(f"more than {MOST_NODES} nodes once unrolled")
    return nodes, state


def _is_overwritten(body: Graph) -> bool:
    """Whether TFLite overwrites an input of a body by an output before copying the input.

    Source: tflite/kernels/while.cc Eval_static, whose outputs share memory with the inputs
    """
    places = {tensor: place for place, tensor in enumerate(body.inputs)}
    sources = [places.get(tensor, len(places)) for tensor in body.outputs]
    return any(source < place and sources[source] != source for place, source in enumerate(sources))


def _holds(condition: Graph, state: Sequence[Tensor], infer: Infer) -> bool:
    made = _called(condition, state, infer)
    if len(made.outputs) != 1:
        raise _NotInlined("its condition has another number of outputs")
    return _value(made.outputs[0], "how often it runs is known only at run time")


def _value(condition: Tensor, unknown: str) -> bool:
    """Return the value of a bool, or give up with the reason `unknown`."""
    data = condition.data
    if data is None or condition.is_sparse or condition.dtype != "bool" or data.size != 1:
        raise _NotInlined(unknown)
    (value,) = data.reshape(-1).view(np.uint8).tolist()
    if value > 1:  # undefined in C, so in TFLite
        raise _NotInlined("its condition is a byte besides 0 and 1")
    return bool(value)


def _given(node: Node) -> list[Tensor]:
    found = [tensor for tensor in node.inputs if tensor is not None]
    if len(found) < len(node.inputs) or not found:
        raise _NotInlined("an input is left out")
    return found


def _called(graph: Graph, given: Sequence[Tensor], infer: Infer) -> Graph:
    """Return a graph with the call's inputs substituted, and new tensors of its own."""
    if len(graph.inputs) != len(given) or len({*graph.inputs}) < len(given):
        raise _NotInlined("a graph that it calls has another number of inputs")
    changed: dict[Tensor, Tensor] = {}
    for own, outer in zip(graph.inputs, given, strict=True):
        if (own.dtype, own.quantization) != (outer.dtype, outer.quantization):
            raise _NotInlined(
                f"{outer.dtype}, {own.dtype} in a graph that it calls: they must be one"
            )
        if own.data is not None or outer.is_sparse:
            raise _NotInlined("an input of a graph that it calls is a constant there, or sparse")
        changed[own] = outer
    if any(tensor.is_variable for tensor in graph.tensors):
        raise _NotInlined("a graph that it calls keeps state in a variable tensor")
    known = {*given, *(tensor for tensor in graph.tensors if tensor.data is not None)}
    for node in graph.nodes:
        if not all(t is None or changed.get(t, t) in known for t in node.inputs):
            raise _NotInlined("the nodes of a graph that it calls are out of order")
        changed |= {tensor: replace(tensor, shape_signature=()) for tensor in node.outputs}
        known.update(changed[tensor] for tensor in node.outputs)
    if not all(changed.get(tensor, tensor) in known for tensor in graph.outputs):
        raise _NotInlined("a graph that it calls does not compute an output of its own")
    made = with_tensors(graph, changed)
    # Inputs with values are constants, which no caller changes.
    return infer(replace(made, inputs=tuple(t for t in made.inputs if t.data is None)))


def _checked(graph: Graph) -> list[Node]:
    """Return the nodes of a graph that are not folded, if all their shapes are known."""
    found: list[Node] = []
    for node in graph.nodes:
        if node.calls is not None and node.body is None:
            raise _NotInlined(f"{node.op} in it: {node.calls.obstacle}")
        if node.outputs and all(tensor.is_folded for tensor in node.outputs):
            continue
        if node.calls is None and output_shapes(node) is None:
            raise _NotInlined(f"{node.op} in it: {UNSIZED}")
        found += plain_nodes([node])
    return found


def _placed(
    nodes: Sequence[Node], results: Sequence[Tensor], node: Node
) -> tuple[tuple[Node, ...], tuple[Tensor, ...]]:
    """Return the nodes, writing to the caller's outputs, and what is known of these."""
    made = dict.fromkeys(tensor for each in nodes for tensor in each.outputs)
    changed: dict[Tensor, Tensor] = {}
    outputs: list[Tensor] = []
    copies: list[tuple[Tensor, Tensor]] = []
    for result, value in zip(node.outputs, results, strict=True):
        if (result.dtype, result.quantization) != (value.dtype, value.quantization):
            raise _NotInlined(
                f"{value.dtype} as {result.dtype}: an output must have its result's type"
            )
        data = value.data
        if data is not None and (value.is_sparse or data.dtype.name != value.dtype):
            raise _NotInlined(f"an output is a constant of {value.dtype}")
        is_known = data is not None
        outputs.append(
            replace(result, shape=value.shape, data=data, is_folded=is_known, ranges=value.ranges)
        )
        if is_known:
            continue
        if value in made and value not in changed:
            changed[value] = outputs[-1]
        else:  # an input of the call, or a duplicate
            copies.append((value, outputs[-1]))
    first = -(node.index + 1) * _INDICES
    inner = [tensor for tensor in made if tensor not in changed]
    changed |= {tensor: replace(tensor, index=first - at) for at, tensor in enumerate(inner)}
    placed = [replace(node_with(each, changed), index=node.index) for each in nodes]
    placed += [_copy(changed.get(value, value), result, node.index) for value, result in copies]
    return tuple(placed), tuple(outputs)


def _copy(source: Tensor, result: Tensor, index: int) -> Node:
    shape = np.array(result.shape, np.int32)
    sizes = Tensor(-1, "", shape.shape, "int32", data=shape)
    return Node(index, "RESHAPE", 1, (source, sizes), (result,), {"new_shape": result.shape})


def _sizes(node: Node, infer: Infer) -> tuple[tuple[int, ...], ...] | None:
    """Return the shapes that TFLite gives the outputs of a call it runs; None: at run time only.

    Its Prepare functions do not know values of the call's inputs.
    """
    assert node.calls is not None
    unknown = [t if t is None else replace(t, data=None, ranges=None) for t in node.inputs]
    given = [tensor for tensor in unknown if tensor is not None]
    called = node.calls.graphs
    try:
        if node.op == "IF":
            then, otherwise = (_shapes(graph, given[1:], infer) for graph in called)
            return then if then == otherwise and len(then) == len(node.outputs) else None
        made = _shapes(called[1], given, infer)
        is_same = made == tuple(tensor.shape for tensor in given)
        return made if is_same and len(made) == len(node.outputs) else None
    except _NotInlined:
        return None


def _shapes(graph: Graph, given: Sequence[Tensor], infer: Infer) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a called graph's outputs, or give up on the node."""
    made = _called(graph, given, infer)
    is_known = all(node.calls is not None or output_shapes(node) is not None for node in made.nodes)
    if not is_known or dynamic_tensors(made, ()):
        raise _NotInlined(UNSIZED)
    if any(math.prod(tensor.shape) < 1 for tensor in made.outputs):
        raise _NotInlined(UNSIZED)
    return tuple(tensor.shape for tensor in made.outputs)

# SPDX-License-Identifier: Apache-2.0
"""Resource variables as persistent tensors: collected from a file's graphs, and Graph -> Graph.

VAR_HANDLE names a variable, READ_VARIABLE and ASSIGN_VARIABLE access it, and CALL_ONCE runs a graph
that initialises it. TFLite stores the values out of a delegate's reach: so either all nodes of all
graphs that use a variable run on the device, or none does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Graph, Node, Resources, Tensor
from delegate.graph.persistent import FIRST, next_version

READ, ASSIGN, HANDLE, ONCE = "READ_VARIABLE", "ASSIGN_VARIABLE", "VAR_HANDLE", "CALL_ONCE"
OPS = frozenset({READ, ASSIGN, HANDLE, ONCE})
_NOTHING = np.zeros(1, bool)


class _NotPersistent(Exception):
    """Why the variables stay on the CPU."""


def touches(graph: Graph) -> bool:
    """Whether a graph has nodes of resource variables."""
    return any(node.op in (READ, ASSIGN, HANDLE) for node in graph.nodes)


def resources_of(graphs: Sequence[Graph]) -> Resources:
    """Return the resource variables of a file, given all of its graphs."""
    try:
        initial = _initial_values(graphs)
        called = {number for graph in graphs for number in _called(graph)}
        for graph in graphs:
            for node, name, tensor in _touched(graph):
                if graph.subgraph in called:
                    raise _NotPersistent("a body of control flow touches a resource variable")
                if name not in initial:
                    raise _NotPersistent(f"no CALL_ONCE begins the resource variable {name!r}")
                begun = initial[name]
                if (tensor.shape, tensor.dtype) != (begun.shape, begun.dtype.name):
                    raise _NotPersistent(
                        f"node {node.index} ({node.op}) has {tensor.dtype} of {tensor.shape}, and "
                        f"the resource variable {name!r} begins as {begun.dtype} of {begun.shape}"
                    )
    except _NotPersistent as why:
        return Resources(why_not=str(why))
    return Resources(initial)


def with_resources(graph: Graph, resources: Resources) -> Graph:
    """Return the graph whose variable nodes read and write persistent tensors.

    READ_VARIABLE returns its input, and so does ASSIGN_VARIABLE, which gets an output. The outputs
    of VAR_HANDLE and CALL_ONCE are unused; handles stay inputs, as TFLite groups nodes by
    them. Nodes keep their indices, and new tensors have indices that no file has.
    """
    if not touches(graph):
        return graph
    if resources.why_not:
        return replace(graph, resources=resources)
    tensors, nodes = [*graph.tensors], [*graph.nodes]
    names = _names(graph)
    now: dict[str, Tensor] = {}
    # A handle has no data: it counts as known, and is never copied to a device.
    known = {tensor: replace(tensor, data=_NOTHING, is_folded=True) for tensor in names}

    def changed(name: str, like: Tensor) -> Tensor:
        now[name] = next_version(tensors, name, like)
        return now[name]

    for place, node in enumerate(nodes):
        own = node.inputs[0] if node.inputs else None
        if node.op == READ and own is not None:
            name = names[own]
            found = now.get(name) or changed(name, node.outputs[0])
            nodes[place] = replace(node, inputs=(found, known[own]))
        elif node.op == ASSIGN and own is not None and (value := node.inputs[1]) is not None:
            made = changed(names[own], value)
            nodes[place] = replace(node, inputs=(value, known[own]), outputs=(made,))
        elif node.op == HANDLE:
            nodes[place] = replace(node, outputs=(known[node.outputs[0]],))
        elif node.op == ONCE:
            nothing = Tensor(FIRST - len(tensors), "", (1,), "bool", data=_NOTHING, is_folded=True)
            tensors.append(nothing)
            nodes[place] = replace(node, outputs=(nothing,))
    tensors = [known.get(tensor, tensor) for tensor in tensors]
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes), resources=resources)


def _initial_values(graphs: Sequence[Graph]) -> dict[str, NDArray[Any]]:
    """Return the initial values set by CALL_ONCE's graphs, which may assign only constants."""
    initial: dict[str, NDArray[Any]] = {}
    numbers = {
        node.options.get("init_subgraph_index", -1)
        for graph in graphs
        for node in graph.nodes
        if node.op == ONCE
    }
    for number in sorted(numbers):
        if not 0 <= number < len(graphs):
            raise _NotPersistent(f"CALL_ONCE calls graph {number}, which is not there")
        if other := [n.op for n in graphs[number].nodes if n.op not in (HANDLE, ASSIGN)]:
            raise _NotPersistent(f"the graph of CALL_ONCE has {other[0]}")
        for _, name, tensor in _touched(graphs[number]):
            values = tensor.data
            if values is None or tensor.is_sparse or values.dtype.name != tensor.dtype:
                raise _NotPersistent(f"the resource variable {name!r} has a computed initial value")
            if name in initial and initial[name].tobytes() != values.tobytes():
                raise _NotPersistent(
                    f"the resource variable {name!r} has two different initial values"
                )
            initial[name] = values
    return initial


def _touched(graph: Graph) -> Iterator[tuple[Node, str, Tensor]]:
    """Yield each node that reads or assigns a variable, its name, and the value's tensor.

    Raises: _NotPersistent: a handle is used otherwise.
    """
    names = _names(graph)
    for node in graph.nodes:
        handles = [tensor for tensor in node.inputs if tensor is not None and tensor in names]
        if node.op in (READ, ASSIGN):
            value = node.outputs[0] if node.op == READ else node.inputs[-1]
            if handles != [node.inputs[0]] or value is None:
                raise _NotPersistent(f"node {node.index} ({node.op}) has a handle of another graph")
            yield node, names[handles[0]], value
        elif handles:
            raise _NotPersistent(f"node {node.index} ({node.op}) takes a resource variable")
    if not names.keys().isdisjoint((*graph.inputs, *graph.outputs)):
        raise _NotPersistent("a resource variable is an input or output of a graph")


def _names(graph: Graph) -> dict[Tensor, str]:
    """Return the names of variables by their handle tensors."""
    return {
        node.outputs[0]: "/".join(
            filter(None, (str(node.options.get(n) or "") for n in ("container", "shared_name")))
        )
        for node in graph.nodes
        if node.op == HANDLE
    }


def _called(graph: Graph) -> Iterator[int]:
    for node in graph.nodes:
        if node.op != ONCE:
            yield from (value for key, value in node.options.items() if "subgraph" in key)

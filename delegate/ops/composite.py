# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_COMPOSITE: the launches of its decomposition's nodes, one after the other.

Converters give groups of nodes a name (odml.*) and keep them as a subgraph of their own. TFLite
runs that subgraph; what it computes on the way becomes temporaries here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from delegate.errors import Unsupported
from delegate.graph.edit import with_tensors
from delegate.graph.float_results import EXACT
from delegate.graph.ir import Graph, Node, Tensor
from delegate.launch import Alternative, Launch, is_temporary, temporary
from delegate.ops._checks.node import elements_of, shape_text
from delegate.ops._launches.copy import Box, Move, copied
from delegate.ops._registry import lower, lowers
from delegate.target import Target


@lowers("STABLEHLO_COMPOSITE", floats=EXACT)
def lower_composite(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Run the nodes of the decomposition, each in its first way; and each in its plain one.

    Raises:
        Unsupported: the file has no such subgraph, or one of its nodes does not lower; shapes or
            types differ from those that the subgraph has; an output is not its own result, where
            TFLite leaves zeros.
    Source: tflite/kernels/stablehlo_composite.cc
    """
    body = node.body
    if body is None:
        raise Unsupported("no decomposition: its subgraph is missing, calls itself or is too large")
    inputs = [each for each in node.inputs if each is not None]
    if (len(inputs), len(node.outputs)) != (len(body.inputs), len(body.outputs)):
        raise Unsupported("another number of inputs or outputs than its decomposition has")
    for outer, own in zip((*inputs, *node.outputs), (*body.inputs, *body.outputs), strict=True):
        if outer.dtype != own.dtype or outer.quantization != own.quantization:
            raise Unsupported(f"{outer.dtype}, {own.dtype} in its decomposition: they must be one")
        if outer.shape != own.shape:
            raise Unsupported(f"{shape_text(outer)}, {shape_text(own)} in its decomposition")
    computed = [tensor for each in body.nodes for tensor in each.outputs]
    if len({*body.outputs} & {*computed}) < len(body.outputs):
        raise Unsupported("an output of its decomposition is an input, a constant or there twice")
    ways = [(each, _lowered(each, target)) for each in _placed(body, inputs, node.outputs).nodes]
    fallback = Alternative("plain", _joined(ways, -1, target))
    if all(len(alternatives) == 1 for _, alternatives in ways):
        return (fallback,)
    return Alternative("first", _joined(ways, 0, target)), fallback


def _placed(body: Graph, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Graph:
    """Return the decomposition on the node's own tensors, and on temporaries."""
    changed: dict[Tensor, Tensor] = dict(zip(body.inputs, inputs, strict=True))
    changed |= dict(zip(body.outputs, outputs, strict=True))
    inner = [t for each in body.nodes for t in each.outputs if t.data is None and t not in changed]
    for number, tensor in enumerate(inner):
        made = temporary(f"inner {number}", tensor.shape, tensor.dtype)
        changed[tensor] = replace(made, quantization=tensor.quantization, ranges=tensor.ranges)
    return with_tensors(body, changed)


def _lowered(node: Node, target: Target) -> tuple[Alternative, ...]:
    if any(tensor is not None and tensor.is_variable for tensor in node.inputs):
        raise Unsupported(f"{node.op} in its decomposition: state in a variable tensor")
    if node.outputs and all(tensor.is_folded for tensor in node.outputs):
        return (Alternative("constant", ()),)
    try:
        return lower(node, target)
    except Unsupported as refusal:
        raise Unsupported(f"{node.op} in its decomposition: {refusal}") from None


def _joined(
    ways: Sequence[tuple[Node, tuple[Alternative, ...]]],
    place: int,
    target: Target,
) -> tuple[Launch, ...]:
    """Return the launches of the nodes' alternatives at a place; a view as an output is a copy."""
    launches: list[Launch] = []
    same: dict[Tensor, Tensor] = {}  # a temporary -> the tensor whose bytes it has
    for _, alternatives in ways:
        chosen = alternatives[place]
        if chosen.view is not None:
            source, result = chosen.view
            source = same.get(source, source)
            if is_temporary(result):
                same[result] = source
            else:
                launches += _copy(source, result, target)
        launches += [_with(launch, same) for launch in chosen.launches]
    return tuple(launches)


def _copy(source: Tensor, result: Tensor, target: Target) -> tuple[Launch, ...]:
    whole = Box((elements_of(result),), (1,), (1,))
    return copied((Move(source, result, whole),), target)[-1].launches


def _with(launch: Launch, same: Mapping[Tensor, Tensor]) -> Launch:
    """Return the launch on the tensors whose bytes views have."""
    if not any(tensor in same for tensor in (*launch.reads, *launch.writes)):
        return launch
    reads = tuple(dict.fromkeys(same.get(each, each) for each in launch.reads))
    params = {
        name: same.get(value, value) if isinstance(value, Tensor) else value
        for name, value in launch.params.items()
    }
    return replace(launch, params=params, reads=reads)

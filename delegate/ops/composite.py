# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_COMPOSITE: the launches of the nodes of its decomposition, in order.

Converters name groups of nodes (odml.*) and store each as a subgraph. TFLite runs that subgraph.
Here its intermediate tensors become temporaries.
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
from delegate.ops._launches.copy import Box, Move, by_copies
from delegate.ops._registry import lower, lowers
from delegate.target import Target


@lowers("STABLEHLO_COMPOSITE", floats=EXACT)
def lower_composite(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Run the decomposition's nodes, all by their first alternatives or all by their fallbacks.

    Raises:
        Unsupported: the subgraph is missing, or one of its nodes does not lower; shapes or types
            differ from the subgraph's; an output of the subgraph is an input, a constant or
            repeated, where TFLite leaves zeros.
    Source: tflite/kernels/stablehlo_composite.cc
    """
    body = node.body
    if body is None:
        raise Unsupported("no decomposition: its subgraph is missing, calls itself or is too large")
    inputs = [each for each in node.inputs if each is not None]
    if (len(inputs), len(node.outputs)) != (len(body.inputs), len(body.outputs)):
        raise Unsupported("another number of inputs or outputs than its decomposition has")
    for outer, inner in zip((*inputs, *node.outputs), (*body.inputs, *body.outputs), strict=True):
        if outer.dtype != inner.dtype or outer.quantization != inner.quantization:
            raise Unsupported(
                f"{outer.dtype}, {inner.dtype} in its decomposition: they must be equal"
            )
        if outer.shape != inner.shape:
            raise Unsupported(
                f"{shape_text(outer)}, {shape_text(inner)} in its decomposition: they must be equal"
            )
    computed = [tensor for each in body.nodes for tensor in each.outputs]
    if len({*body.outputs} & {*computed}) < len(body.outputs):
        raise Unsupported("an output of its decomposition is an input, a constant or repeated")
    lowered = [
        (each, _lowered(each, target)) for each in _substituted(body, inputs, node.outputs).nodes
    ]
    fallback = Alternative("plain", _concatenated(lowered, -1, target))
    if all(len(alternatives) == 1 for _, alternatives in lowered):
        return (fallback,)
    return Alternative("first", _concatenated(lowered, 0, target)), fallback


def _substituted(body: Graph, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Graph:
    """Return the decomposition with the node's own tensors, and temporaries for all others."""
    mapping: dict[Tensor, Tensor] = dict(zip(body.inputs, inputs, strict=True))
    mapping |= dict(zip(body.outputs, outputs, strict=True))
    inner = [t for each in body.nodes for t in each.outputs if t.data is None and t not in mapping]
    for number, tensor in enumerate(inner):
        fresh = temporary(f"inner {number}", tensor.shape, tensor.dtype)
        mapping[tensor] = replace(fresh, quantization=tensor.quantization, ranges=tensor.ranges)
    return with_tensors(body, mapping)


def _lowered(node: Node, target: Target) -> tuple[Alternative, ...]:
    if any(tensor is not None and tensor.is_variable for tensor in node.inputs):
        raise Unsupported(f"{node.op} in its decomposition: state in a variable tensor")
    if node.outputs and all(tensor.is_folded for tensor in node.outputs):
        return (Alternative("constant", ()),)
    try:
        return lower(node, target)
    except Unsupported as refusal:
        raise Unsupported(f"{node.op} in its decomposition: {refusal}") from None


def _concatenated(
    lowered: Sequence[tuple[Node, tuple[Alternative, ...]]],
    place: int,
    target: Target,
) -> tuple[Launch, ...]:
    """Return the launches of each node's alternative `place`; views as outputs become copies."""
    launches: list[Launch] = []
    aliases: dict[Tensor, Tensor] = {}  # temporary -> the tensor whose memory it shares
    for _, alternatives in lowered:
        chosen = alternatives[place]
        if chosen.view is not None:
            source, result = chosen.view
            source = aliases.get(source, source)
            if is_temporary(result):
                aliases[result] = source
            else:
                launches += _copy(source, result, target)
        launches += [_with_aliases(launch, aliases) for launch in chosen.launches]
    return tuple(launches)


def _copy(source: Tensor, result: Tensor, target: Target) -> tuple[Launch, ...]:
    whole = Box((elements_of(result),), (1,), (1,))
    return by_copies((Move(source, result, whole),), target)[-1].launches


def _with_aliases(launch: Launch, aliases: Mapping[Tensor, Tensor]) -> Launch:
    """Return the launch with views replaced by the tensors whose memory they share."""
    if not any(tensor in aliases for tensor in (*launch.reads, *launch.writes)):
        return launch
    reads = tuple(dict.fromkeys(aliases.get(each, each) for each in launch.reads))
    params = {
        name: aliases.get(value, value) if isinstance(value, Tensor) else value
        for name, value in launch.params.items()
    }
    return replace(launch, params=params, reads=reads)

# SPDX-License-Identifier: Apache-2.0
"""Nodes that compute one 8-bit tensor from another, and from constants, become one lookup table.

    x -MUL c-> -ADD d-> z                               becomes        x -pointwise-> z
    x -LOGISTIC-> s, (x, s) -MUL-> z                    becomes        x -pointwise-> z
    x -DEQUANTIZE-> -TANH-> -MUL c-> -QUANTIZE-> z      becomes        x -pointwise-> z

Each element of z is a function of one byte. Where constants differ by channel, each channel has a
table of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Graph, Node, Tensor
from delegate.plan.passes.matching import Match

_BYTES = ("uint8", "int8")
_TYPES = (*_BYTES, "float32")
_PAIRS = ("ADD", "MAXIMUM", "MINIMUM", "MUL", "SQUARED_DIFFERENCE", "SUB")
_OF_ONE = (
    "ABS", "CAST", "DEQUANTIZE", "ELU", "EXP", "GELU", "HARD_SWISH", "LEAKY_RELU", "LOG",
    "LOGISTIC", "NEG", "QUANTIZE", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "TANH",
)  # fmt: skip
# Ops that fail at run time on some 8-bit values, or have other arithmetic there.
_OF_FLOATS = ("CEIL", "DIV", "FLOOR", "ROUND", "RSQRT", "SIGN", "SQRT", "SQUARE")
_MOST_TABLES = 4096  # 1 MiB
_LEAST_READS = 16  # elements a table, so that reading the tables is not most of the work


def found_at(links: DefUse, node: Node) -> Match | None:
    """Return the most nodes before this one whose only input is an 8-bit tensor, and this one."""
    result = node.outputs[0] if node.outputs else None
    if result is None or result.dtype not in _BYTES or not _is_pointwise(node):
        return None
    region, found = [node], None
    sources = {*_computed(node)}
    while sources:
        last = max(sources, key=lambda tensor: _place(links, tensor))
        tables = _tables(result, region) if len(sources) == 1 else None
        if last.dtype in _BYTES and tables is not None and _is_worth(region):
            found = region[::-1], last, tables
        maker = links.producer(last)
        if maker is None or links.is_output(last) or not _is_pointwise(maker):
            break
        if not {*links.consumers(last)} <= {*region}:
            break
        region.append(maker)
        sources = (sources - {last}) | {*_computed(maker)}
    if found is None:
        return None
    nodes, source, count = found
    inner = tuple(each.outputs[0] for each in nodes[:-1])
    made = replace(
        node,
        op="pointwise",
        inputs=(source,),
        options={"tables": count},
        inner=inner,
        body=Graph((), tuple(nodes), (source,), node.outputs),
    )
    return nodes, made


def _place(links: DefUse, tensor: Tensor) -> int:
    maker = links.producer(tensor)
    return -1 if maker is None else links.places[maker]


def _computed(node: Node) -> Iterable[Tensor]:
    return (tensor for tensor in node.inputs if tensor is not None and tensor.data is None)


def _is_worth(region: list[Node]) -> bool:
    """Whether a table replaces more than one, or a node with a constant.

    A tensor and itself alone, as in x + x, are as fast without.
    """
    has_constant = any(t is not None and t.data is not None for node in region for t in node.inputs)
    return has_constant or (len(region) > 1 and any(len(node.inputs) == 1 for node in region))


def _is_pointwise(node: Node) -> bool:
    """Whether a node computes each element from the same element of its computed inputs."""
    types = {tensor.dtype for tensor in (*node.inputs, *node.outputs) if tensor is not None}
    ops = (*_PAIRS, *_OF_ONE, *(_OF_FLOATS if types == {"float32"} else ()))
    if node.op not in ops or not types <= {*_TYPES} or len(node.outputs) != 1:
        return False
    shape = node.outputs[0].shape
    return all(
        tensor is not None and (tensor.shape == shape if tensor.data is None else True)
        for tensor in node.inputs
    )


def _tables(result: Tensor, region: Iterable[Node]) -> int | None:
    """Return how many tables the constants of a region need: 1, or one a channel.

    None: constants vary along other dimensions, or there are too many tables.
    """
    constants = (tensor for node in region for tensor in node.inputs if tensor is not None)
    shapes = [tensor.shape for tensor in constants if tensor.data is not None]
    try:
        *outer, channels = (1, *np.broadcast_shapes(*shapes))
    except ValueError:
        return None
    elements = math.prod(result.shape)
    if any(size != 1 for size in outer) or channels not in (1, *result.shape[-1:]):
        return None
    is_few = channels <= _MOST_TABLES and channels * _LEAST_READS <= elements
    return channels if channels == 1 or is_few else None

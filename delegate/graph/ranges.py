# SPDX-License-Identifier: Apache-2.0
"""Range analysis of computed indices: Graph -> Graph with the ranges of its index tensors.

A lookup op fails in TFLite on an index out of range; one that is provably in range runs on any
device. Nodes and values are unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from delegate.graph.edit import with_tensors
from delegate.graph.integers import INDEX_TYPES, INTEGER_FOLDERS, Folder
from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.shapes import output_shapes

Values = NDArray[np.int64]
Ranges = tuple[Values, Values]  # minimum and maximum of each element, in the tensor's shape
Rule = Callable[[Node], Ranges | None]
Combine = Callable[[list[Ranges], Node], Ranges]  # of all inputs
MOST_ELEMENTS = 1 << 16  # of indices: never pictures


def with_ranges(graph: Graph) -> Graph:
    """Return the graph with the ranges of all indices that follow from constants and shapes."""
    new: dict[Tensor, Tensor] = {}
    made: dict[Tensor, Node] = {}  # by the new output
    changeable = graph.changeable
    for node in graph.nodes:
        if not changeable.isdisjoint(node.inputs):
            continue
        inputs = tuple(None if t is None else new.get(t, t) for t in node.inputs)
        current = node if inputs == node.inputs else replace(node, inputs=inputs)
        ranges = _ranges(current, made)
        if ranges is not None:
            result = replace(node.outputs[-1], ranges=ranges)
            new[node.outputs[-1]] = result
            made[result] = current
    return with_tensors(graph, new)


def ranges_of(tensor: Tensor | None) -> Ranges | None:
    """Return the ranges of an index tensor; for a constant, its values."""
    if tensor is None or tensor.dtype not in INDEX_TYPES or tensor.is_sparse:
        return None
    if tensor.data is not None:
        values = np.asarray(tensor.data).astype(np.int64)
        return (values, values) if (abs(values) < 2**31).all() else None
    return tensor.ranges


def _ranges(node: Node, made: Mapping[Tensor, Node]) -> Ranges | None:
    rule = RULES.get(node.op)
    if rule is None or len(node.outputs) != 1 + (node.op == "TOPK_V2") or node.is_custom:
        return None
    result = node.outputs[-1]
    if result.dtype not in INDEX_TYPES or result.data is not None:
        return None
    if not 0 < math.prod(result.shape) <= MOST_ELEMENTS:
        return None
    if node.options.get("fused_activation_function", "NONE") != "NONE":
        return None
    try:
        if node.op == "SUB" and (ranges := _remainder(node, made)) is not None:
            return ranges
        ranges = rule(node)
        if ranges is None:
            return None
        low, high = (np.asarray(each, np.int64) for each in ranges)
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):
        return None  # a malformed node: TFLite reports it
    # A value beyond 32 bits has wrapped around: unknown.
    held = np.iinfo(np.int32)
    if low.shape != result.shape or high.shape != result.shape:
        return None
    return (low, high) if held.min <= low.min() and high.max() <= held.max else None


def _ranges_or_any(tensor: Tensor | None) -> Ranges | None:
    """Return the ranges of an index tensor, or those of an unknown index."""
    known = ranges_of(tensor)
    if known is not None or tensor is None or tensor.dtype != "int32":
        return known
    held = np.iinfo(np.int32)
    return np.full(tensor.shape, held.min, np.int64), np.full(tensor.shape, held.max, np.int64)


def _place(node: Node) -> Ranges | None:
    """Return the ranges of the index of an extreme along an axis."""
    source, axis = node.inputs
    if source is None or axis is None or axis.data is None:
        return None
    return _below(source.shape[int(np.ravel(axis.data)[0])], node.outputs[0].shape)


def _place_in_last(node: Node) -> Ranges | None:
    """Return the ranges of indices along the last dimension."""
    source = node.inputs[0]
    return None if source is None else _below(source.shape[-1], node.outputs[-1].shape)


def _below(count: int, shape: tuple[int, ...]) -> Ranges:
    return np.zeros(shape, np.int64), np.full(shape, count - 1, np.int64)


def _remainder(node: Node, made: Mapping[Tensor, Node]) -> Ranges | None:
    """Return the ranges of x - (x // n) * n, as converters write a remainder."""
    x, product = node.inputs
    multiply = None if product is None else made.get(product)
    if x is None or x.ranges is None or multiply is None or multiply.op != "MUL":
        return None
    quotient, times = multiply.inputs
    divide = None if quotient is None else made.get(quotient)
    if divide is None or divide.op != "FLOOR_DIV" or divide.inputs[0] is not x:
        return None
    divisors = [ranges_of(tensor) for tensor in (times, divide.inputs[1])]
    if None in divisors or times is None or times.data is None:
        return None
    numbers = {int(n) for each in divisors if each is not None for row in each for n in row.flat}
    shape = node.outputs[0].shape
    if len(numbers) != 1 or min(numbers) < 1 or x.shape != shape:
        return None
    return _below(min(numbers), shape)


def _reshaped(node: Node) -> Ranges | None:
    """Return the ranges of the first input, in the output's shape."""
    known = ranges_of(node.inputs[0])
    shape = node.outputs[0].shape
    return known and (known[0].reshape(shape), known[1].reshape(shape))


def _of_all(combine: Combine, ranges: Callable[[Tensor | None], Ranges | None] = ranges_of) -> Rule:
    """Return the rule of an op on several indices; `ranges`: of an input."""

    def rule(node: Node) -> Ranges | None:
        # A malformed input shape can be of any size, and so can the combination of two small ones.
        if output_shapes(node) != (node.outputs[0].shape,):
            return None
        known = [each for tensor in node.inputs if (each := ranges(tensor)) is not None]
        return combine(known, node) if len(known) == len(node.inputs) else None

    return rule


def _both(folder: Folder) -> Combine:
    """Combine the ranges of an op that is monotonic in each input, or only moves values."""

    def ranges(inputs: list[Ranges], node: Node) -> Ranges:
        return folder([low for low, _ in inputs], node), folder([high for _, high in inputs], node)

    return ranges


def _sub(inputs: list[Ranges], node: Node) -> Ranges:
    (low, high), (least, greatest) = inputs
    return low - greatest, high - least


def _mul(inputs: list[Ranges], node: Node) -> Ranges:
    (low, high), (least, greatest) = inputs
    products = np.stack(
        np.broadcast_arrays(low * least, low * greatest, high * least, high * greatest)
    )
    return products.min(0), products.max(0)


def _floor_div(inputs: list[Ranges], node: Node) -> Ranges:
    (low, high), (least, greatest) = inputs
    if least.min() < 1 or (least != greatest).any():
        raise ArithmeticError
    return low // least, high // least


def _floor_mod(inputs: list[Ranges], node: Node) -> Ranges:
    _, (least, greatest) = inputs
    if least.min() < 1:
        raise ArithmeticError
    shape = node.outputs[0].shape
    return np.zeros(shape, np.int64), np.broadcast_to(greatest - 1, shape)


# Ops that give the elements of their first input, in order.
SAME_ELEMENTS = ("CAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE")
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(SAME_ELEMENTS, _reshaped),
    **{op: _of_all(_both(INTEGER_FOLDERS[op])) for op in ("ADD", "CONCATENATION", "PACK")},
    # The other input bounds the result where one is unknown.
    **{op: _of_all(_both(INTEGER_FOLDERS[op]), _ranges_or_any) for op in ("MAXIMUM", "MINIMUM")},
    "SUB": _of_all(_sub),
    "MUL": _of_all(_mul),
    "FLOOR_DIV": _of_all(_floor_div),
    "FLOOR_MOD": _of_all(_floor_mod),
    "ARG_MAX": _place,
    "ARG_MIN": _place,
    "TOPK_V2": _place_in_last,
}

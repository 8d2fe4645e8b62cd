# SPDX-License-Identifier: Apache-2.0
"""Helpers for shape rules: registration, and access to a node's shapes and constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from delegate.graph.ir import Node

Shape = tuple[int, ...]
# Returns the outputs' shapes. Raises ValueError, or whatever a missing option or input raises, if
# they are unknown.
Rule = Callable[[Node], Iterable[Sequence[int]]]
OneShape = Callable[[Node], Sequence[int]]
RULES: dict[str, Rule] = {}  # by op
CUSTOM_RULES: dict[str, Rule] = {}  # of custom ops


def outputs(ops: str, is_custom: bool = False) -> Callable[[Rule], Rule]:
    """Register a function as the rule of these ops, separated by spaces."""

    def register(rule: Rule) -> Rule:
        rules = CUSTOM_RULES if is_custom else RULES
        rules.update(dict.fromkeys(ops.split(), rule))
        return rule

    return register


def output(ops: str) -> Callable[[OneShape], OneShape]:
    """Register a function as the rule of these ops with one output."""

    def register(rule: OneShape) -> OneShape:
        outputs(ops)(lambda node: [rule(node)])
        return rule

    return register


def shape(node: Node, position: int = 0) -> Shape:
    """Return the shape of an input.

    Raises:
        ValueError: the input is omitted.
    """
    tensor = node.inputs[position]
    if tensor is None:
        raise ValueError("an input is left out")
    return tensor.shape


def integers(node: Node, position: int) -> list[int]:
    """Return the values of an input of sizes, axes or positions, flattened.

    Raises:
        ValueError: they are computed, or not integers.
    """
    tensor = node.inputs[position]
    if tensor is None or tensor.data is None or tensor.dtype not in ("int32", "int64"):
        raise ValueError("no constant integers")
    return [int(value) for value in np.ravel(tensor.data)]


def integer(node: Node, position: int) -> int:
    """Return the value of a scalar integer input.

    Raises:
        ValueError: it is computed, or there are several.
    """
    (value,) = integers(node, position)
    return value


def axis_of(axis: int, rank: int) -> int:
    """Return a non-negative axis; negative ones count from the end.

    Raises:
        ValueError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError("no such axis")
    return axis % rank


def pairs(node: Node, position: int) -> list[tuple[int, int]]:
    """Return the values of an input of pairs: padding before and after each dimension."""
    values = integers(node, position)
    return list(zip(values[::2], values[1::2], strict=True))


def replaced(sizes: Shape, axis: int, *new: int) -> Shape:
    """Return a shape with one dimension replaced by others, or removed."""
    return (*sizes[:axis], *new, *sizes[axis + 1 :])


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape that all of these broadcast to.

    Raises:
        ValueError: two sizes differ, and neither is 1.
    """
    rank = max(map(len, shapes))
    rows = [(1,) * (rank - len(each)) + each for each in shapes]
    result = []
    for sizes in zip(*rows, strict=True):
        (size,) = set(sizes) - {1} or {1}
        result.append(size)
    return tuple(result)

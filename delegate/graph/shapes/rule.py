# SPDX-License-Identifier: Apache-2.0
"""What the rules of all ops are made of: a node's shapes and its constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from delegate.graph.ir import Node

Shape = tuple[int, ...]
# Returns the outputs' shapes. Raises ValueError or what a missing option or input raises: the
# shapes are not known.
Rule = Callable[[Node], Iterable[Sequence[int]]]
OneShape = Callable[[Node], Sequence[int]]
RULES: dict[str, Rule] = {}  # by op
CUSTOM_RULES: dict[str, Rule] = {}  # of custom ops


def outputs(ops: str, is_custom: bool = False) -> Callable[[Rule], Rule]:
    """Make a function the rule of these ops, which spaces part."""

    def register(rule: Rule) -> Rule:
        rules = CUSTOM_RULES if is_custom else RULES
        rules.update(dict.fromkeys(ops.split(), rule))
        return rule

    return register


def output(ops: str) -> Callable[[OneShape], OneShape]:
    """Make a function the rule of these ops, which have one output."""

    def register(rule: OneShape) -> OneShape:
        outputs(ops)(lambda node: [rule(node)])
        return rule

    return register


def shape(node: Node, position: int = 0) -> Shape:
    """Return the shape of an input.

    Raises:
        ValueError: the input is left out.
    """
    tensor = node.inputs[position]
    if tensor is None:
        raise ValueError("an input is left out")
    return tensor.shape


def integers(node: Node, position: int) -> list[int]:
    """Return the values of an input of sizes, axes or places, one after the other.

    Raises:
        ValueError: they are computed, or no integers.
    """
    tensor = node.inputs[position]
    if tensor is None or tensor.data is None or tensor.dtype not in ("int32", "int64"):
        raise ValueError("no constant integers")
    return [int(value) for value in np.ravel(tensor.data)]


def integer(node: Node, position: int) -> int:
    """Return the value of an input of one integer.

    Raises:
        ValueError: it is computed, or there are several.
    """
    (value,) = integers(node, position)
    return value


def axis_of(axis: int, rank: int) -> int:
    """Return an axis that may count from the end.

    Raises:
        ValueError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError("no such axis")
    return axis % rank


def pairs(node: Node, position: int) -> list[tuple[int, int]]:
    """Return the values of an input of pairs: what comes before and behind each dimension."""
    values = integers(node, position)
    return list(zip(values[::2], values[1::2], strict=True))


def replaced(sizes: Shape, axis: int, *new: int) -> Shape:
    """Return a shape with other sizes, or none, in the place of one dimension's."""
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

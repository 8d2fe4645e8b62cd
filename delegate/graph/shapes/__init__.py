# SPDX-License-Identifier: Apache-2.0
"""The shapes that TFLite gives the outputs of a node, by op: what its Prepare functions compute.

Older converters record no shape for what lies between the operators, and a resized input makes the
recorded ones wrong. TFLite itself infers them, but only after it asked which nodes are taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from delegate.graph.ir import Node
from delegate.graph.shapes import element_wise, joins, orders, reductions, slices, windows
from delegate.graph.shapes.rule import Rule, Shape

RULES: Mapping[str, Rule] = {
    **element_wise.RULES,
    **joins.RULES,
    **orders.RULES,
    **reductions.RULES,
    **slices.RULES,
    **windows.RULES,
}


def output_shapes(node: Node) -> tuple[Shape, ...] | None:
    """Return the shape of each output, from the inputs' shapes and the constants among them.

    None: there is no rule for the op, a value that decides is not known, or TFLite refuses the
    node.
    """
    rule = None if node.is_custom else RULES.get(node.op)
    if rule is None or not node.inputs:
        return None
    try:
        shapes = tuple(tuple(int(size) for size in shape) for shape in rule(node))
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):
        return None
    is_whole = len(shapes) == len(node.outputs)
    return shapes if is_whole and all(_is_possible(shape) for shape in shapes) else None


def _is_possible(shape: Shape) -> bool:
    return all(0 <= size < 2**31 for size in shape)

# SPDX-License-Identifier: Apache-2.0
"""Shape rules by op: the output shapes that TFLite's Prepare functions compute.

Older converters record no shapes of intermediate tensors, and a resized input invalidates the
recorded ones. TFLite infers them itself, but only after it has asked which nodes are taken.
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.ir import Node
from delegate.graph.persistent import written_variables
from delegate.graph.shapes import axes, detections, recurrent, slices, windows
from delegate.graph.shapes.rule import CUSTOM_RULES, RULES, Shape

__all__ = [
    "CUSTOM_RULES",
    "RULES",
    "axes",
    "detections",
    "output_shapes",
    "recurrent",
    "slices",
    "windows",
]


def output_shapes(node: Node) -> tuple[Shape, ...] | None:
    """Return the shape of each output, from the inputs' shapes and constants.

    None: there is no rule for the op, a required value is unknown, or TFLite rejects the
    node.
    """
    rule = (CUSTOM_RULES if node.is_custom else RULES).get(node.op)
    if rule is None or not node.inputs:
        return None
    # of variables: the last outputs
    versions = [tensor.shape for tensor in written_variables(node)]
    if versions:
        node = replace(node, outputs=node.outputs[: -len(versions)])
    try:
        shapes = tuple(tuple(int(size) for size in shape) for shape in rule(node))
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):
        return None
    is_possible = all(0 <= size < 2**31 for shape in shapes for size in shape)
    if len(shapes) != len(node.outputs) or not is_possible:
        return None
    return (*shapes, *versions)

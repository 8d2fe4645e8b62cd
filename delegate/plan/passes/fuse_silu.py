# SPDX-License-Identifier: Apache-2.0
"""8-bit x * LOGISTIC(x) becomes one lookup table.

    x -LOGISTIC-> s, (x, s) -MUL-> z        becomes        x -silu-> z

Converters write SiLU so, which follows each convolution of a YOLO. The scale of s is recorded in
the node's intermediates, as rounding depends on it.
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node
from delegate.plan.passes.matching import Match

_TYPES = ("int8", "uint8")


def found_at(links: DefUse, node: Node) -> Match | None:
    """Return a LOGISTIC and this MUL, its only reader."""
    if node.op != "LOGISTIC" or node.outputs[0].dtype not in _TYPES:
        return None
    source, share = node.inputs[0], node.outputs[0]
    product = links.sole_consumer(share, "MUL")
    if product is None or sorted(map(id, product.inputs)) != sorted((id(source), id(share))):
        return None
    return (node, product), replace(product, op="silu", inputs=(source,), intermediates=(share,))

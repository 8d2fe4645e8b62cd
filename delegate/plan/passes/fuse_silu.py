# SPDX-License-Identifier: Apache-2.0
"""A tensor of 8 bits times its own LOGISTIC becomes one table.

    x -LOGISTIC-> s, (x, s) -MUL-> z        becomes        x -silu-> z

That is how converters write SILU, which ends each convolution of a YOLO. The scale of s is kept
among the node's intermediates, because both rounded by it.
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node
from delegate.plan.passes.matching import Match

_TYPES = ("int8", "uint8")


def found_at(links: DefUse, node: Node) -> Match | None:
    """Return a LOGISTIC and the MUL that alone reads it."""
    if node.op != "LOGISTIC" or node.outputs[0].dtype not in _TYPES:
        return None
    source, share = node.inputs[0], node.outputs[0]
    product = links.sole_consumer(share, "MUL")
    if product is None or sorted(map(id, product.inputs)) != sorted((id(source), id(share))):
        return None
    return (node, product), replace(product, op="silu", inputs=(source,), intermediates=(share,))

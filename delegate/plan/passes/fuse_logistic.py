# SPDX-License-Identifier: Apache-2.0
"""x * LOGISTIC(g) becomes one kernel, in float: SiLU if g is x, else GLU.

g -LOGISTIC-> s, (x, s) -MUL-> y        becomes        (g, x) -logistic_mul-> y
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node
from delegate.plan.passes.matching import Match, first_made, is_plain, other_than


def found_at(links: DefUse, node: Node) -> Match | None:
    """Return a LOGISTIC and this MUL, its only reader."""
    if node.op != "MUL" or node.outputs[0].dtype != "float32" or not is_plain(node):
        return None
    logistic = first_made(links, node, "LOGISTIC")
    if logistic is None:
        return None
    share = logistic.outputs[0]
    inputs, inner = (logistic.inputs[0], other_than(node, share)), (share,)
    made = replace(node, op="logistic_mul", inputs=inputs, options={}, inner=inner)
    return (logistic, node), made

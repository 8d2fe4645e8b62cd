# SPDX-License-Identifier: Apache-2.0
"""Gated SiLU: a gate times its logistic function, times the other input, becomes one kernel.

g -LOGISTIC-> s, (g, s) -MUL-> t, (t, x) -MUL-> y        becomes        (g, x) -silu_mul-> y
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node
from delegate.plan.passes.matching import Match, first_made, is_plain


def found_at(links: DefUse, node: Node) -> Match | None:
    """Return the LOGISTIC, the first MUL, and this second MUL."""
    if node.op != "MUL" or not is_plain(node):
        return None
    for tensor in node.inputs:
        silu = links.sole_producer(tensor, "MUL")
        if silu is None or not is_plain(silu):
            continue
        logistic = first_made(links, silu, "LOGISTIC")
        if logistic is not None and logistic.inputs[0] in silu.inputs:
            source = next(t for t in node.inputs if t is not tensor)
            inner = (logistic.outputs[0], silu.outputs[0])
            inputs = (logistic.inputs[0], source)
            made = replace(node, op="silu_mul", inputs=inputs, options={}, inner=inner)
            return (logistic, silu, node), made
    return None

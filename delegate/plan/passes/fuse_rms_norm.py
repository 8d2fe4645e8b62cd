# SPDX-License-Identifier: Apache-2.0
"""RMS normalisation becomes one kernel.

(x, x) -MUL-> -MEAN of rows-> -ADD epsilon-> -RSQRT-> r, (x, r) -MUL-> (_, scale) -MUL-> y
    becomes        (x, scale) -rms_norm-> y
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node
from delegate.plan.passes.matching import Match, first_made, is_of_rows, is_plain, number_of


def _norm_of(chain: list[Node]) -> Node:
    square, _, add, _, times, last = chain
    scale = next(t for t in last.inputs if t is not times.outputs[0])
    return replace(
        last,
        op="rms_norm",
        inputs=(square.inputs[0], scale),
        options={"epsilon": number_of(add)},
        inner=tuple(each.outputs[0] for each in chain[:-1]),
    )


def found_at(links: DefUse, node: Node) -> Match | None:
    """Return the six nodes that end with this MUL."""
    if node.op != "MUL" or not is_plain(node):
        return None
    for between in node.inputs:
        times = links.sole_producer(between, "MUL")
        if times is None or not is_plain(times):
            continue
        for root in times.inputs:
            rsqrt = links.sole_producer(root, "RSQRT")
            add = None if rsqrt is None else links.sole_producer(rsqrt.inputs[0], "ADD")
            if rsqrt is None or add is None or number_of(add) is None:
                continue
            mean = first_made(links, add, "MEAN")
            square = None if mean is None else links.sole_producer(mean.inputs[0], "MUL")
            if mean is None or square is None or not (is_plain(square) and is_of_rows(mean)):
                continue
            source = next((t for t in times.inputs if t is not root), None)
            if square.inputs == (source, source):
                chain = [square, mean, add, rsqrt, times, node]
                return chain, _norm_of(chain)
    return None

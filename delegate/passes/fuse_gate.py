# SPDX-License-Identifier: Apache-2.0
"""A gate times its logistic function, times what it lets through, becomes one kernel.

g -LOGISTIC-> s, (g, s) -MUL-> t, (t, x) -MUL-> y        becomes        (g, x) -silu_mul-> y
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from delegate.graph.ir import Node
from delegate.graph.links import Links
from delegate.graph.partition import Partition
from delegate.passes.matching import first_made, is_plain


def rewrite(partition: Partition, accepts: Callable[[Node], bool]) -> Partition:
    """Return the partition with each such chain as one node."""
    links = Links(partition)
    new: dict[Node, Node | None] = {}
    for node in partition.nodes:
        chain = _chain_to(links, node)
        if chain is None:
            continue
        logistic, silu = chain
        source = next(t for t in node.inputs if t is not silu.outputs[0])
        fused = replace(
            node,
            op="silu_mul",
            inputs=(logistic.inputs[0], source),
            options={},
            inner=(logistic.outputs[0], silu.outputs[0]),
        )
        if accepts(fused):
            new |= {logistic: None, silu: None, node: fused}
    return partition.with_nodes(new)


def _chain_to(links: Links, node: Node) -> tuple[Node, Node] | None:
    """Return the LOGISTIC and the MUL before this MUL."""
    if node.op != "MUL" or not is_plain(node):
        return None
    for tensor in node.inputs:
        silu = links.made_for_one(tensor, "MUL")
        if silu is None or not is_plain(silu):
            continue
        logistic = first_made(links, silu, "LOGISTIC")
        if logistic is not None and logistic.inputs[0] in silu.inputs:
            return logistic, silu
    return None

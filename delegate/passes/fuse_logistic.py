# SPDX-License-Identifier: Apache-2.0
"""Floats times the LOGISTIC of floats become one kernel: SILU, where both are one, and GLU.

g -LOGISTIC-> s, (x, s) -MUL-> y        becomes        (g, x) -logistic_mul-> y
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from delegate.graph.ir import Node
from delegate.graph.links import Links
from delegate.graph.partition import Partition
from delegate.passes.matching import first_made, is_plain, other_than


def rewrite(partition: Partition, accepts: Callable[[Node], bool]) -> Partition:
    """Return the partition with each such pair as one node."""
    links = Links(partition)
    new: dict[Node, Node | None] = {}
    for node in partition.nodes:
        if node.op != "MUL" or node.outputs[0].dtype != "float32" or not is_plain(node):
            continue
        logistic = first_made(links, node, "LOGISTIC")
        if logistic is None or logistic in new:
            continue
        share = logistic.outputs[0]
        fused = replace(
            node,
            op="logistic_mul",
            inputs=(logistic.inputs[0], other_than(node, share)),
            options={},
            inner=(share,),
        )
        if accepts(fused):
            new |= {logistic: None, node: fused}
    return partition.with_nodes(new)

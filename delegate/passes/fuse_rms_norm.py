# SPDX-License-Identifier: Apache-2.0
"""The root mean square norm of rows becomes one kernel.

(x, x) -MUL-> -MEAN of rows-> -ADD epsilon-> -RSQRT-> r, (x, r) -MUL-> (_, scale) -MUL-> y
    becomes        (x, scale) -rms_norm-> y
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from delegate.graph.ir import Node, Tensor
from delegate.graph.links import Links
from delegate.graph.partition import Partition
from delegate.passes.matching import first_made, is_of_rows, is_plain, number_of


def rewrite(partition: Partition, accepts: Callable[[Node], bool]) -> Partition:
    """Return the partition with each such chain as one node."""
    links = Links(partition)
    new: dict[Node, Node | None] = {}
    for node in partition.nodes:
        chain = _chain_to(links, node)
        if chain is None:
            continue
        source, scale, epsilon = _parts(chain)
        fused = replace(
            node,
            op="rms_norm",
            inputs=(source, scale),
            options={"epsilon": epsilon},
            inner=tuple(each.outputs[0] for each in chain[:-1]),
        )
        if accepts(fused):
            new |= {**dict.fromkeys(chain), node: fused}
    return partition.with_nodes(new)


def _parts(chain: list[Node]) -> tuple[Tensor | None, Tensor | None, float]:
    square, _, add, _, times, last = chain
    scale = next(t for t in last.inputs if t is not times.outputs[0])
    epsilon = number_of(add)
    assert epsilon is not None
    return square.inputs[0], scale, epsilon


def _chain_to(links: Links, node: Node) -> list[Node] | None:
    """Return the six nodes that end with this MUL."""
    if node.op != "MUL" or not is_plain(node):
        return None
    for between in node.inputs:
        times = links.made_for_one(between, "MUL")
        if times is None or not is_plain(times):
            continue
        for root in times.inputs:
            rsqrt = links.made_for_one(root, "RSQRT")
            add = None if rsqrt is None else links.made_for_one(rsqrt.inputs[0], "ADD")
            if rsqrt is None or add is None or number_of(add) is None:
                continue
            mean = first_made(links, add, "MEAN")
            square = None if mean is None else links.made_for_one(mean.inputs[0], "MUL")
            if mean is None or square is None or not (is_plain(square) and is_of_rows(mean)):
                continue
            source = next((t for t in times.inputs if t is not root), None)
            if square.inputs == (source, source):
                return [square, mean, add, rsqrt, times, node]
    return None

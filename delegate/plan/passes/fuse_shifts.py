# SPDX-License-Identifier: Apache-2.0
"""Blockwise int4 FULLY_CONNECTED and a second one that adds the block minima become one kernel.

    x -FULLY_CONNECTED-> a, s -FULLY_CONNECTED-> b, (a, b) -ADD-> y
        becomes        (x, s) -fully_connected_shifted-> y

This is how weights with a minimum per block are written; s holds the sums of a row's blocks.
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node
from delegate.plan.passes.matching import Match, is_plain


def found_at(links: DefUse, node: Node) -> Match | None:
    """Return the two products that this ADD adds, and the ADD."""
    if node.op != "ADD" or len(node.inputs) != 2 or not is_plain(node):
        return None
    products = [links.sole_producer(tensor, "FULLY_CONNECTED") for tensor in node.inputs]
    for blocks, shifted in (products, products[::-1]):
        if blocks is not None and shifted is not None and _are_pair(blocks, shifted):
            made = replace(
                node,
                op="fully_connected_shifted",
                inputs=(*(*blocks.inputs, None)[:3], *shifted.inputs[:2]),
                options=blocks.options,
                inner=(blocks.outputs[0], shifted.outputs[0]),
            )
            return (blocks, shifted, node), made
    return None


def _are_pair(blocks: Node, shifted: Node) -> bool:
    """Whether one has blockwise weights, the other one column per block, and both nothing else."""
    weights, shifts = blocks.inputs[1], shifted.inputs[1]
    if weights is None or weights.blocks is None or shifts is None or shifts.data is None:
        return False
    return (
        shifts.shape == weights.blocks.scales.shape
        and all(each is None for each in shifted.inputs[2:])
        and is_plain(shifted)
        and shifted.outputs[0].shape == blocks.outputs[0].shape
    )

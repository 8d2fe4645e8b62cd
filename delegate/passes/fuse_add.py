# SPDX-License-Identifier: Apache-2.0
"""CONV_2D -> ADD becomes one kernel that adds before it stores.

    x -CONV_2D-> y, (y, z) -ADD-> s        becomes        (x, z) -conv_2d_add-> s

That is how a residual block ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from delegate.graph.ir import Node, Tensor
from delegate.graph.partition import Partition


def rewrite(partition: Partition, accepts: Callable[[Node], bool]) -> Partition:
    """Return the partition without the ADDs that can join the convolution before them."""
    place = {t: number for number, node in enumerate(partition.nodes) for t in node.outputs}
    readers = [t for node in partition.nodes for t in node.inputs]
    gone: set[Node] = set()
    nodes = []
    for node in partition.nodes:
        # The places of the convolutions whose result only this ADD reads.
        places = [
            place[tensor]
            for tensor in node.inputs
            if node.op == "ADD"
            and tensor in place
            and partition.nodes[place[tensor]].op == "CONV_2D"
            and readers.count(tensor) == 1
            and tensor not in partition.outputs
        ]
        if places and len(node.inputs) == 2:
            # The later one: the other one's result exists by then.
            last = partition.nodes[max(places)]
            fused = _joined(last, node)
            if accepts(fused):
                gone.add(last)
                node = fused
        nodes.append(node)
    if not gone:
        return partition
    return replace(partition, nodes=tuple(node for node in nodes if node not in gone))


def _joined(convolution: Node, add: Node) -> Node:
    between = convolution.outputs[0]
    (other,) = (tensor for tensor in add.inputs if tensor is not between)
    own: tuple[Tensor | None, ...] = (*convolution.inputs, None)[:3]
    return replace(
        add,
        op="conv_2d_add",
        inputs=(*own, other),
        inner=(between,),
        options={
            **convolution.options,
            "sum_activation_function": add.options.get("fused_activation_function", "NONE"),
        },
    )

# SPDX-License-Identifier: Apache-2.0
"""CONV_2D -> ADD becomes one kernel that adds before it stores.

    x -CONV_2D-> y, (y, z) -ADD-> s        becomes        (x, z) -conv_2d_add-> s

That is how a residual block ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from delegate.graph.ir import Node, Tensor
from delegate.graph.links import Links
from delegate.graph.partition import Partition


def rewrite(partition: Partition, accepts: Callable[[Node], bool]) -> Partition:
    """Return the partition without the ADDs that can join the convolution before them."""
    links = Links(partition)
    places = {node: place for place, node in enumerate(partition.nodes)}
    new: dict[Node, Node | None] = {}
    for node in partition.nodes:
        if node.op != "ADD" or len(node.inputs) != 2:
            continue
        alone = (t for t in node.inputs if links.only_reader(t) is node)
        before = [each for t in alone if (each := links.maker(t, "CONV_2D")) is not None]
        if before:
            # The later one: the other one's result exists by then.
            last = max(before, key=places.__getitem__)
            fused = _joined(last, node)
            if accepts(fused):
                new |= {last: None, node: fused}
    return partition.with_nodes(new)


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

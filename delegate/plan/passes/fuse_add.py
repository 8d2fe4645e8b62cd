# SPDX-License-Identifier: Apache-2.0
"""CONV_2D -> ADD becomes one kernel that adds before it stores: the end of a residual block.

x -CONV_2D-> y, (y, z) -ADD-> s        becomes        (x, z) -conv_2d_add-> s
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node, Tensor
from delegate.plan.passes.matching import Match


def found_at(links: DefUse, node: Node) -> Match | None:
    """Return an ADD and the convolution before it, if they can be fused."""
    if node.op != "ADD" or len(node.inputs) != 2:
        return None
    before = [each for t in node.inputs if (each := links.sole_producer(t, "CONV_2D")) is not None]
    # The later one: the result of the other exists by then.
    last = max(before, key=links.places.__getitem__, default=None)
    return None if last is None else ((last, node), _joined(last, node))


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

# SPDX-License-Identifier: Apache-2.0
"""Channel shuffle: concatenation, shuffle and split of channels become one kernel.

    (x, y) -CONCATENATION-> -RESHAPE-> (..., 2, c) -TRANSPOSE-> (..., c, 2) -RESHAPE-> z
    z -SPLIT-> (a, b)        becomes        (x, y) -channel_shuffle-> (a, b)

This joins two units of ShuffleNet V2. The SPLIT is optional; without it there is one output.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node
from delegate.plan.passes.matching import Match


def found_at(links: DefUse, node: Node) -> Match | None:
    """Return the chain around this TRANSPOSE, from the CONCATENATION on."""
    if node.op != "TRANSPOSE" or not _turns_pairs(node):
        return None
    before = _only_maker(links, node, "RESHAPE")
    join = None if before is None else _only_maker(links, before, "CONCATENATION")
    after = links.sole_consumer(node.outputs[0], "RESHAPE")
    if before is None or after is None or join is None or not _joins(join, node, after):
        return None
    split = links.sole_consumer(after.outputs[0], "SPLIT")
    chain: tuple[Node, ...] = (join, before, node, after)
    if split is not None and _halves(split):
        chain = (*chain, split)
    return chain, replace(chain[-1], op="channel_shuffle", inputs=join.inputs, options={})


def _only_maker(links: DefUse, node: Node, op: str) -> Node | None:
    """Return the producer of a node's first input, if of this op and without other readers."""
    source = node.inputs[0]
    return links.producer(source, op) if links.sole_consumer(source) is node else None


def _turns_pairs(transpose: Node) -> bool:
    """Whether a TRANSPOSE turns (..., 2, c) into (..., c, 2)."""
    source, order = transpose.inputs
    if source is None or order is None or order.data is None or len(source.shape) < 2:
        return False
    rank = len(source.shape)
    wanted = [*range(rank - 2), rank - 1, rank - 2]
    return source.shape[-2] == 2 and np.asarray(order.data).ravel().tolist() == wanted


def _joins(join: Node, transpose: Node, after: Node) -> bool:
    """Whether a CONCATENATION joins the two tensors whose channels are shuffled, without rescaling.

    With uint8 inputs of other scales it requantises, which the fused kernel does not.
    """
    result, channels = join.outputs[0], transpose.outputs[0].shape[-2]
    rank = len(result.shape)
    return (
        len(join.inputs) == 2
        and join.options.get("axis") in (rank - 1, -1)
        and join.options.get("fused_activation_function", "NONE") == "NONE"
        and all(
            each is not None
            and each.shape[-1] == channels
            and each.quantization == result.quantization
            for each in join.inputs
        )
        and after.outputs[0].shape == result.shape
    )


def _halves(split: Node) -> bool:
    """Whether a SPLIT cuts the channels in two."""
    axis, source = split.inputs
    if axis is None or axis.data is None or source is None:
        return False
    return len(split.outputs) == 2 and int(axis.data) in (len(source.shape) - 1, -1)

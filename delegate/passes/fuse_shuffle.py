# SPDX-License-Identifier: Apache-2.0
"""A join of two tensors whose channels are shuffled, and cut again, becomes one kernel.

    (x, y) -CONCATENATION-> -RESHAPE-> (..., 2, c) -TRANSPOSE-> (..., c, 2) -RESHAPE-> z
    z -SPLIT-> (a, b)        becomes        (x, y) -channel_shuffle-> (a, b)

That is how a unit of ShuffleNet V2 ends and the next one begins. Without the SPLIT there is one
output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from delegate.graph.ir import Node, Tensor
from delegate.graph.partition import Partition


def rewrite(partition: Partition, accepts: Callable[[Node], bool]) -> Partition:
    """Return the partition with each such chain as one node."""
    chains = _Chains(partition)
    gone: dict[Node, Node | None] = {}  # a chain's nodes -> what takes the place of its last
    for node in partition.nodes:
        chain = chains.around(node)
        if chain is None:
            continue
        fused = replace(
            chain[-1],
            op="channel_shuffle",
            inputs=chain[0].inputs,
            outputs=chain[-1].outputs,
            options={},
        )
        if accepts(fused):
            gone |= {**dict.fromkeys(chain), chain[-1]: fused}
    if not gone:
        return partition
    kept = (gone.get(node, node) for node in partition.nodes)
    return replace(partition, nodes=tuple(node for node in kept if node is not None))


class _Chains:
    """The nodes of a partition by what they read and make."""

    def __init__(self, partition: Partition) -> None:
        self._outputs = frozenset(partition.outputs)
        self._makers = {tensor: node for node in partition.nodes for tensor in node.outputs}
        self._readers: dict[Tensor | None, list[Node]] = {}
        for node in partition.nodes:
            for tensor in node.inputs:
                self._readers.setdefault(tensor, []).append(node)

    def around(self, node: Node) -> tuple[Node, ...] | None:
        """Return the chain whose TRANSPOSE a node is, from the CONCATENATION on."""
        if node.op != "TRANSPOSE" or not _turns_pairs(node):
            return None
        before = self._maker(node.inputs[0], "RESHAPE")
        after = self._reader(node.outputs[0], "RESHAPE")
        join = None if before is None else self._maker(before.inputs[0], "CONCATENATION")
        if before is None or after is None or join is None or not _joins(join, node, after):
            return None
        split = self._reader(after.outputs[0], "SPLIT")
        chain = (join, before, node, after)
        return chain if split is None or not _halves(split) else (*chain, split)

    def _maker(self, tensor: Tensor | None, op: str) -> Node | None:
        """Return the node that makes a tensor, if it is such an op and nobody else reads that."""
        if tensor is None or tensor in self._outputs or len(self._readers[tensor]) != 1:
            return None
        node = self._makers.get(tensor)
        return node if node is not None and node.op == op else None

    def _reader(self, tensor: Tensor, op: str) -> Node | None:
        """Return the one node that reads a tensor, if it is such an op."""
        readers = self._readers.get(tensor, [])
        alone = len(readers) == 1 and tensor not in self._outputs
        return readers[0] if alone and readers[0].op == op else None


def _turns_pairs(transpose: Node) -> bool:
    """Whether a TRANSPOSE makes (..., c, 2) of (..., 2, c)."""
    source, order = transpose.inputs
    if source is None or order is None or order.data is None or len(source.shape) < 2:
        return False
    rank = len(source.shape)
    wanted = [*range(rank - 2), rank - 1, rank - 2]
    return source.shape[-2] == 2 and np.asarray(order.data).ravel().tolist() == wanted


def _joins(join: Node, transpose: Node, after: Node) -> bool:
    """Whether a CONCATENATION joins two tensors of the channels that the TRANSPOSE turns, as bytes.

    One of uint8 takes them to its output's scale, and what follows does not take them back.
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
    """Whether a SPLIT makes two of the channels."""
    axis, source = split.inputs
    if axis is None or axis.data is None or source is None:
        return False
    return len(split.outputs) == 2 and int(axis.data) in (len(source.shape) - 1, -1)

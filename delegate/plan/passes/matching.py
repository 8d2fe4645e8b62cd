# SPDX-License-Identifier: Apache-2.0
"""The interface of a pass, and helpers to match nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node, Tensor
from delegate.graph.partition import Partition

# The matched nodes, the last one at the end; and the node that replaces them.
Match = tuple[Sequence[Node], Node]
Find = Callable[[DefUse, Node], Match | None]  # returns the match at a node


def fused(partition: Partition, accepts: Callable[[Node], bool], find: Find) -> Partition:
    """Return the partition with each match replaced, if the new node is accepted.

    Of matches that share nodes the last one is replaced, which is the longest of a chain.
    """
    links = DefUse(partition)
    new: dict[Node, Node | None] = {}
    for node in reversed(partition.nodes):
        found = None if node in new else find(links, node)
        if found is not None and new.keys().isdisjoint(found[0]) and accepts(found[1]):
            nodes, made = found
            new |= {**dict.fromkeys(nodes), nodes[-1]: made}
    return partition.with_nodes(new)


def is_plain(node: Node) -> bool:
    """Whether a node has no fused activation."""
    return str(node.options.get("fused_activation_function", "NONE")) == "NONE"


def first_made(links: DefUse, node: Node, op: str) -> Node | None:
    """Return the producer, of this op, of any input that only this node reads."""
    found = (links.sole_producer(tensor, op) for tensor in node.inputs)
    return next((each for each in found if each is not None), None)


def number_of(node: Node) -> float | None:
    """Return the scalar that a node without activation adds or multiplies by, if any."""
    numbers = [t.data for t in node.inputs if t is not None and t.data is not None]
    if len(node.inputs) != 2 or len(numbers) != 1 or numbers[0].size != 1 or not is_plain(node):
        return None
    return float(numbers[0].reshape(()))


def other_than(node: Node, tensor: Tensor) -> Tensor | None:
    """Return the first input of a node that is not `tensor`."""
    return next((each for each in node.inputs if each is not tensor), None)


def is_of_rows(mean: Node, keeps_axis: bool = True) -> bool:
    """Whether a MEAN is over the last dimension; others that it is over have size 1.

    `keeps_axis`: only with keep_dims.
    """
    source, axes = mean.inputs
    if source is None or axes is None or axes.data is None:
        return False
    last = len(source.shape) - 1
    means = {int(axis) % len(source.shape) for axis in axes.data.reshape(-1)}
    is_last = last in means and all(source.shape[axis] == 1 for axis in means - {last})
    return is_last and (not keeps_axis or bool(mean.options.get("keep_dims")))

# SPDX-License-Identifier: Apache-2.0
"""Def-use chains: producer and consumers of each tensor."""

from __future__ import annotations

from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.partition import Partition


class DefUse:
    """The producers and consumers of tensors, in a graph or a part of it.

    Attributes:
        places: positions of the nodes in execution order.
    """

    def __init__(self, of: Graph | Partition) -> None:
        self.places = {node: place for place, node in enumerate(of.nodes)}
        self._outputs = frozenset(of.outputs)
        self._producers = {tensor: node for node in of.nodes for tensor in node.outputs}
        self._consumers: dict[Tensor | None, list[Node]] = {}
        for node in of.nodes:
            for tensor in node.inputs:
                self._consumers.setdefault(tensor, []).append(node)

    def producer(self, tensor: Tensor | None, op: str = "") -> Node | None:
        """Return the node that produces a tensor; None: there is none, or it is another op."""
        node = None if tensor is None else self._producers.get(tensor)
        return node if node is None or op in ("", node.op) else None

    def consumers(self, tensor: Tensor) -> tuple[Node, ...]:
        """Return the readers of a tensor, one entry per use."""
        return tuple(self._consumers.get(tensor, ()))

    def is_output(self, tensor: Tensor) -> bool:
        """Whether a tensor is visible to the caller."""
        return tensor in self._outputs

    def sole_producer(self, tensor: Tensor | None, op: str) -> Node | None:
        """Return the producer, of this op, of a tensor with a single use that is not an output."""
        return self.producer(tensor, op) if self.sole_consumer(tensor) is not None else None

    def sole_consumer(self, tensor: Tensor | None, op: str = "") -> Node | None:
        """Return the single user of a tensor.

        None: there are more uses, the tensor is an output, or the node is another op.
        """
        nodes = self._consumers.get(tensor, ())
        if tensor is None or tensor in self._outputs or len(nodes) != 1:
            return None
        return nodes[0] if op in ("", nodes[0].op) else None

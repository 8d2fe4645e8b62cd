# SPDX-License-Identifier: Apache-2.0
"""Who makes and who reads each tensor."""

from __future__ import annotations

from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.partition import Partition


class DefUse:
    """The nodes of a graph, or of a part of it, by the tensors that they read and make.

    Attributes:
        places: of the nodes, in execution order.
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
        """Return the node that makes a tensor; None: no node does, or none of this op."""
        node = None if tensor is None else self._producers.get(tensor)
        return node if node is None or op in ("", node.op) else None

    def consumers(self, tensor: Tensor) -> tuple[Node, ...]:
        """Return who reads a tensor; a node that reads it twice stands there twice."""
        return tuple(self._consumers.get(tensor, ()))

    def is_output(self, tensor: Tensor) -> bool:
        """Whether a caller sees a tensor."""
        return tensor in self._outputs

    def sole_producer(self, tensor: Tensor | None, op: str) -> Node | None:
        """Return the node of an op that makes what one node alone reads, and nobody else sees."""
        return self.producer(tensor, op) if self.sole_consumer(tensor) is not None else None

    def sole_consumer(self, tensor: Tensor | None, op: str = "") -> Node | None:
        """Return the node that alone reads a tensor, and once.

        None: a caller sees the tensor, too, or the node is not of this op.
        """
        nodes = self._consumers.get(tensor, ())
        if tensor is None or tensor in self._outputs or len(nodes) != 1:
            return None
        return nodes[0] if op in ("", nodes[0].op) else None

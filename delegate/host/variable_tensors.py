# SPDX-License-Identifier: Apache-2.0
"""The variable tensors of one graph of an interpreter, stored by TFLite.

TFLite initialises them at allocation, and resets them, without notifying delegates: its memory is
authoritative, and a run updates it. After a failed run the bytes are overwritten by a mark, and are
invalid until TFLite or the caller has overwritten the mark.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from delegate.errors import DeviceError
from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.partition import Partition
from delegate.host.variables import out_of_order
from delegate.launch import size_bytes

Arrays = Sequence[NDArray[np.uint8]]
_MARK_BYTES = 16


class VariableTensors:
    """The variable tensors of one graph, at its present shapes.

    Attributes:
        indices: of those used by nodes on the device, in TFLite's table.
    """

    def __init__(self, graph: Graph, nodes: Collection[int]) -> None:
        """`nodes`: those on the device."""
        touched = {t.state_name for n in graph.nodes if n.index in nodes for t in _variables(n)}
        own = [
            t for t in graph.tensors if t.state_name in touched and t.is_variable and t.index >= 0
        ]
        self._index = {tensor.state_name: tensor.index for tensor in own}
        self.indices = tuple(self._index.values())
        self._marks = [_mark(tensor) for tensor in own]
        self._lost: dict[int, str] = {}  # position in `indices` -> why the bytes are invalid

    def index(self, tensor: Tensor) -> int:
        """Return TFLite's index of a tensor; the same for all versions of a variable."""
        return self._index.get(tensor.state_name, tensor.index)

    def tflite_indices(self, tensors: Sequence[Tensor]) -> list[int]:
        """Return TFLite's indices of inputs or outputs; of persistent ones, only variables."""
        return [self.index(t) for t in tensors if t.is_variable or not t.state_name]

    def split(self, inputs: Arrays) -> tuple[Arrays, Arrays]:
        """Split a run's inputs into the ordinary ones and the variables, which come last."""
        count = len(inputs) - len(self.indices)
        return inputs[:count], inputs[count:]

    def require(self, memory: Arrays) -> None:
        """Check that all of them are valid; raises DeviceError."""
        for place, why in [*self._lost.items()]:
            mark = self._marks[place]
            if np.array_equal(memory[place][: mark.size], mark):
                raise DeviceError(
                    f"the state is lost, as a run failed ({why}): call reset_all_variables()"
                )
            del self._lost[place]

    def lose(self, memory: Arrays, why: str) -> None:
        """Mark all bytes as invalid, until they are overwritten."""
        for place, mark in enumerate(self._marks):
            if mark.size:
                memory[place][: mark.size] = mark
                self._lost[place] = why


def apart(
    graph: Graph, groups: Sequence[Partition], nodes: Collection[int]
) -> tuple[list[int], str] | None:
    """Return nodes that cannot be on the device because of a variable tensor, and why.

    `nodes`: those on the device, in these partitions. None: all can.
    """
    touching: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in dict.fromkeys(tensor.state_name for tensor in _variables(node)):
            touching.setdefault(name, []).append(node)
    disorder = dict(out_of_order(graph, groups))
    for name, every in touching.items():
        here = [node.index for node in every if node.index in nodes]
        left = [node for node in every if node.index not in nodes]
        if here and left:
            return here, (
                f"node {left[0].index} ({left[0].op}), which stays on the CPU, touches the "
                f"variable tensor {name!r}, too"
            )
        if here and name in disorder:
            return here, disorder[name]
    return None


def _variables(node: Node) -> list[Tensor]:
    """Return the persistent variable tensors that a node uses."""
    both = (*node.inputs, *node.outputs)
    return [t for t in both if t is not None and t.is_variable and t.state_name]


def _mark(tensor: Tensor) -> NDArray[np.uint8]:
    """Return bytes that no reset writes into a tensor."""
    mark: NDArray[np.uint8] = np.frombuffer(os.urandom(_MARK_BYTES), np.uint8)[
        : size_bytes(tensor)
    ].copy()
    points = () if tensor.quantization is None else tensor.quantization.zero_point
    reset = {0, *(point & 0xFF for point in points)}
    if mark.size and int(mark[0]) in reset:
        mark[0] = next(value for value in range(1, 256) if value not in reset)
    return mark

# SPDX-License-Identifier: Apache-2.0
"""The variable tensors of one graph of an interpreter, whose bytes TFLite has.

TFLite begins them as it allocates, and resets them, and tells nobody: so what is in its memory
counts, and a run leaves there what it made of it. The bytes that a run that failed may have left
half made are marked, and are no values until TFLite or the caller has written over the mark.
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
    """Those of one graph, at its present shapes.

    Attributes:
        indices: of the tensors that nodes on the device touch, in TFLite's table.
    """

    def __init__(self, graph: Graph, nodes: Collection[int]) -> None:
        """`nodes`: those that run on the device."""
        touched = {t.state_name for n in graph.nodes if n.index in nodes for t in _variables(n)}
        own = [
            t for t in graph.tensors if t.state_name in touched and t.is_variable and t.index >= 0
        ]
        self._index = {tensor.state_name: tensor.index for tensor in own}
        self.indices = tuple(self._index.values())
        self._marks = [_mark(tensor) for tensor in own]
        self._lost: dict[int, str] = {}  # place in `indices` -> why its bytes are no values

    def index(self, tensor: Tensor) -> int:
        """Return where TFLite has a tensor's bytes; those of a variable in one place."""
        return self._index.get(tensor.state_name, tensor.index)

    def tflite_indices(self, tensors: Sequence[Tensor]) -> list[int]:
        """Return where TFLite has a partition's inputs or outputs; of what is kept, variables."""
        return [self.index(t) for t in tensors if t.is_variable or not t.state_name]

    def split(self, inputs: Arrays) -> tuple[Arrays, Arrays]:
        """Return a run's inputs without the bytes of the variables, which come last, and these."""
        count = len(inputs) - len(self.indices)
        return inputs[:count], inputs[count:]

    def require(self, memory: Arrays) -> None:
        """Return if the bytes of all of them are values; raises DeviceError."""
        for place, why in [*self._lost.items()]:
            mark = self._marks[place]
            if np.array_equal(memory[place][: mark.size], mark):
                raise DeviceError(
                    f"the state is lost, as a run failed ({why}): call reset_all_variables()"
                )
            del self._lost[place]

    def lose(self, memory: Arrays, why: str) -> None:
        """Trust none of the bytes, until somebody has written others."""
        for place, mark in enumerate(self._marks):
            if mark.size:
                memory[place][: mark.size] = mark
                self._lost[place] = why


def apart(
    graph: Graph, groups: Sequence[Partition], nodes: Collection[int]
) -> tuple[list[int], str] | None:
    """Return nodes on the device that cannot be there because of a variable tensor, and why.

    `nodes`: those on the device, in these groups. None: all can.
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
    """Return the kept variable tensors that a node touches."""
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

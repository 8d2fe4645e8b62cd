# SPDX-License-Identifier: Apache-2.0
"""A graph of a file that is not its first, as signatures run it, fed and read as the first is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph


class OfSignature:
    """TFLite's interpreter, of whose graphs this one is meant.

    TFLite's own SignatureRunner knows inputs by name alone, and allocates tensors in each run. It
    calls the same functions of what TFLite's class wraps, which refuses to allocate while anybody
    else refers to that.
    """

    def __init__(self, interpreter: Any, graph: Graph) -> None:
        self._interpreter = interpreter
        self._number = graph.subgraph
        self._inputs = [tensor.index for tensor in graph.inputs]
        self._outputs = [tensor.index for tensor in graph.outputs]

    def allocate_tensors(self) -> None:
        """Give all tensors memory. Raises: RuntimeError, ValueError: TFLite refuses."""
        self._interpreter.allocate_tensors()  # only there TFLite lets XNNPACK take nodes
        self._interpreter._interpreter.AllocateTensors(self._number)

    def get_input_details(self) -> list[dict[str, Any]]:
        """Return what TFLite tells of the inputs."""
        return [*map(self._details, self._inputs)]

    def get_output_details(self) -> list[dict[str, Any]]:
        """Return what TFLite tells of the outputs."""
        return [*map(self._details, self._outputs)]

    def resize_tensor_input(self, index: int, shape: Sequence[int], strict: bool = False) -> None:
        """Give an input another shape."""
        sizes = np.array(shape, np.int32)
        self._interpreter._interpreter.ResizeInputTensor(index, sizes, strict, self._number)

    def set_tensor(self, index: int, values: NDArray[Any]) -> None:
        """Copy values into an input."""
        self._interpreter._interpreter.SetTensor(index, values, self._number)

    def get_tensor(self, index: int) -> NDArray[Any]:
        """Return a copy of a tensor."""
        return np.asarray(self._interpreter.get_tensor(index, self._number))

    def invoke(self) -> None:
        """Run once. Raises: RuntimeError, ValueError: it fails."""
        self._interpreter._interpreter.Invoke(self._number)

    def reset_all_variables(self) -> None:
        """Let variables begin again."""
        self._interpreter.reset_all_variables()

    def _details(self, index: int) -> dict[str, Any]:
        found: dict[str, Any] = self._interpreter._get_tensor_details(index, self._number)
        return found

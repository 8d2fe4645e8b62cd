# SPDX-License-Identifier: Apache-2.0
"""Runs a signature's graph that is not the file's first, with the same interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph


class OfSignature:
    """TFLite's interpreter for one of the model's other graphs.

    TFLite's own SignatureRunner identifies inputs by name only, and allocates tensors in each run.
    This calls the same functions of the object that TFLite's class wraps, which refuses to allocate
    while other references to it exist.
    """

    def __init__(self, interpreter: Any, graph: Graph) -> None:
        self._interpreter = interpreter
        self._number = graph.subgraph
        self._inputs = [tensor.index for tensor in graph.inputs]
        self._outputs = [tensor.index for tensor in graph.outputs]

    def allocate_tensors(self) -> None:
        """Allocate all tensors. Raises: RuntimeError, ValueError: TFLite fails."""
        self._interpreter.allocate_tensors()  # only this call lets XNNPACK take nodes
        self._interpreter._interpreter.AllocateTensors(self._number)

    def get_input_details(self) -> list[dict[str, Any]]:
        """Return TFLite's details of the inputs."""
        return [*map(self._details, self._inputs)]

    def get_output_details(self) -> list[dict[str, Any]]:
        """Return TFLite's details of the outputs."""
        return [*map(self._details, self._outputs)]

    def resize_tensor_input(self, index: int, shape: Sequence[int], strict: bool = False) -> None:
        """Resize an input."""
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
        """Reset variables to their initial values."""
        self._interpreter.reset_all_variables()

    def _details(self, index: int) -> dict[str, Any]:
        found: dict[str, Any] = self._interpreter._get_tensor_details(index, self._number)
        return found

# SPDX-License-Identifier: Apache-2.0
"""Substitutes for TFLite's Interpreter on systems without TFLite.

On numpy's kernels a model is the reference; on our delegate it runs on the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import DelegateError, OpenCLDelegate, Unsupported
from delegate.inspect import Graph, Tensor, infer
from tflite_opencl.console.errors import RunError
from tflite_opencl.interpreters.numpy_kernels import NoNumpyForm, compute, require

Array = NDArray[Any]


class OwnInterpreter:
    """The interface of TFLite's Interpreter, for a graph in the file's shapes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values: dict[int, Array] = {
            tensor.index: tensor.data for tensor in graph.tensors if tensor.data is not None
        }
        self._inputs = {t.index: np.zeros(t.shape, t.dtype) for t in graph.inputs}

    def allocate_tensors(self) -> None:
        """Do nothing: the inputs are allocated, as zeros."""

    def get_input_details(self) -> list[Mapping[str, Any]]:
        """Return the details of the inputs."""
        return [*map(_details, self._graph.inputs)]

    def get_output_details(self) -> list[Mapping[str, Any]]:
        """Return the details of the outputs."""
        return [*map(_details, self._graph.outputs)]

    def set_tensor(self, index: int, values: Array) -> None:
        """Copy values into an input. Raises: ValueError: wrong shape or type."""
        own = self._inputs[index]
        if (values.shape, values.dtype) != (own.shape, own.dtype):
            raise ValueError(f"an input of {own.shape} {own.dtype} is given {values.shape}")
        own[...] = values

    def get_tensor(self, index: int) -> Array:
        """Return a copy of a tensor. Raises: ValueError: it has not been computed."""
        found: Array | None = self._inputs.get(index, self._values.get(index))
        if found is None:
            raise ValueError(f"tensor {index} was not computed")
        return np.array(found)


class NumpyInterpreter(OwnInterpreter):
    """A model on numpy's kernels: the reference. All tensors can be read after a run."""

    def __init__(self, model: Graph) -> None:
        """Raises: RuntimeError: a node is not implemented; the text names it."""
        graph = infer(model)
        if graph.subgraphs > 1:
            raise NoNumpyForm("the model has several graphs, and numpy's reference runs one")
        for node in graph.nodes:
            require(node)
        super().__init__(graph)

    def invoke(self) -> None:
        """Run once. Raises: RuntimeError: a node is not implemented."""
        values = self._values | self._inputs
        for node in self._graph.nodes:
            given = [None if each is None else values[each.index] for each in node.inputs]
            values[node.outputs[0].index] = compute(node, given)
        self._values = values


class WholeInterpreter(OwnInterpreter):
    """A graph that our delegate runs completely."""

    def __init__(self, graph: Graph, delegate: OpenCLDelegate, why_not: str) -> None:
        """Build it. `why_not`: why there is no TFLite.

        Raises: RunError: the delegate leaves nodes to the CPU. DelegateError.
        """
        super().__init__(infer(graph))
        try:
            self._kernel = delegate.whole()
        except Unsupported as refusal:
            raise RunError(not_whole(refusal, why_not)) from refusal
        computed = {t.index: t for node in self._graph.nodes for t in node.outputs}
        found = {each: computed[each] for each in self._kernel.outputs}
        self._values |= {each: np.zeros(t.shape, t.dtype) for each, t in found.items()}
        self._read = [_bytes(self._inputs[each]) for each in self._kernel.inputs]
        self._written = [_bytes(self._values[each]) for each in found]

    def invoke(self) -> None:
        """Run once. Raises: RuntimeError: the device failed."""
        try:
            self._kernel.invoke(self._read, self._written)
        except DelegateError as error:
            raise RuntimeError(str(error)) from error


def not_whole(refusal: Unsupported, why_not: str) -> str:
    """Return the message about nodes that nothing can run."""
    return f"OpenCL does not run the whole model ({refusal}), and {why_not}"


def _bytes(array: Array) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


def _details(tensor: Tensor) -> Mapping[str, Any]:
    return {
        "name": tensor.name,
        "index": tensor.index,
        "shape": np.array(tensor.shape, np.int32),
        "dtype": np.dtype(tensor.dtype).type,
    }

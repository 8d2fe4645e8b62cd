# SPDX-License-Identifier: Apache-2.0
"""A served model's inputs and outputs: names, types and shapes in the protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Tensor
from tflite_opencl.console.errors import CommandError
from tflite_opencl.harness.feeds import names_of

Array = NDArray[Any]
Arrays = Sequence[Array]
# Source: the Open Inference Protocol's table of tensor data types.
DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "float16": "FP16", "float32": "FP32", "float64": "FP64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Named:
    """An input or output under its name in the protocol."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of one picture, as in the model

    @property
    def datatype(self) -> str:
        return DATATYPES[self.dtype.name]

    @property
    def row(self) -> tuple[int, ...]:
        """The shape without the batch dimension, if requests may have several pictures."""
        return self.shape[1:] if self.shape[:1] == (1,) else self.shape

    @property
    def bytes(self) -> int:
        """Size of one picture's values."""
        return math.prod(self.shape) * self.dtype.itemsize

    def metadata(self, takes_several: bool) -> dict[str, Any]:
        """Return the protocol's metadata; -1 stands for any number of pictures."""
        shape = [-1, *self.row] if takes_several else [*self.shape]
        return {"name": self.name, "datatype": self.datatype, "shape": shape}


@dataclass(frozen=True, slots=True)
class ModelSignature:
    """The inputs and outputs of a model."""

    inputs: Sequence[Named]
    outputs: Sequence[Named]

    @property
    def takes_several(self) -> bool:
        """Whether a request may hold several pictures: each tensor's first dimension is 1."""
        return all(each.shape[:1] == (1,) for each in (*self.inputs, *self.outputs))

    @property
    def bytes(self) -> int:
        """Size of one picture's inputs."""
        return sum(each.bytes for each in self.inputs)


def signature_of(name: str, graph: Graph) -> ModelSignature:
    """Return the inputs and outputs of a model.

    Raises: CommandError: it cannot be served; the text says why.
    """
    for part, what in ((graph.inputs, "input"), (graph.outputs, "output")):
        if not part:
            raise CommandError(f"{name} has no {what}: there is nothing to serve")
        for tensor in part:
            if tensor.dtype not in DATATYPES:
                told = f"{what} {tensor.name or tensor.index} is of type {tensor.dtype}"
                raise CommandError(f"{name} cannot be served: its {told}")
    if any(tensor.is_variable or tensor.dtype == "resource" for tensor in graph.tensors):
        why = "it keeps a state between runs, which clients would share"
        raise CommandError(f"{name} cannot be served: {why}")
    return ModelSignature(
        _named(graph.inputs, graph.input_names, "input"),
        _named(graph.outputs, graph.output_names, "output"),
    )


def _named(tensors: Sequence[Tensor], named: Mapping[str, int], kind: str) -> Sequence[Named]:
    """Return the tensors under unique names; `named`: the signature's."""
    found: dict[str, Named] = {}
    names = names_of(
        [replace(t, name=t.name or f"{kind}_{n}") for n, t in enumerate(tensors)], named
    )
    for number, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
        while name in found:
            name += f"_{number}"
        found[name] = Named(name, np.dtype(tensor.dtype), tuple(tensor.shape))
    return tuple(found.values())

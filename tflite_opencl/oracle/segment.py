# SPDX-License-Identifier: Apache-2.0
"""Consecutive nodes of a graph as a model of their own, on one kind of kernels."""

from __future__ import annotations

import contextlib
from typing import Any

from delegate.inspect import Graph, Node, write_model
from tflite_opencl.interpreters.interpreter import invoke, overwrites
from tflite_opencl.interpreters.numpy_kernels import compute
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.build import Array
from tflite_opencl.models.cut import cut
from tflite_opencl.oracle.in_builtins import in_builtins
from tflite_opencl.oracle.node_kernels import NUMPY


class Segment:
    """Consecutive nodes that run on the same kernels.

    Attributes:
        node: the first of them. made: their interpreter; None: numpy runs the node. inner: index
            of a graph's tensor -> its index in `made`, for tensors readable after a run.
    """

    def __init__(
        self,
        runtime: Runtime,
        graph: Graph,
        nodes: tuple[int, int],
        kind: str,
        threads: int | None,
        keeps_all: bool,
    ) -> None:
        """`nodes`: the first and the last. `keeps_all`: all tensors can be read after a run.

        Raises: Uncut, ValueError: they form no model. RuntimeError, ValueError: TFLite rejects it.
        """
        self.node: Node = graph.nodes[nodes[0]]
        self.made: Any = None
        self.inner: dict[int, int] = {}
        if kind == NUMPY:
            return
        self._part = part = cut(graph, *nodes)
        keeps_all = keeps_all or overwrites(part)
        model = write_model(in_builtins(part))
        self.made = runtime.interpreter(model, threads, kind, (), keeps_all)
        self._is_allocated = False
        with contextlib.suppress(RuntimeError, ValueError):  # shapes known only during a run
            self.made.allocate_tensors()
            self._is_allocated = True
        self.inner = {
            tensor.origin: tensor.index
            for tensor in part.tensors
            if tensor.origin is not None and (keeps_all or tensor.is_variable)
        }

    def run(self, values: dict[int, Array]) -> None:
        """Run once; `values`: of the graph's tensors; the outputs are added.

        Raises: RuntimeError, ValueError: the kernels fail.
        """
        if self.made is None:
            given = [None if t is None else _value(values, t.index) for t in self.node.inputs]
            values[self.node.outputs[0].index] = compute(self.node, given)
            return
        inputs = [_value(values, tensor.origin or 0) for tensor in self._part.inputs]
        for detail, array in zip(self.made.get_input_details(), inputs, strict=True):
            if tuple(detail["shape"]) != array.shape:
                self.made.resize_tensor_input(detail["index"], array.shape)
                self._is_allocated = False
        if not self._is_allocated:
            self.made.allocate_tensors()
            self._is_allocated = True
        outputs = zip(self._part.outputs, invoke(self.made, inputs), strict=True)
        values |= {tensor.origin or 0: array for tensor, array in outputs}


def _value(values: dict[int, Array], index: int) -> Array:
    """Return a tensor's value. Raises: RuntimeError: a constant without data, as in TFLite."""
    if index not in values:
        raise RuntimeError(f"Input tensor {index} lacks data")
    return values[index]

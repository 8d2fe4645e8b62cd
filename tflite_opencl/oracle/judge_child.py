# SPDX-License-Identifier: Apache-2.0
"""`python -m tflite_opencl.oracle.judge_child`: the child process of tflite_opencl.oracle.judge.

A request is pickled: a method of _Judge and its arguments. Each node is announced before it
runs; the reply is the pickled result, or the error that TFLite raised.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from delegate.guard.children.channel import Channel, serving
from delegate.inspect import Graph, read_model, with_tensors
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.models.build import Array
from tflite_opencl.oracle.mixed import MixedInterpreter
from tflite_opencl.oracle.node_kernels import NodeKernels
from tflite_opencl.oracle.oracle import run_graph

Details = list[Mapping[str, Any]]


def main() -> int:
    """Serve requests until end of file."""
    with serving() as parent:
        judge = _Judge(parent)
        for message in parent.messages():
            word, *arguments = pickle.loads(message["payload"])
            try:
                answer = getattr(judge, word)(*arguments)
            except (RuntimeError, ValueError) as error:
                answer = error
            parent.send(pickle.dumps(answer, protocol=5), answered=True)
    return 0


class _Judge:
    """The child's methods; it has one graph open."""

    def __init__(self, parent: Channel) -> None:
        self._parent = parent
        self._runtime = find_runtime()
        self._made: MixedInterpreter | None = None

    def open(
        self,
        model: bytes | str,
        graph: Graph | None,
        shapes: Sequence[tuple[int, ...]],
        how: dict[str, Any],
    ) -> tuple[NodeKernels, Details, Details]:
        """Open a graph, None: the model's first; return as `_facts` does.

        `shapes`: of its inputs, which may differ from the file's.
        """
        self._made = None
        given = read_model(model) if graph is None else graph
        pairs = zip(given.inputs, shapes, strict=True)
        given = with_tensors(given, {t: replace(t, shape=shape) for t, shape in pairs})
        self._made = MixedInterpreter(self._runtime, given, model, tell=self._tell, **how)
        return self._facts()

    def run(self, inputs: Mapping[int, Array]) -> tuple[tuple[NodeKernels, Details, Details], Any]:
        """Run once; return `_facts`, and the outputs by their indices."""
        assert self._made is not None
        for index, values in inputs.items():
            self._made.set_tensor(index, values)
        self._made.invoke()
        facts = self._facts()
        return facts, self.tensors([detail["index"] for detail in facts[2]])

    def tensors(self, indices: Sequence[int]) -> dict[int, Array]:
        """Return the values of tensors, except those that TFLite does not expose."""
        assert self._made is not None
        found = {}
        for index in indices:
            try:
                found[index] = np.array(self._made.get_tensor(index))
            except ValueError:
                continue
        return found

    def graph(self, graph: Graph, inputs: Sequence[Array]) -> list[Array]:
        """Return the outputs of another graph."""
        self._made = None
        return run_graph(self._runtime, graph, inputs)

    def _facts(self) -> tuple[NodeKernels, Details, Details]:
        """Return the kernels of the graph, and the details of its inputs and outputs."""
        made = self._made
        assert made is not None
        return made.kernels, made.get_input_details(), made.get_output_details()

    def _tell(self, node: int | None) -> None:
        self._parent.send(trying=node)


if __name__ == "__main__":
    sys.exit(main())

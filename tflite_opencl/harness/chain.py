# SPDX-License-Identifier: Apache-2.0
"""Two delegates in one interpreter, compared with the reference kernels, each by its own nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import DelegateError
from delegate.inspect import Graph, Tensor, read_model, write_model
from tflite_opencl.console.errors import DelegateFailed, RunError, one_line
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.harness.open_job import OpenInterpreter, open_interpreter
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.build import graph as graph_of
from tflite_opencl.oracle.difference import Difference, difference, judged
from tflite_opencl.oracle.judge import judged_outputs


@dataclass(frozen=True, slots=True)
class Shares:
    """The differences of each delegate's nodes from the reference kernels, given actual inputs."""

    own: Difference
    library: Difference

    def larger(self, other: Shares) -> Shares:
        """Return the larger difference of each delegate."""
        return Shares(self.own.larger(other.own), self.library.larger(other.library))


def share_text(found: Difference) -> str:
    """Return one delegate's difference from the reference kernels, for people."""
    where = "TFLite's reference kernels on what reached them"
    words = []
    if found.quanta is not None:
        quanta = f"{found.quanta} {'quantum' if found.quanta == 1 else 'quanta'}"
        words = [f"DIFFER from {where}: {quanta}" if found.quanta else f"equal to {where}"]
    if found.floats is not None:
        words.append(f"floats up to {found.floats:g} from {where}")
    return "; ".join(words) or f"not compared: {found.reason}"


class Judge:
    """A chain with observable seams: tensors that one delegate, or the CPU, passes to another.

    They are graph outputs; the delegates take the same nodes as without, in the same partitions.
    """

    def __init__(self, job: Job, runtime: Runtime, graph: Graph, opened: OpenInterpreter) -> None:
        """`graph`: with the seams as outputs. `opened`: its interpreter."""
        taken = opened.delegation
        assert taken is not None
        self._job, self._runtime, self._graph, self._opened = job, runtime, graph, opened
        own = {verdict.node for verdict in taken.verdicts if verdict.is_taken}
        self._parts = [_part(graph, nodes) for nodes in (own, {*taken.others})]

    def shares(self, pixels: NDArray[Any] | None = None) -> list[Shares]:
        """Run the chain on the job's inputs, or on pictures, and compare each run.

        Shapes: (n, h, w, c). Raises: RunError, DelegateFailed: the run fails.
        """
        found = []
        for number in range(1 if pixels is None else len(pixels)):
            if pixels is None:
                self._opened.measure(1, 0)
                outputs = self._opened.outputs()
            else:
                one = pixels[number : number + 1]
                (outputs,) = self._opened.run_each(self._job.input_number, one)
            made = self._opened.interpreter
            given = [made.get_tensor(each["index"]) for each in made.get_input_details()]
            ends = zip((*self._graph.inputs, *self._graph.outputs), (*given, *outputs), strict=True)
            values = {tensor.index: value for tensor, value in ends}
            found.append(Shares(*(self._judged(part, values) for part in self._parts)))
        return found

    def _judged(self, part: _Part, values: dict[int, NDArray[Any]]) -> Difference:
        given, got = ([np.asarray(values[i]) for i in of] for of in (part.inputs, part.outputs))
        try:
            wanted = judged_outputs(self._runtime, part.graph, write_model(part.graph), given)
        except (RuntimeError, ValueError) as error:
            return Difference(None, f"the reference kernels do not run its nodes: {error}")
        return judged(difference(got, wanted, ""), part.graph)


@dataclass(frozen=True, slots=True)
class _Part:
    """The nodes of one delegate as a graph."""

    graph: Graph
    inputs: Sequence[int]  # tensor indices of the whole model
    outputs: Sequence[int]


def _part(graph: Graph, numbers: Collection[int]) -> _Part:
    nodes = [node for node in graph.nodes if node.index in numbers]
    made = {tensor for node in nodes for tensor in node.outputs}
    read = dict.fromkeys(t for node in nodes for t in node.inputs if t is not None)
    inputs = [t for t in read if t.data is None and not t.is_variable and t not in made]
    outputs = [t for t in dict.fromkeys(graph.outputs) if t in made]
    cut = graph_of(nodes, inputs, outputs)
    return _Part(cut, [t.index for t in inputs], [t.index for t in outputs])


def with_seams(graph: Graph, taken: Delegation) -> Graph:
    """Return the model with its seams as additional outputs."""
    own = {verdict.node for verdict in taken.verdicts if verdict.is_taken}
    others = {*taken.others}

    def owner(number: int) -> int:
        return 1 if number in own else 2 if number in others else 0

    makers: dict[Tensor, int] = {t: owner(n.index) for n in graph.nodes for t in n.outputs}
    seams = dict.fromkeys(
        tensor
        for node in graph.nodes
        for tensor in node.inputs
        if tensor in makers and makers[tensor] != owner(node.index)
    )
    return replace(graph, outputs=(*graph.outputs, *(t for t in seams if t not in graph.outputs)))


@contextlib.contextmanager
def open_judge(job: Job, runtime: Runtime, graph: Graph, taken: Delegation) -> Iterator[Judge]:
    """Yield the comparison for both delegates of a job's chain; `taken`: the nodes they took.

    Raises: RunError: they cannot be compared separately.
    """
    try:
        model = write_model(with_seams(graph, taken))
    except ValueError as error:  # the file has several graphs
        raise RunError(f"the chain cannot be judged: {one_line(error)}") from error
    wide = read_model(model)
    own = replace(job, model=model, cpu_kernels="builtin", profile_rows=0, is_silent=True)
    with contextlib.ExitStack() as stack:
        try:
            opened = stack.enter_context(open_interpreter(own, runtime, wide))
        except (DelegateError, DelegateFailed, RuntimeError, ValueError) as error:
            raise RunError(f"the chain cannot be judged: {one_line(error)}") from error
        again = opened.delegation
        if again is None or _nodes(again) != _nodes(taken):
            raise RunError("the chain cannot be judged: its delegates take other nodes then")
        yield Judge(own, runtime, wide, opened)


def _nodes(taken: Delegation) -> tuple[list[int], list[int]]:
    return [each.node for each in taken.verdicts if each.is_taken], sorted(taken.others)

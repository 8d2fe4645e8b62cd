# SPDX-License-Identifier: Apache-2.0
"""The reference interpreter of all commands, which runs in a child process.

TFLite's reference kernels may abort their process: int8 SOFTMAX does if 512 or more values
are nearly equal. A node that killed a child is computed by numpy in another child, if numpy
implements it; otherwise the error says how the child died.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from delegate.guard.children.child import ChildDied, ChildExit
from delegate.inspect import Graph, Tensor
from tflite_opencl.console.errors import one_line
from tflite_opencl.interpreters.interpreter import Arrays, failed, failures, invoke, run
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.build import Array
from tflite_opencl.models.cut import Uncut, why_uncut
from tflite_opencl.oracle.judge_process import JudgeProcess, give_back, taken
from tflite_opencl.oracle.node_kernels import BUILTIN, Kind, NodeKernels, NoOracle, kind_of
from tflite_opencl.oracle.oracle import run_graph

_MOST_DEATHS = 4  # of kinds of nodes in one graph

Values = Callable[[Tensor], Array]


def open_judge(
    runtime: Runtime,
    graph: Graph,
    model: bytes | str,
    *,
    left: Collection[int] = (),
    keeps_all: bool = False,
    threads: int | None = 1,
) -> JudgeInterpreter:
    """Return an interpreter that computes the reference outputs; `close` ends it.

    The arguments are those of MixedInterpreter. Raises: NoOracle: no kernels run the graph.
    """
    how = {"left": tuple(left), "keeps_all": keeps_all, "threads": threads}
    return JudgeInterpreter(runtime, graph, model, how)


def cpu_kernels_beside(runtime: Runtime, graph: Graph, model: bytes | str) -> str:
    """Return the CPU kernels for nodes that a delegate leaves, if its outputs are to be compared.

    Raises: NoOracle: no kernels run the graph.
    """
    if runtime.why_not or not why_uncut(graph):
        return BUILTIN
    with contextlib.closing(open_judge(runtime, graph, model)) as judge:
        return judge.kernels.by_node[0]


def judged_outputs(
    runtime: Runtime, graph: Graph, model: bytes | str, inputs: Sequence[Array]
) -> Arrays:
    """Return the reference outputs of a graph.

    Raises: NoOracle: no kernels run the graph. RuntimeError, ValueError: the run fails.
    """
    with contextlib.closing(open_judge(runtime, graph, model)) as judge:
        return invoke(judge, inputs)


def judged_graph(runtime: Runtime, graph: Graph, inputs: Sequence[Array]) -> Arrays:
    """Return the outputs of a graph built in memory, as for error bounds; as `run_graph`."""
    if runtime.why_not:
        return run_graph(runtime, graph, inputs)
    process = taken(runtime)
    try:
        found: Arrays = process.asked("graph", graph, [*inputs])
    except ChildDied as died:
        raise RuntimeError(_words(runtime, died.exit)) from None
    finally:
        give_back(process)
    return found


class JudgeInterpreter:
    """The required subset of TFLite's Interpreter, for a graph in a child process.

    Attributes:
        kernels: the kind of each node's kernel.
    """

    def __init__(
        self, runtime: Runtime, graph: Graph, model: bytes | str, how: dict[str, Any]
    ) -> None:
        """`how`: the other arguments of MixedInterpreter. Raises: NoOracle."""
        self._runtime, self._graph, self._model, self._how = runtime, graph, model, how
        self._dead: dict[Kind, str] = {}
        self._is_apart = self._has_run = False
        self._given: dict[int, Array] = {}
        self._values: dict[int, Array] = {}
        self._numpy: Any = None  # in this process: numpy's kernels cannot crash it
        self._process: JudgeProcess | None = None
        if runtime.why_not:
            try:
                self._numpy = runtime.interpreter(model, 1, "reference", graph=graph)
            except RuntimeError as error:
                raise NoOracle(one_line(error)) from error
            self.kernels = NodeKernels.all_of(graph, "numpy", runtime.why_not)
            return
        self._process = taken(runtime)
        try:
            self._open()
        except ChildDied as died:
            self.close()
            raise NoOracle(_words(runtime, died.exit)) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Return the process to the pool."""
        if self._process is not None:
            give_back(self._process)
        self._process = None

    @property
    def name(self) -> str:
        """The kernels' name for people: "TFLite's reference kernels"."""
        return f"TFLite's {self.kernels.name}" if self._numpy is None else self._runtime.reference

    @property
    def short_name(self) -> str:
        """The same without the runtime's name."""
        return self.name.removeprefix("TFLite's ")

    @property
    def reasons(self) -> str:
        """The nodes on other kernels than the reference ones, and why; "": none."""
        return self.kernels.reasons if self._numpy is None else ""

    def allocate_tensors(self) -> None:
        """Do nothing: tensors are already allocated."""

    def get_input_details(self) -> list[Any]:
        """Return TFLite's details of the inputs."""
        return [*(self._numpy.get_input_details() if self._numpy else self._inputs)]

    def get_output_details(self) -> list[Any]:
        """Return TFLite's details of the outputs."""
        return [*(self._numpy.get_output_details() if self._numpy else self._outputs)]

    def set_tensor(self, index: int, values: Array) -> None:
        """Copy values into an input."""
        if self._numpy is not None:
            self._numpy.set_tensor(index, values)
        self._given[index] = np.array(values)

    def get_tensor(self, index: int) -> Array:
        """Return a copy of a tensor. Raises: ValueError: TFLite does not expose it."""
        if self._numpy is not None:
            return np.array(self._numpy.get_tensor(index))
        for detail in self._inputs:
            if detail["index"] == index:
                zeros = np.zeros(detail["shape"], detail["dtype"])
                return np.array(self._given.get(index, zeros))
        found = self._values if index in self._values else self.tensors([index])
        if index not in found:
            raise ValueError(f"TFLite does not tell what tensor {index} is")
        return np.array(found[index])

    def tensors(self, indices: Sequence[int]) -> dict[int, Array]:
        """Return the values of these tensors, except those that TFLite does not expose."""
        if self._numpy is None:
            assert self._process is not None
            # NOTE: for a resource, TFLite would read invalid memory.
            states = {each.index for each in self._graph.tensors if each.dtype == "resource"}
            wanted = [index for index in indices if index not in states]
            found: dict[int, Array] = self._process.asked("tensors", wanted)
            return found
        told = {}
        for index in indices:
            with contextlib.suppress(ValueError):
                told[index] = np.array(self._numpy.get_tensor(index))
        return told

    def invoke(self) -> None:
        """Run once. Raises: RuntimeError, ValueError: it fails, or crashes its process."""
        if self._numpy is not None:
            self._numpy.invoke()
            return
        while True:
            assert self._process is not None
            try:
                facts, self._values = self._process.asked("run", self._given)
            except ChildDied as died:
                self._survive(died.exit)
                continue
            self.kernels, self._inputs, self._outputs = facts
            self._has_run = True
            return

    def _open(self) -> None:
        """Open the graph in the child. Raises: NoOracle, Died."""
        assert self._process is not None
        graph = self._graph if self._graph.subgraph else None  # None: the child reads the first
        how = {**self._how, "dead": self._dead, "is_apart": self._is_apart}
        is_file = isinstance(self._model, str)
        model = os.path.abspath(self._model) if is_file else self._model
        shapes = [tensor.shape for tensor in self._graph.inputs]
        facts = self._process.asked("open", model, graph, shapes, how)
        self.kernels, self._inputs, self._outputs = facts

    def _survive(self, ended: ChildExit) -> None:
        """Continue in another process without the node that killed one. Raises: RuntimeError."""
        words, process = _words(self._runtime, ended), self._process
        assert process is not None
        node = process.trying
        process.close()
        is_stateful = any(tensor.is_variable for tensor in self._graph.tensors)
        if (is_stateful and self._has_run) or len(self._dead) == _MOST_DEATHS:
            raise RuntimeError(words)
        if node is not None:
            self._dead[kind_of(self._graph.nodes[node])] = _how(ended)
        elif self._is_apart:
            raise RuntimeError(words)
        self._is_apart = True
        self._process = JudgeProcess(self._runtime)
        try:
            self._open()
        except (NoOracle, ChildDied) as error:
            more = "" if isinstance(error, ChildDied) else f" ({one_line(error)})"
            raise RuntimeError(f"{words}{more}") from None


def values_of(runtime: Runtime, model: str, graph: Graph, inputs: Sequence[Array]) -> Values:
    """Run the model on the reference kernels; return a lookup of a part's tensor values.

    The lookup raises Uncut if TFLite does not expose a tensor.
    Raises: CommandError: TFLite does not run the model.
    """
    try:
        judge = open_judge(runtime, graph, model, keeps_all=True)
    except NoOracle as error:
        raise failed(model, error) from error
    with contextlib.closing(judge):
        with failures(model):
            run(judge, inputs)
        known = judge.tensors([tensor.index for tensor in graph.tensors])

    def of(tensor: Tensor) -> Array:
        if tensor.origin not in known:  # it has no data: a variable, or a list
            raise Uncut(f"TFLite does not tell what {tensor.name} is")
        return known[tensor.origin]

    return of


def _how(ended: ChildExit) -> str:
    return f"died with {ended.signal}" if ended.signal else str(ended)


def _words(runtime: Runtime, ended: ChildExit) -> str:
    return f"{runtime.reference} {_how(ended)}"

# SPDX-License-Identifier: Apache-2.0
"""A graph on the reference kernels, chosen node by node.

TFLite's reference kernels run every node that they implement correctly. Other nodes run on
TFLite's built-in kernels or on numpy's. If all nodes run on the reference kernels, one
interpreter runs the whole model; otherwise runs of nodes on the same kernels become models.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from delegate.inspect import Graph, Node, is_wrong_in_reference, write_model
from tflite_opencl.console.errors import one_line
from tflite_opencl.interpreters.interpreter import allocated, overwrites
from tflite_opencl.interpreters.numpy_kernels import NoNumpyForm, require
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.build import Array
from tflite_opencl.models.cut import Uncut, cut, why_uncut
from tflite_opencl.oracle.in_builtins import in_builtins
from tflite_opencl.oracle.node_kernels import (
    BUILTIN,
    NUMPY,
    REFERENCE,
    Kind,
    NodeKernels,
    NoOracle,
    kind_of,
)
from tflite_opencl.oracle.segment import Segment

_WRONG = "the reference kernel is wrong"


class MixedInterpreter:
    """A graph with kernels chosen by node, and the required subset of TFLite's Interpreter.

    The methods raise RuntimeError and ValueError as TFLite's do.

    A failed run may change the choice.
    """

    def __init__(
        self,
        runtime: Runtime,
        graph: Graph,
        model: bytes | str,
        *,
        threads: int | None = 1,
        keeps_all: bool = False,
        left: Collection[int] = (),
        dead: Mapping[Kind, str] | None = None,
        is_apart: bool = False,
        tell: Callable[[int | None], None] = lambda node: None,
    ) -> None:
        """Open the graph; its tensors are allocated.

        Args:
            runtime: the installed TFLite.
            graph: the model's graph to run, as read.
            model: the file, or its content.
            threads: of TFLite's kernels.
            keeps_all: all tensors can be read after a run.
            left: nodes that the CPU runs in the compared path, computed by the built-in kernels;
                if the graph cannot be cut, all nodes run on the same kernels.
            dead: kinds of nodes whose reference kernel killed a process -> how it ended.
            is_apart: each node is a model of its own.
            tell: called with a node before it runs; None: the whole model.

        Raises: NoOracle: no kernels run the graph.
        """
        self._runtime, self._graph, self._threads, self._tell = runtime, graph, threads, tell
        self._keeps_all, self._is_apart = keeps_all or overwrites(graph), is_apart
        builtin = in_builtins(graph)
        self._model = model if builtin is graph else write_model(builtin)
        self._uncut = why_uncut(graph)
        self._kinds = [REFERENCE] * len(graph.nodes)
        self._why: dict[int, str] = {}
        for node in graph.nodes:
            if node.index in left and not self._uncut:
                self._kinds[node.index] = BUILTIN
            elif is_wrong_in_reference(node):
                self._stand_in(node.index, BUILTIN, _WRONG)
            elif dead and (how := dead.get(kind_of(node))):
                self._stand_in(node.index, NUMPY, f"the reference kernel {how}")
        self._whole: Any = None
        self._shell: Any = None  # provides input and output details if the model is cut
        self._segments: list[Segment] = []
        self._given: dict[int, Array] = {}
        self._values: dict[int, Array] = {}
        self._is_after_death = is_apart or bool(dead)
        self._has_run = False
        self._open()

    @property
    def kernels(self) -> NodeKernels:
        """The current kernel of each node."""
        ops = tuple(node.op for node in self._graph.nodes)
        return NodeKernels(ops, tuple(self._kinds), dict(self._why))

    # --- as TFLite's Interpreter

    def allocate_tensors(self) -> None:
        """Do nothing: tensors are already allocated."""

    def get_input_details(self) -> list[Mapping[str, Any]]:
        """Return TFLite's details of the inputs."""
        return [*(self._whole or self._shell).get_input_details()]

    def get_output_details(self) -> list[Mapping[str, Any]]:
        """Return TFLite's details of the outputs, in the shapes of the last run."""
        if self._whole is not None:
            return [*self._whole.get_output_details()]
        return [
            {**each, "shape": np.array(self._values[each["index"]].shape, np.int32)}
            if each["index"] in self._values
            else each
            for each in self._shell.get_output_details()
        ]

    def set_tensor(self, index: int, values: Array) -> None:
        """Copy values into an input. Raises: ValueError: wrong shape or type."""
        if self._whole is not None:
            self._whole.set_tensor(index, values)
        self._given[index] = np.array(values)

    def get_tensor(self, index: int) -> Array:
        """Return a copy of a tensor. Raises: ValueError: TFLite does not expose it."""
        if self._whole is not None:
            return np.array(self._whole.get_tensor(index))
        for segment in self._segments:
            if index in segment.inner:
                return np.array(segment.made.get_tensor(segment.inner[index]))
        if index not in self._values:
            raise ValueError(f"tensor {index} was not computed")
        return np.array(self._values[index])

    def invoke(self) -> None:
        """Run once. Raises: RuntimeError, ValueError: kernels without a substitute fail."""
        first: Exception | None = None
        while True:
            try:
                self._invoke()
                self._has_run = True
                return
            except (RuntimeError, ValueError) as error:
                first = first or error
                if not self._retreat(error):
                    raise first from None

    # --- choice of kernels

    def _stand_in(self, node: int, kind: str, why: str) -> None:
        """Replace a node's reference kernel. Raises: NoOracle: numpy does not implement it."""
        if kind == NUMPY:
            try:
                require(self._graph.nodes[node])
            except NoNumpyForm as error:
                raise NoOracle(f"node {node} ({self._graph.nodes[node].op}): {why}") from error
        self._kinds[node], self._why[node] = kind, why

    def _open(self) -> None:
        """Create the interpreters. Raises: NoOracle."""
        self._whole, used = None, {*self._kinds} or {REFERENCE}
        failure: Exception | None = None
        if len(used) == 1 and NUMPY not in used and not self._is_apart:
            failure = self._open_whole(*used)
            if failure is None:
                return
        try:
            if self._uncut:
                raise Uncut(self._uncut)
            self._open_segments(failure)
        except (Uncut, ValueError, RuntimeError) as error:
            self._open_builtin(failure or error)

    def _open_segments(self, failure: Exception | None) -> None:
        """Cut the graph; `failure`: of the whole. Raises: Uncut, ValueError, RuntimeError."""
        self._shell = self._runtime.interpreter(
            self._model, self._threads, BUILTIN, (), False, self._graph
        )
        if failure is None:
            with contextlib.suppress(ValueError, RuntimeError):
                self._cut()
                return
        before = [*self._kinds]
        for node in self._graph.nodes:
            self._look_up(node)
        if self._kinds == before:  # the error concerns the whole model
            raise RuntimeError(one_line(failure) if failure else "no kernels take all nodes")
        self._cut()

    def _open_whole(self, kind: str) -> Exception | None:
        """Open one interpreter for the whole model, or return why that fails."""
        given = self._model, kind, (), self._threads, self._keeps_all, self._graph
        try:
            self._whole = allocated(self._runtime, *given)
            for index, values in self._given.items():
                self._whole.set_tensor(index, values)
        except (RuntimeError, ValueError) as error:
            self._whole = None
            return error
        return None

    def _look_up(self, node: Node) -> None:
        """Use the built-in kernel of a node without a reference kernel, if there is one.

        Probes the installed TFLite: the set differs between versions.
        """
        if self._kinds[node.index] != REFERENCE:
            return
        model = write_model(in_builtins(cut(self._graph, node.index, node.index)))
        failures = {}
        for kind in (REFERENCE, BUILTIN):
            try:
                allocated(self._runtime, model, kind)
            except (RuntimeError, ValueError) as error:
                failures[kind] = _told(error)
        if {*failures} == {REFERENCE}:
            self._stand_in(node.index, BUILTIN, failures[REFERENCE])

    def _open_builtin(self, error: Exception) -> None:
        """Run a graph that cannot be cut on the built-in kernels. Raises: NoOracle: `error`."""
        if self._is_after_death or self._open_whole(BUILTIN) is not None:
            raise NoOracle(one_line(error)) from error
        for index, kind in enumerate(self._kinds):
            if kind != BUILTIN:
                self._stand_in(index, BUILTIN, f"all nodes run on the same: {_told(error)}")

    def _cut(self) -> None:
        """Cut the graph into models. Raises: Uncut, ValueError, RuntimeError: it cannot be cut."""
        self._segments, first = [], 0
        given, how = (self._runtime, self._graph), (self._threads, self._keeps_all)
        for index, kind in enumerate(self._kinds):
            is_last = kind not in self._kinds[index + 1 : index + 2]
            if is_last or self._is_apart or kind == NUMPY:
                self._segments.append(Segment(*given, (first, index), kind, *how))
                first = index + 1

    # --- runs

    def _invoke(self) -> None:
        if self._whole is not None:
            self._tell(None)
            self._whole.invoke()
            return
        values = {t.index: t.data for t in self._graph.tensors if t.data is not None}
        for each in self._shell.get_input_details():
            zeros = np.zeros(each["shape"], each["dtype"])
            values[each["index"]] = self._given.get(each["index"], zeros)
        self._values = values
        for segment in self._segments:
            self._tell(segment.node.index)
            self._at = segment
            segment.run(values)

    def _retreat(self, error: Exception) -> bool:
        """Choose other kernels after a failed run; return whether there are any."""
        is_stateful = any(tensor.is_variable for tensor in self._graph.tensors)
        if is_stateful and self._has_run:  # its state would be lost
            return False
        if self._whole is None and self._is_apart:
            node = self._at.node.index
            if self._kinds[node] != REFERENCE:
                return False
            self._stand_in(node, BUILTIN, _told(error))
        elif REFERENCE not in self._kinds:
            return False
        self._is_apart = True
        try:
            self._open()
        except NoOracle:
            return False
        return True


def _told(error: Exception) -> str:
    """Return the first sentence of a TFLite error."""
    return one_line(error).partition(". ")[0].rstrip(".")

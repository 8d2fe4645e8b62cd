# SPDX-License-Identifier: Apache-2.0
"""Runs of a Model under way: an executor, the memory it copies from and to, and its last run."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import DelegateError
from delegate.graph.ir import Graph, Tensor
from delegate.runtime.executor import Executor
from delegate.runtime.layout import as_bytes

Array = NDArray[Any]


class Pending:
    """A run under way, or its outcome."""

    def __init__(self, slot: Slot, held: object, count: int) -> None:
        self._slot = slot
        self._held: object = held  # what the device reads until the end
        self._count = count
        self._outcome: list[Array] | DelegateError | None = None

    def result(self) -> list[Array]:
        """Wait for the end of the run and return its outputs, the same arrays at each call.

        Raises:
            DeviceError: the run failed.
        """
        with self._slot.lock:
            self.finish()
        if isinstance(self._outcome, list):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    def finish(self) -> None:
        """Wait for the end of the run and keep its outcome; the slot's lock is held."""
        if self._outcome is None:
            try:
                self._outcome = self._slot.outputs(self._count)
            except DelegateError as error:
                self._outcome = error
            self._held = None


class Slot:
    """An executor, what it copies from and to, and its last run."""

    def __init__(self, executor: Executor, graph: Graph, batch: int) -> None:
        self.executor = executor
        self.lock = threading.Lock()
        self._graph = graph
        self._batch = batch
        self._last: Pending | None = None
        program = executor.program
        # Where the program's inputs are among the graph's, and the graph's outputs in the program.
        places = {tensor: place for place, tensor in enumerate(graph.inputs)}
        self._inputs = [places[tensor] for tensor in program.inputs]
        self._outputs = [program.outputs.index(tensor) for tensor in graph.outputs]
        self._staged: dict[Tensor, Array] = {}
        self._results = {
            tensor: self.host_array(batch_shape(tensor, batch), np.dtype(tensor.dtype))
            for tensor in executor.program.outputs
        }

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the outputs of a whole batch, by the device's best way for a run alone."""
        with self.lock:
            self._finish_last()
            results = [np.empty_like(array) for array in self._results.values()]
            self.executor.run(
                [as_bytes(arrays[i]) for i in self._inputs], [as_bytes(each) for each in results]
            )
            return [results[i] for i in self._outputs]

    def start(self, arrays: Sequence[Array], count: int, copy: bool) -> Pending:
        """Submit a run of the first `count` pictures after the one before has ended."""
        with self.lock:
            self._finish_last()
            inputs = dict(zip(self._graph.inputs, arrays, strict=True))
            if copy or count < self._batch:
                inputs = {tensor: self._stage(tensor, array) for tensor, array in inputs.items()}
            program = self.executor.program
            read = [as_bytes(inputs[tensor]) for tensor in program.inputs]
            written = [as_bytes(self._results[tensor]) for tensor in program.outputs]
            self.executor.submit(read, written)
            self._last = Pending(self, read, count)
            return self._last

    def outputs(self, count: int) -> list[Array]:
        """Wait for the run and return copies of the first pictures' outputs."""
        self.executor.wait()
        return [self._results[tensor][:count].copy() for tensor in self._graph.outputs]

    def host_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return memory that is fast to copy from and to the device."""
        size = math.prod(shape) * dtype.itemsize
        return self.executor.host_array(size).view(dtype).reshape(shape)

    def close(self) -> None:
        """End the last run and close the executor."""
        with self.lock:
            self._finish_last()
            self.executor.close()

    def _finish_last(self) -> None:
        if self._last is not None:
            self._last.finish()
            self._last = None

    def _stage(self, tensor: Tensor, array: Array) -> Array:
        if tensor not in self._staged:
            shape = batch_shape(tensor, self._batch)
            self._staged[tensor] = self.host_array(shape, array.dtype)
        # What follows the pictures given is of an earlier batch: its outputs are left out.
        self._staged[tensor][: len(array)] = array
        return self._staged[tensor]


def batch_shape(tensor: Tensor, batch: int) -> tuple[int, ...]:
    """Return the shape of a batch of pictures' values of a tensor."""
    own = tensor.shape[1:] if tensor.shape[:1] == (1,) else tensor.shape
    return (batch, *own)

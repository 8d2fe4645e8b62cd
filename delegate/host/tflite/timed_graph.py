# SPDX-License-Identifier: Apache-2.0
"""Times a graph in an interpreter of its own, with or without nodes on a device."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import InvalidValue
from delegate.format.writer import write_model
from delegate.graph.ir import Graph
from delegate.host.tflite.callbacks import Constants, Kernel, NativeDelegate, PlannedNode, Shapes

_WARM_UP_RUNS = 2
_OF_GRAPH = (InvalidValue, RuntimeError, ValueError)  # errors that each run would meet


class TimedGraph:
    """An interpreter of a graph on TFLite's default kernels, beside a kernel that takes some nodes.

    So a run costs what it costs an application: the call into the delegate and the copies of the
    kernel's inputs and outputs, too.
    """

    def __init__(
        self,
        package: str,
        graph: Graph,
        threads: int,
        taken: Collection[int] = (),
        kernel: Kernel | None = None,
    ) -> None:
        """Create it, and run it a few times on random values.

        `package`: the import name of a TFLite runtime. `threads`: of the CPU; below 1: TFLite's
        default. `taken`: the indices of the nodes that `kernel` runs, one partition.

        Raises:
            ImportError: no such package. RuntimeError, ValueError: TFLite cannot run the graph.
            DeviceError: the kernel's.
        """
        self._failure: BaseException | None = None
        self._taken, self._kernel = taken, kernel
        self._left: Collection[int] = taken  # to claim
        self._native = None if kernel is None else NativeDelegate("Timed", self)
        interpreter = importlib.import_module(f"{package}.interpreter").Interpreter
        with self._kernel_errors():
            self._made = interpreter(
                model_content=write_model(graph),
                num_threads=threads if threads > 0 else None,
                experimental_delegates=None if kernel is None else [self],
            )
            self._made.allocate_tensors()
        rng = np.random.default_rng(0)
        for detail in self._made.get_input_details():
            self._made.set_tensor(detail["index"], _random(rng, detail["shape"], detail["dtype"]))
        self.seconds(_WARM_UP_RUNS)

    def seconds(self, count: int) -> float:
        """Return the seconds of a run, the mean of `count`. Raises as the constructor."""
        invoke = self._made.invoke
        with self._kernel_errors():
            begin = time.perf_counter()
            for _ in range(count):
                invoke()
            return (time.perf_counter() - begin) / count

    @contextlib.contextmanager
    def _kernel_errors(self) -> Iterator[None]:
        """Raise what is no fault of the graph as it is: TFLite makes a RuntimeError of it."""
        self._failure = None
        try:
            yield
        except Exception as error:
            known = self._failure
            if known is not None and not isinstance(known, _OF_GRAPH):
                raise known from error
            raise

    def close(self) -> None:
        """Free the interpreter."""
        self._made = None
        if self._native is not None:
            self._native.close()

    def _get_native_delegate_pointer(self) -> int:
        assert self._native is not None
        return self._native.address

    # The hooks of delegate.host.tflite.callbacks.

    def claim(
        self, context: int, plan: Sequence[PlannedNode], shapes: Shapes, constants: Constants
    ) -> Sequence[int]:
        """Return the indices of the nodes to take: of the first graph, which calls others."""
        taken, self._left = self._left, ()
        return [*taken]

    def partition(self, context: int, nodes: tuple[int, ...]) -> Kernel:
        """Return the kernel of the claimed nodes. Raises ValueError: they are not one partition."""
        if self._kernel is None or {*nodes} != {*self._taken}:
            raise ValueError(f"TFLite has split the partition: {nodes}")
        return self._kernel

    def failed(self, error: BaseException) -> None:
        """Remember the error, which TFLite reports without its type."""
        self._failure = error


def _random(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
    """Return random values; wider integers may be indices, and are 0."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return rng.standard_normal(shape).astype(kind)
    if kind.kind in "iu" and kind.itemsize == 1:
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, shape, kind, endpoint=True)
    return np.zeros(shape, kind)

# SPDX-License-Identifier: Apache-2.0
"""An open path: a model ready to run batches of pictures.

It neither reads pictures nor decodes results, and adds up nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from delegate import DeviceInfo, Model
from delegate import Run as DeviceRun
from delegate.inspect import Graph, Portion, Tensor
from label_image.console import delegate_failures
from label_image.run_result import Array, BatchResult, Outputs, RunResult
from tflite_opencl.harness.job import Job
from tflite_opencl.oracle.node_kernels import NodeKernels
from tflite_opencl.timing.timing import total_cpu_seconds

_AHEAD = 3  # batches per device that Model.run_async queues before it blocks

RunBatch = Callable[[Array], BatchResult]  # raises as OpenPath.run


@dataclass(eq=False)
class BatchRun:
    """A batch submitted to a path."""

    result: Callable[[], BatchResult]  # waits for it; raises as OpenPath.run
    piece: DeviceRun | None = None  # its run on one of several devices; None: `result` runs it

    @property
    def is_done(self) -> bool:
        """Whether `result` returns without waiting for another thread."""
        return self.piece is None or self.piece.is_done

    def cancel(self) -> None:
        """Drop it if it has not started."""
        if self.piece is not None:
            self.piece.cancel()


class OpenPath:
    """A model that stays ready to run batches of pictures until its context is left.

    Attributes:
        facts: its result before the first picture. ahead: maximum number of batches in flight.
        empty_batch: allocates memory for a batch that this path reads faster than other memory.
    """

    def __init__(
        self,
        facts: RunResult,
        run_batch: RunBatch,
        empty_batch: Callable[[], Array] | None = None,
        ahead: int = 1,
    ) -> None:
        self.facts, self.empty_batch, self.ahead = facts, empty_batch, ahead
        self._run_batch = run_batch

    @property
    def portions(self) -> Sequence[Portion]:
        """The share of each of several devices so far; () for one device."""
        return ()

    def warm_up(self, pixels: Array, runs: int) -> None:
        """Run this many times on every device. Raises as `run`."""
        for _ in range(runs):
            self._run_batch(pixels)

    def start(self, pixels: Array, listen: Callable[[], object]) -> BatchRun:
        """Start a run; `listen` is called when another thread has its outputs.

        Raises: as `run`.
        """
        return BatchRun(partial(self.run, pixels))

    def gives_up(self, device: DeviceInfo | None, why: str) -> bool:
        """Stop using one of several devices, if another one is left; return whether it did."""
        return False

    def run(self, pixels: Array) -> BatchResult:
        """Run a batch.

        Shapes: (n, h, w, c), n up to the batch
        Raises:
            RunError: TFLite fails. DelegateFailed: the OpenCL delegate, or a run with it, failed.
        """
        return self._run_batch(pixels)


def with_times(
    run: Callable[[Array], Sequence[Outputs]], judge: Callable[[], NodeKernels | None] | None = None
) -> RunBatch:
    """Return a runner of batches that takes their times; `judge`: the kernels of the last run."""

    def run_batch(pixels: Array) -> BatchResult:
        begin_s, cpu_begin_s = time.perf_counter(), total_cpu_seconds()
        outputs = run(pixels)
        seconds = time.perf_counter() - begin_s
        cpu_seconds = total_cpu_seconds() - cpu_begin_s
        return BatchResult(outputs, seconds, cpu_seconds, judge() if judge else None)

    return run_batch


def model_path(model: Model, job: Job, graph: Graph, facts: RunResult) -> OpenPath:
    """Return the path of a model; inputs other than the picture come from the job."""
    inputs = [np.zeros(details.shape, details.dtype) for details in model.input_details]
    for number, value in job.other_inputs:
        inputs[number][...] = value

    def arrays(pixels: Array) -> list[Array]:
        values = [array[: len(pixels)] for array in inputs]
        values[job.input_number] = pixels
        return values

    def run(pixels: Array) -> list[Outputs]:
        with delegate_failures():
            return outputs_of_each(model.run(arrays(pixels)), graph.outputs)

    def empty_batch() -> Array:
        empty = model.empty_input()
        return empty[job.input_number] if isinstance(empty, list) else empty

    facts = replace(facts, batch=model.batch)
    if model.portions:
        return SpreadPath(model, graph, arrays, facts, empty_batch)
    return OpenPath(facts, with_times(run), empty_batch)


class SpreadPath(OpenPath):
    """A path over several devices: one batch per device, plus queued ones."""

    def __init__(
        self,
        model: Model,
        graph: Graph,
        arrays: Callable[[Array], list[Array]],
        facts: RunResult,
        empty_batch: Callable[[], Array],
    ) -> None:
        """`arrays`: all inputs of a batch of pictures."""
        super().__init__(facts, self._run_alone, empty_batch, _AHEAD * len(model.portions))
        self._model, self._graph, self._arrays = model, graph, arrays
        self._clock = BusyClock()

    @property
    def portions(self) -> Sequence[Portion]:
        return self._model.portions

    def warm_up(self, pixels: Array, runs: int) -> None:
        with delegate_failures():
            for _ in range(runs):
                self._model.run_on_each(self._arrays(pixels))

    def start(self, pixels: Array, listen: Callable[[], object]) -> BatchRun:
        """Submit a batch to the devices; `listen` is called when its outputs are ready."""
        self._clock.count(1)
        try:
            with delegate_failures():
                piece = self._model.run_async(self._arrays(pixels))
        except BaseException:
            self._clock.count(-1)
            raise

        def ended() -> None:
            self._clock.count(-1)
            listen()

        piece.when_done(ended)
        return BatchRun(partial(self._result, piece), piece)

    def gives_up(self, device: DeviceInfo | None, why: str) -> bool:
        if not any(not each.failure and each.device != device for each in self.portions):
            return False
        if device is not None:
            self._model.leave_out(device, why)
        return True

    def _run_alone(self, pixels: Array) -> BatchResult:
        return self.start(pixels, lambda: None).result()

    def _result(self, piece: DeviceRun) -> BatchResult:
        with delegate_failures():
            outputs = outputs_of_each(piece.result(), self._graph.outputs)
        return BatchResult(outputs, *self._clock.take())


class BusyClock:
    """The time with at least one batch in flight; batches in parallel count once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects all fields
        self._in_flight = 0
        self._changed = 0.0, 0.0  # when that number last changed
        self._seconds = self._cpu_seconds = 0.0

    def count(self, more: int) -> None:
        """Count batches that start or end."""
        with self._lock:
            self._add_busy()
            self._in_flight += more

    def take(self) -> tuple[float, float]:
        """Return the wall-clock and CPU seconds since the last call."""
        with self._lock:
            self._add_busy()  # a batch may be waited for before its end is counted
            spent = self._seconds, self._cpu_seconds
            self._seconds = self._cpu_seconds = 0.0
            return spent

    def _add_busy(self) -> None:
        now = time.perf_counter(), total_cpu_seconds()
        if self._in_flight:
            self._seconds += now[0] - self._changed[0]
            self._cpu_seconds += now[1] - self._changed[1]
        self._changed = now


def outputs_of_each(outputs: Sequence[Array], tensors: Sequence[Tensor]) -> list[Outputs]:
    """Split a batch's outputs by picture.

    Raises: ValueError: their batch size is not the number of pictures.
    """
    return [
        tuple(
            output[number].reshape(tensor.shape)
            for output, tensor in zip(outputs, tensors, strict=True)
        )
        for number in range(len(outputs[0]))
    ]

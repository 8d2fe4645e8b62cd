# SPDX-License-Identifier: Apache-2.0
"""A path: a model ready to run batches of pictures, or already timed on one input.

Neither reads pictures nor decodes results.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import DeviceInfo, Model
from delegate import Run as DeviceRun
from delegate.inspect import Graph, Portion, Tensor
from label_image.console import delegate_failures
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.oracle.node_kernels import NodeKernels
from tflite_opencl.timing.profile import Profile
from tflite_opencl.timing.timing import Times, are_enough, cores, total_cpu_seconds
from tflite_opencl.timing.trace import Trace

_AHEAD = 3  # batches per device that Model.run_async queues before it blocks

Array = NDArray[Any]
Outputs = tuple[Array, ...]  # of one picture, in the model's own shapes


@dataclass(eq=False)
class BatchRun:
    """A batch submitted to a path."""

    outputs: Callable[[], list[Outputs]]  # returns each picture's; raises as Path.run
    piece: DeviceRun | None = None  # its run on one of several devices; None: `outputs` runs it

    @property
    def is_done(self) -> bool:
        """Whether `outputs` returns without waiting for another thread."""
        return self.piece is None or self.piece.is_done

    def cancel(self) -> None:
        """Drop it if it has not started."""
        if self.piece is not None:
            self.piece.cancel()


@dataclass(eq=False)
class Path:
    """A model ready to run, or one timed on its job's input and closed again."""

    load_ms: float  # from the file to allocated tensors, kernels built
    call: Callable[[Array], Any] | None = None  # runs a batch; None: only the job's input was run
    batch: int = 1  # pictures per run
    delegation: Delegation | None = None  # of the OpenCL delegate
    load_parts: Mapping[str, float] = field(default_factory=dict)  # of load_ms, by Watch's phases
    # Allocates memory for a batch that this path reads faster than other memory.
    empty_batch: Callable[[], Array] | None = None
    ahead: int = 1  # maximum number of batches in flight
    # the reference path's kernels; None: not the reference path
    judged_by: NodeKernels | None = None

    # Set if it was timed:
    outputs: Outputs = field(default=(), repr=False)  # none after Ctrl-C
    times: Times | None = None
    longer: Times | None = None  # as many runs as a comparison needs, if requested
    profile: Profile | None = None  # of OpenCL's nodes, if requested
    trace: Trace | None = None  # of some additional runs, if requested

    # Pictures passed to `run`, and the time from tensors to outputs: wall-clock, and CPU time of
    # all threads, including a child process that executes the plans.
    pictures: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def device_name(self) -> str:
        """The name of the device that runs it, or of several."""
        return self.delegation.device if self.delegation else "the device"

    @property
    def portions(self) -> Sequence[Portion]:
        """The share of each of several devices; () for one device."""
        return ()

    @property
    def comparison_times(self) -> Times | None:
        """The times to compare with other paths'; None: it was not timed."""
        return self.longer or self.times

    @property
    def per_second(self) -> float:
        """Pictures per second, from tensors to outputs."""
        return self.pictures / self.seconds if self.seconds else 0.0

    @property
    def picture_ms(self) -> float:
        """Milliseconds per picture; 0 before the first run.

        The median of timed runs: load on the machine shifts averages.
        """
        if (times := self.comparison_times) is not None:
            return times.median_ms
        return 1e3 * self.seconds / self.pictures if self.pictures else 0.0

    @property
    def cpu_load(self) -> float:
        """CPU time of all threads over wall-clock time."""
        return cores(self.cpu_seconds, self.seconds)

    @property
    def has_run_enough(self) -> bool:
        """Whether there are enough runs to compare the times with another path's."""
        if (times := self.comparison_times) is not None:
            return times.are_enough and times.median_ms > 0
        return are_enough(self.pictures, self.seconds)

    def warm_up(self, pixels: Array, runs: int) -> None:
        """Run this many times without counting. Raises as `run`."""
        assert self.call is not None
        for _ in range(runs):
            self.call(pixels)

    def start(self, pixels: Array, listen: Callable[[], object]) -> BatchRun:
        """Start a run; `listen` is called when another thread has its outputs.

        Raises: as `run`.
        """
        return BatchRun(partial(self.run, pixels))

    def gives_up(self, device: DeviceInfo | None, why: str) -> bool:
        """Stop using one of several devices, if another one is left; return whether it did."""
        return False

    def run(self, pixels: Array) -> list[Outputs]:
        """Return each picture's outputs.

        Shapes: (n, h, w, c), n up to the batch; if it was timed, only the job's input
        Raises:
            RunError: TFLite fails. DelegateFailed: the OpenCL delegate, or a run with it, failed.
        """
        if self.call is None:
            return [self.outputs]
        begin_s, cpu_begin_s = time.perf_counter(), total_cpu_seconds()
        outputs: list[Outputs] = self.call(pixels)
        self.seconds += time.perf_counter() - begin_s
        self.cpu_seconds += total_cpu_seconds() - cpu_begin_s
        self.pictures += len(pixels)
        return outputs


def model_path(model: Model, job: Job, graph: Graph, **facts: Any) -> Path:
    """Return the path of a model; inputs other than the picture come from the job.

    `facts`: further fields of Path.
    """
    inputs = [np.zeros(details.shape, details.dtype) for details in model.input_details]
    for number, value in job.other_inputs:
        inputs[number][...] = value

    def arrays(pixels: Array) -> list[Array]:
        given = [array[: len(pixels)] for array in inputs]
        given[job.input_number] = pixels
        return given

    def run(pixels: Array) -> list[Outputs]:
        with delegate_failures():
            return outputs_of_each(model.run(arrays(pixels)), graph.outputs)

    def empty_batch() -> Array:
        made = model.empty_input()
        return made[job.input_number] if isinstance(made, list) else made

    facts = {"batch": model.batch, "empty_batch": empty_batch, **facts}
    if model.portions:
        return SpreadPath(model, graph, arrays, ahead=_AHEAD * len(model.portions), **facts)
    return Path(call=run, **facts)


class SpreadPath(Path):
    """A path over several devices: one batch per device, plus queued ones.

    Its seconds are those with a batch in flight.
    """

    def __init__(
        self, model: Model, graph: Graph, arrays: Callable[[Array], list[Array]], **facts: Any
    ) -> None:
        """`arrays`: all inputs of a batch of pictures. `facts`: as for `model_path`."""
        super().__init__(**facts)
        self._model, self._graph, self._arrays = model, graph, arrays
        self._lock = threading.Lock()  # protects the next two fields, and the seconds
        self._under_way = 0
        self._since = 0.0, 0.0  # time of the last change

    @property
    def portions(self) -> Sequence[Portion]:
        return self._model.portions

    @property
    def device_name(self) -> str:  # of the remaining devices
        return " + ".join(each.device.name for each in self.portions if not each.failure)

    def warm_up(self, pixels: Array, runs: int) -> None:
        with delegate_failures():
            for _ in range(runs):
                self._model.run_on_each(self._arrays(pixels))

    def start(self, pixels: Array, listen: Callable[[], object]) -> BatchRun:
        """Submit a batch to the devices; `listen` is called when its outputs are ready."""
        self._count(1)
        try:
            with delegate_failures():
                piece = self._model.run_async(self._arrays(pixels))
        except BaseException:
            self._count(-1)
            raise

        def ended() -> None:
            self._count(-1)
            listen()

        piece.when_done(ended)
        return BatchRun(partial(self._split, piece), piece)

    def run(self, pixels: Array) -> list[Outputs]:
        return self.start(pixels, lambda: None).outputs()

    def gives_up(self, device: DeviceInfo | None, why: str) -> bool:
        if not any(not each.failure and each.device != device for each in self.portions):
            return False
        if device is not None:
            self._model.leave_out(device, why)
        return True

    def _split(self, piece: DeviceRun) -> list[Outputs]:
        """Return each picture's outputs, and count the pictures."""
        with delegate_failures():
            each = outputs_of_each(piece.result(), self._graph.outputs)
        self.pictures += len(each)
        return each

    def _count(self, more: int) -> None:
        """Update the batches in flight, and the time with at least one."""
        with self._lock:
            now = time.perf_counter(), total_cpu_seconds()
            if self._under_way:
                self.seconds += now[0] - self._since[0]
                self.cpu_seconds += now[1] - self._since[1]
            self._under_way += more
            self._since = now


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

# SPDX-License-Identifier: Apache-2.0
"""A path: a model that is ready to run batches of pictures, or that was timed on one.

It neither reads pictures nor decodes results.
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
from tflite_opencl.oracle.node_kernels import Kernels
from tflite_opencl.timing.profile import Profile
from tflite_opencl.timing.timing import Times, are_enough, cores, total_cpu_seconds
from tflite_opencl.timing.trace import Trace

_AHEAD = 3  # batches a device that Model.run_async takes before it waits

Array = NDArray[Any]
Outputs = tuple[Array, ...]  # of one picture, in the model's own shapes


@dataclass(eq=False)
class Run:
    """A batch that a path was given."""

    outputs: Callable[[], list[Outputs]]  # gives each picture's; raises as Path.run
    piece: DeviceRun | None = None  # what several devices make of it; None: `outputs` runs it

    @property
    def is_done(self) -> bool:
        """Whether `outputs` has no other thread to wait for."""
        return self.piece is None or self.piece.is_done

    def cancel(self) -> None:
        """Leave it out, if it has not begun."""
        if self.piece is not None:
            self.piece.cancel()


@dataclass(eq=False)
class Path:
    """A model that is ready to run, or that was timed on its job's input and is closed."""

    load_ms: float  # from the file to allocated tensors, kernels built
    call: Callable[[Array], Any] | None = None  # runs a batch; None: the job's input was all
    batch: int = 1  # pictures at once
    delegation: Delegation | None = None  # of the OpenCL delegate
    load_parts: Mapping[str, float] = field(default_factory=dict)  # of load_ms, by Watch's phases
    # Gives memory for a batch that this path reads faster than other memory.
    empty_batch: Callable[[], Array] | None = None
    ahead: int = 1  # batches that may be under way at once
    judged_by: Kernels | None = None  # which kernels ran, where they judge; None: it is no judge

    # Where it was timed:
    outputs: Outputs = field(default=(), repr=False)  # after Ctrl-C there are none
    times: Times | None = None
    longer: Times | None = None  # of as many runs as a comparison needs, if that was asked for
    profile: Profile | None = None  # of OpenCL's nodes, if that was asked for
    trace: Trace | None = None  # of some more runs, if that was asked for

    # What `run` was given, and the time from tensors to outputs that took: by the clock, and of
    # all threads, those of a child that executes the plans, too.
    pictures: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def device_name(self) -> str:
        """The name of the device that runs it, or of several."""
        return self.delegation.device if self.delegation else "the device"

    @property
    def portions(self) -> Sequence[Portion]:
        """What each of several devices did; () of one."""
        return ()

    @property
    def comparison_times(self) -> Times | None:
        """Give the times that are compared with other paths'; None: it was not timed."""
        return self.longer or self.times

    @property
    def per_second(self) -> float:
        """Pictures a second, from tensors to outputs."""
        return self.pictures / self.seconds if self.seconds else 0.0

    @property
    def picture_ms(self) -> float:
        """Milliseconds a picture, 0 where none has run.

        Of timed runs it is the median, as a busy machine moves averages.
        """
        if (times := self.comparison_times) is not None:
            return times.median_ms
        return 1e3 * self.seconds / self.pictures if self.pictures else 0.0

    @property
    def cpu_load(self) -> float:
        """CPU time of all threads over the time by the clock."""
        return cores(self.cpu_seconds, self.seconds)

    @property
    def has_run_enough(self) -> bool:
        """Whether there are enough runs to compare their times with another path's."""
        if (times := self.comparison_times) is not None:
            return times.are_enough and times.median_ms > 0
        return are_enough(self.pictures, self.seconds)

    def warm_up(self, pixels: Array, runs: int) -> None:
        """Run so many times, and count none of them. Raises as `run`."""
        assert self.call is not None
        for _ in range(runs):
            self.call(pixels)

    def start(self, pixels: Array, listen: Callable[[], object]) -> Run:
        """Return what gives the outputs; `listen` is called when another thread has them.

        Raises: as `run`.
        """
        return Run(partial(self.run, pixels))

    def gives_up(self, device: DeviceInfo | None, why: str) -> bool:
        """Give one of several devices no more, if another one is left; return whether it is so."""
        return False

    def run(self, pixels: Array) -> list[Outputs]:
        """Return each picture's outputs.

        Shapes: (n, h, w, c), n up to the batch; where it was timed, the job's input alone
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
    """Return the path of a model; other inputs than the picture's are the job's.

    `facts`: what else is known of the path, by its names in Path.
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
    """A path over several devices: a batch a device, and more that wait.

    Its seconds are those in which a batch was under way.
    """

    def __init__(
        self, model: Model, graph: Graph, arrays: Callable[[Array], list[Array]], **facts: Any
    ) -> None:
        """`arrays`: all inputs of a batch of pictures. `facts`: as of `model_path`."""
        super().__init__(**facts)
        self._model, self._graph, self._arrays = model, graph, arrays
        self._lock = threading.Lock()  # of the two below, and of the seconds
        self._under_way = 0
        self._since = 0.0, 0.0  # when that changed

    @property
    def portions(self) -> Sequence[Portion]:
        return self._model.portions

    @property
    def device_name(self) -> str:  # of the devices that are left
        return " + ".join(each.device.name for each in self.portions if not each.failure)

    def warm_up(self, pixels: Array, runs: int) -> None:
        with delegate_failures():
            for _ in range(runs):
                self._model.run_on_each(self._arrays(pixels))

    def start(self, pixels: Array, listen: Callable[[], object]) -> Run:
        """Give the devices a batch; `listen` is called when its outputs are there."""
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
        return Run(partial(self._split, piece), piece)

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
        """Count the batches under way, and the time in which there was one."""
        with self._lock:
            now = time.perf_counter(), total_cpu_seconds()
            if self._under_way:
                self.seconds += now[0] - self._since[0]
                self.cpu_seconds += now[1] - self._since[1]
            self._under_way += more
            self._since = now


def outputs_of_each(outputs: Sequence[Array], tensors: Sequence[Tensor]) -> list[Outputs]:
    """Split the outputs of a batch.

    Raises: ValueError: they are not as many as pictures.
    """
    return [
        tuple(
            output[number].reshape(tensor.shape)
            for output, tensor in zip(outputs, tensors, strict=True)
        )
        for number in range(len(outputs[0]))
    ]

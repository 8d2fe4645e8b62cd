# SPDX-License-Identifier: Apache-2.0
"""The paths that are a delegate.Model: whole batches on one device, or on several of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from delegate import DeviceInfo, Model
from delegate import Run as DeviceRun
from delegate.inspect import Graph, Portion
from label_image.errors import delegate_failures
from label_image.path import Array, OpenPath, Outputs, Run, outputs_of_each
from tflite_opencl.common.job import Delegation, Job

_AHEAD = 3  # batches a device that Model.run_async takes before it waits


def model_path(
    model: Model,
    job: Job,
    graph: Graph,
    load_ms: float,
    taken: Delegation,
    load_parts: Mapping[str, float],
) -> OpenPath:
    """Return the path of a model; other inputs than the picture's are the job's."""
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

    if model.portions:
        return SpreadPath(model, graph, arrays, load_ms, taken, empty_batch, load_parts)
    return OpenPath(run, load_ms, model.batch, taken, empty_batch, load_parts)


class SpreadPath(OpenPath):
    """A path over several devices: a batch a device, and more that wait.

    Its seconds are those in which a batch was under way.
    """

    def __init__(
        self,
        model: Model,
        graph: Graph,
        arrays: Callable[[Array], list[Array]],
        load_ms: float,
        taken: Delegation,
        empty_batch: Callable[[], Array],
        load_parts: Mapping[str, float],
    ) -> None:
        """`arrays`: all inputs of a batch of pictures."""
        super().__init__(self.run, load_ms, model.batch, taken, empty_batch, load_parts)
        self._model, self._graph, self._arrays = model, graph, arrays
        self.ahead = _AHEAD * len(model.portions)
        self._lock = threading.Lock()  # of the two below, and of the seconds
        self._under_way = 0
        self._since = 0.0, 0.0  # when there was none before

    @property
    def portions(self) -> Sequence[Portion]:
        """What each device did."""
        return self._model.portions

    @property
    def device_name(self) -> str:
        """The names of the devices that are left."""
        return " + ".join(each.device.name for each in self.portions if not each.failure)

    def warm_up(self, pixels: Array, runs: int) -> None:
        """Run so many times on each device; raises as `run`."""
        with delegate_failures():
            for _ in range(runs):
                self._model.run_on_each(self._arrays(pixels))

    def start(self, pixels: Array, listen: Callable[[], object]) -> Run:
        """Give the devices a batch; `listen` is called when its outputs are there."""
        self._begin()
        try:
            with delegate_failures():
                piece = self._model.run_async(self._arrays(pixels))
        except BaseException:
            self._end()
            raise

        def ended() -> None:
            self._end()
            listen()

        piece.when_done(ended)
        return _PieceRun(self, pixels, piece)

    def run(self, pixels: Array) -> list[Outputs]:
        """Return each picture's outputs. Shapes, Raises: as OpenPath.run."""
        return self.start(pixels, lambda: None).outputs()

    def split(self, outputs: Sequence[Array]) -> list[Outputs]:
        """Return each picture's outputs, and count the pictures."""
        each = outputs_of_each(outputs, self._graph.outputs)
        self.pictures += len(each)
        return each

    def gives_up(self, device: DeviceInfo | None, why: str) -> bool:
        """Give a device no more, if another one is left; return whether it is so."""
        if not any(not each.failure and each.device != device for each in self.portions):
            return False
        if device is not None:
            self._model.leave_out(device, why)
        return True

    def _begin(self) -> None:
        with self._lock:
            if not self._under_way:
                self._since = time.perf_counter(), time.process_time()
            self._under_way += 1

    def _end(self) -> None:
        with self._lock:
            self._under_way -= 1
            if not self._under_way:
                self.seconds += time.perf_counter() - self._since[0]
                self.cpu_seconds += time.process_time() - self._since[1]


class _PieceRun(Run):
    def __init__(self, path: SpreadPath, pixels: Array, piece: DeviceRun) -> None:
        super().__init__(path, pixels)
        self._spread, self._piece = path, piece

    @property
    def is_done(self) -> bool:
        return self._piece.is_done

    @property
    def device(self) -> DeviceInfo | None:
        return self._piece.device

    def outputs(self) -> list[Outputs]:
        with delegate_failures():
            return self._spread.split(self._piece.result())

    def cancel(self) -> None:
        self._piece.cancel()

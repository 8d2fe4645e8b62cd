# SPDX-License-Identifier: Apache-2.0
"""A path that stays open for many pictures: a batch of tensors in, outputs out, the time between.

It neither reads pictures nor decodes results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from delegate import DeviceInfo
from delegate.inspect import Portion, Tensor
from tflite_opencl.common.job import Delegation

Array = NDArray[Any]
Outputs = tuple[Array, ...]  # of one picture, in the model's own shapes


class Run:
    """A batch that a path was given; this one runs when its outputs are asked for."""

    def __init__(self, path: OpenPath, pixels: Array) -> None:
        self._path, self._pixels = path, pixels

    @property
    def is_done(self) -> bool:
        """Whether `outputs` has no other thread to wait for."""
        return True

    @property
    def device(self) -> DeviceInfo | None:
        """Which of several devices ran it."""
        return None

    def outputs(self) -> list[Outputs]:
        """Return each picture's outputs; raises as OpenPath.run."""
        return self._path.run(self._pixels)

    def cancel(self) -> None:
        """Leave it out, if it has not begun."""


class OpenPath:
    """A model ready to run.

    Attributes:
        load_ms: from the file to allocated tensors, kernels built; batch: pictures at once.
        load_parts: of load_ms, by delegate.Watch's phases.
        delegation: what the OpenCL delegate took, if it is one.
        empty_batch: gives memory for a batch that this path reads faster than other memory.
        ahead: batches that may be under way at once.
        pictures, seconds, cpu_seconds: what `run` was given, and the time from tensors to outputs
            that took, by the clock and of all threads of this process.
    """

    ahead = 1

    def __init__(
        self,
        run: Callable[[Array], list[Outputs]],
        load_ms: float,
        batch: int = 1,
        delegation: Delegation | None = None,
        empty_batch: Callable[[], Array] | None = None,
        load_parts: Mapping[str, float] | None = None,
    ) -> None:
        self._run = run
        self.load_ms = load_ms
        self.load_parts = load_parts or {}
        self.batch = batch
        self.delegation = delegation
        self.empty_batch = empty_batch
        self.pictures = 0
        self.seconds = self.cpu_seconds = 0.0

    @property
    def device_name(self) -> str:
        """The name of the device that runs it, or of several."""
        return self.delegation.device if self.delegation else "the device"

    @property
    def portions(self) -> Sequence[Portion]:
        """What each of several devices did; () of one."""
        return ()

    @property
    def per_second(self) -> float:
        """Pictures a second, from tensors to outputs."""
        return self.pictures / self.seconds if self.seconds else 0.0

    @property
    def picture_ms(self) -> float:
        """Milliseconds a picture."""
        return 1e3 * self.seconds / self.pictures if self.pictures else 0.0

    @property
    def cpu_load(self) -> float:
        """CPU time of all threads over the time by the clock."""
        return self.cpu_seconds / self.seconds if self.seconds else 0.0

    def warm_up(self, pixels: Array, runs: int) -> None:
        """Run so many times, and count none of them. Raises as `run`."""
        for _ in range(runs):
            self._run(pixels)

    def start(self, pixels: Array, listen: Callable[[], object]) -> Run:
        """Return what gives the outputs; `listen` is called when another thread has them.

        Raises: as `run`.
        """
        return Run(self, pixels)

    def gives_up(self, device: DeviceInfo | None, why: str) -> bool:
        """Give one of several devices no more, if another one is left; return whether it is so."""
        return False

    def run(self, pixels: Array) -> list[Outputs]:
        """Return each picture's outputs.

        Shapes: (n, h, w, c), n up to the batch
        Raises:
            RunError: TFLite fails. DelegateFailed: the OpenCL delegate, or a run with it, failed.
        """
        begin_s, cpu_begin_s = time.perf_counter(), time.process_time()
        outputs = self._run(pixels)
        self.seconds += time.perf_counter() - begin_s
        self.cpu_seconds += time.process_time() - cpu_begin_s
        self.pictures += len(pixels)
        return outputs


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

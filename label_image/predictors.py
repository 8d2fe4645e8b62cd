# SPDX-License-Identifier: Apache-2.0
"""label_image as a Python API: a model is called with pictures and returns results.

Models are read, run and decoded by the command's own code.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from typing import Any, Generic, TypeVar, overload

import numpy as np

from delegate import DelegateError, Options, Unsupported, Verdict
from delegate.inspect import NotRestarted
from label_image.open_path import open_path
from label_image.path import OpenPath
from label_image.picture_model import PictureModel
from label_image.run_result import Outputs
from label_image.scene import Class, Detection, Mask, Pose, Scene
from tflite_opencl.console.errors import DelegateFailed, reason_of
from tflite_opencl.console.errors import RunError as RunError
from tflite_opencl.harness.job import Job
from tflite_opencl.interpreters.runtime import runtime_if_any
from tflite_opencl.pictures.decode import PictureError as PictureError
from tflite_opencl.pictures.image import Picture, pixels_of, to_input
from tflite_opencl.pictures.layout import takes_alpha

log = logging.getLogger("label_image")

Result = TypeVar("Result")
Own = TypeVar("Own", bound="Predictor[Any]")


class Predictor(Generic[Result]):
    """A model that takes pictures, as a context manager.

    A picture is a path, the bytes of a file, a PIL image or an array (h, w), (h, w, 3) or (h, w, 4)
    of uint8, in the order red, green, blue.

    Attributes:
        labels: class names by index. device: what runs the model, "CPU" for TFLite.
        verdicts: which nodes OpenCL runs, and why not the others; () without a device.
    """

    _task = ""

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        device: str | int | None = None,
        labels: str | os.PathLike[str] | Sequence[str] | None = None,
        task: str | None = None,
        *,
        batch: int = 1,
        threshold: float | None = None,
        mean: float | None = None,
        std: float | None = None,
        size: tuple[int, int] | None = None,
        threads: int | None = None,
        tune: str = "quick",
        isolate: bool = False,
        run_timeout: float = 0.0,
    ) -> None:
        """Read the model, and make it ready to run.

        `device`: None is the CPU, through TFLite. Else as for `delegate.Model`: a number, words
        of a name, "all" for every device. A model that OpenCL cannot run as a whole runs on one
        device through TFLite, with supported nodes delegated; a warning counts the others.
        `labels`: a file with one label per line, or the labels; None: the model's own. `task`: as
        for --task of the command. `batch`: pictures per device run. `threshold`: minimum score.
        `mean`, `std`: of pixels; None: the model's own, or its kind's usual ones. An 8-bit input
        takes pixels unchanged, unless these or the model specify another range.
        `size`: the input's height and width, if the model leaves them open; None: 224 x 224.
        `threads`: of TFLite. `isolate`, `run_timeout`: as in delegate.Options; after
        three deaths the CPU runs all of the model, with a warning.
        Raises:
            RunError: the model is not of this kind, or cannot be read or run; the labels cannot be
                read. delegate.DelegateError: the model is damaged (ModelError), there is no such
                device (NoDeviceError), or it runs no node of the model (Unsupported).
        """
        task = task or self._task
        if task.partition(":")[0] != self._task:
            raise ValueError(f"{task!r} is no task of {type(self).__name__}: {self._task}[:KIND]")
        own = PictureModel(model, labels, task, threshold=threshold, mean=mean, std=std, size=size)
        self.labels = own.labels
        self._meaning, feeds = own.meaning, own.feeds
        tensor, self._format = self._meaning.input, astuple(self._meaning.format)
        self._has_alpha = takes_alpha(tensor.shape)
        on_device = Options(
            device, tune=tune, min_nodes_per_partition=1, isolate=isolate, run_timeout=run_timeout
        )
        job = Job(
            model=own.source,
            input=np.zeros((own.batch, *tensor.shape[1:]), tensor.dtype),
            batch=batch,
            own_batch=own.batch,
            threads=threads,
            opencl=None if device is None else on_device,
            is_silent=True,
            input_number=feeds.main,
        )
        self._stack = contextlib.ExitStack()
        self._job, self._path = job, self._open(job)
        taken = self._path.facts.delegation
        self.device = "CPU" if taken is None else taken.device
        self.verdicts: Sequence[Verdict] = () if taken is None else taken.verdicts

    @overload
    def __call__(self, pictures: Picture) -> Result: ...
    @overload
    def __call__(self, pictures: list[Any]) -> list[Result]: ...
    def __call__(self, pictures: Picture | list[Any]) -> Result | list[Result]:
        """Return the results of a picture, or of each in a list of them.

        Raises: PictureError: a picture cannot be used. FileNotFoundError: there is no such file.
            RunError, delegate.DelegateError: the run failed.
        """
        several = pictures if isinstance(pictures, list) else [pictures]
        try:
            results = self._run(several)
        except NotRestarted as over:
            log.warning("the CPU runs the model from now on: %s", over)
            self._stack.close()
            self._path = self._open(replace(self._job, opencl=None))
            self.device, self.verdicts = "CPU", ()
            results = self._run(several)
        return results if isinstance(pictures, list) else results[0]

    def _run(self, pictures: Sequence[Picture]) -> list[Result]:
        with _plain_errors():
            return list(self._results(pictures))

    def close(self) -> None:
        """Release the device's memory; a second call does nothing."""
        self._stack.close()

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self, job: Job) -> OpenPath:
        context = open_path(job, runtime_if_any(), self._meaning.view.graph)
        with _plain_errors():
            path = self._stack.enter_context(context)
        taken = path.facts.delegation
        refused = [] if taken is None else [each for each in taken.verdicts if not each.is_taken]
        if taken is not None and not taken.delegated:
            self._stack.close()
            first = refused[0]
            raise Unsupported(
                f"{taken.device} runs none of the model's {len(refused)} nodes; "
                f"node {first.node} ({first.op}): {first.reason}"
            )
        if taken is not None and refused:
            total = len(taken.verdicts)
            log.warning("TFLite's CPU kernels run %d of the model's %d nodes", len(refused), total)
        return path

    def _results(self, pictures: Sequence[Picture]) -> Iterator[Result]:
        """Yield one result per picture, with as many batches in flight as the devices take."""
        waiting: deque[Any] = deque()
        sizes: deque[Sequence[int]] = deque()
        for begin in range(0, len(pictures), self._path.facts.batch):
            tensors = []
            for picture in pictures[begin : begin + self._path.facts.batch]:
                pixels = pixels_of(picture, self._has_alpha)
                sizes.append(pixels.shape[:2])
                tensors.append(to_input(pixels, *self._format))
            waiting.append(self._path.start(np.concatenate(tensors), lambda: None))
            if len(waiting) > self._path.ahead:
                yield from self._read(waiting.popleft().result().outputs, sizes)
        while waiting:
            yield from self._read(waiting.popleft().result().outputs, sizes)

    def _read(self, outputs: Sequence[Outputs], sizes: deque[Sequence[int]]) -> Iterator[Result]:
        for each in outputs:
            size = sizes.popleft()
            result = self._result(self._meaning.scene(each, size), size)
            if result is None:
                raise RunError(f"the outputs of the run are no {self._task}")
            yield result

    def _result(self, scene: Scene, size: Sequence[int]) -> Result | None:
        raise NotImplementedError


class Classifier(Predictor["Sequence[Class]"]):
    """A model that classifies pictures, best class first; see Predictor."""

    _task = "classification"

    def _result(self, scene: Scene, size: Sequence[int]) -> Sequence[Class] | None:
        return scene.rows


class Detector(Predictor["Sequence[Detection]"]):
    """A model that detects objects in pictures, highest score first; see Predictor."""

    _task = "detection"

    def _result(self, scene: Scene, size: Sequence[int]) -> Sequence[Detection] | None:
        return scene.boxes


class Segmenter(Predictor[Mask]):
    """A model that assigns a class to each pixel of a picture; see Predictor."""

    _task = "segmentation"

    def _result(self, scene: Scene, size: Sequence[int]) -> Mask | None:
        return scene.mask and scene.mask.scale_to(size)


class Poses(Predictor["Sequence[Pose]"]):
    """A model that finds the keypoints of people in pictures; see Predictor."""

    _task = "pose"

    def _result(self, scene: Scene, size: Sequence[int]) -> Sequence[Pose] | None:
        return scene.poses


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Convert the command's errors to self-contained ones."""
    try:
        yield
    except DelegateFailed as error:
        if isinstance(error.__cause__, DelegateError):
            raise error.__cause__ from None
        raise RunError(reason_of(error)) from error
    except RunError as error:
        raise RunError(reason_of(error)) from error

# SPDX-License-Identifier: Apache-2.0
"""Converts frames to the model's input, by OpenCL if that is bit-exact and faster."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import DelegateError, Model, Options, Unsupported
from delegate.inspect import Graph, Node, Tensor, several_devices
from label_image.decoder import Format
from tflite_opencl.console.errors import one_line
from tflite_opencl.pictures.image import to_input

_ROUNDS = 10  # alternating, of each method
_MOST_SIZES = 4  # frame sizes for which OpenCL is set up; the CPU handles later ones

log = logging.getLogger("label_image")


@dataclass(slots=True)
class PreprocessTimes:
    """How frames of a size are prepared, and the milliseconds of each method."""

    size: str  # "WIDTHxHEIGHT"
    by: str  # "opencl" or "cpu"
    opencl_ms: float
    cpu_ms: float

    @property
    def text(self) -> str:
        opencl, cpu = f"{self.opencl_ms:.2f} ms", f"{self.cpu_ms:.2f} ms"
        if self.by == "opencl":
            return f"on OpenCL: {opencl}, by the CPU {cpu}"
        return f"by the CPU: {cpu}, on OpenCL {opencl}"


class Preprocessor(contextlib.ExitStack):
    """Converts frames to tensors. A context manager that owns OpenCL's resources.

    Attributes:
        times: measurements by frame size, in order of appearance. failure: why OpenCL was
            given up; "": it was not.
    """

    def __init__(self, format: Format, options: Options | None) -> None:
        """`options`: of OpenCL's path for the model; None: the CPU prepares all frames."""
        super().__init__()
        self._format = format
        self._of_cpu = asdict(format)
        # With several devices, a frame's device is not known in advance.
        is_one = options is not None and not several_devices(options.device)
        self._options = options if is_one else None
        self._models: dict[tuple[int, ...], Model | None] = {}  # by height and width
        self.times: list[PreprocessTimes] = []
        self.failure = ""

    def tensor_of(self, pixels: NDArray[np.uint8]) -> NDArray[Any]:
        """Return what `to_input` gives. Shapes: (h, w, 3) -> the format's."""
        if self._options is not None:
            try:
                if (model := self._model_for(pixels, self._options)) is not None:
                    return _run(model, pixels)
            except Unsupported as refusal:
                self._options = None
                log.info("frames are prepared by the CPU: %s", refusal)
            except DelegateError as error:
                self._give_up(one_line(error))
        return self._by_cpu(pixels)

    def _by_cpu(self, pixels: NDArray[np.uint8]) -> NDArray[Any]:
        return to_input(pixels, **self._of_cpu)

    def _model_for(self, pixels: NDArray[np.uint8], options: Options) -> Model | None:
        """Return the model that prepares frames of this size; None: the CPU. Raises: as Model."""
        size = pixels.shape[:2]
        if size not in self._models and len(self._models) < _MOST_SIZES:
            self._models[size] = None
            self._models[size] = self._faster(pixels, options)
        return self._models.get(size)

    def _faster(self, pixels: NDArray[np.uint8], options: Options) -> Model | None:
        """Set up OpenCL and time both methods; return OpenCL's model if it is faster."""
        with contextlib.ExitStack() as stack:
            model = stack.enter_context(
                Model(
                    _graph(pixels.shape, self._format),
                    options.device,
                    tune=options.tune,
                    exclude_isa=options.exclude_isa,
                    device_profile=options.device_profile,
                    isolate=options.isolate,
                    run_timeout=options.run_timeout,
                )
            )
            if _run(model, pixels).tobytes() != self._by_cpu(pixels).tobytes():
                self._give_up(f"{model.device.name} prepares a frame otherwise than the CPU")
                return None
            opencl_ms, cpu_ms = _measured(lambda: _run(model, pixels), lambda: self._by_cpu(pixels))
            is_faster = opencl_ms < cpu_ms
            size = f"{pixels.shape[1]}x{pixels.shape[0]}"
            self.times.append(
                PreprocessTimes(size, "opencl" if is_faster else "cpu", opencl_ms, cpu_ms)
            )
            log.info("frames of %s are prepared %s", size, self.times[-1].text)
            if not is_faster:
                return None
            self.push(stack.pop_all())
            return model

    def _give_up(self, why: str) -> None:
        """Fall back to the CPU for all later frames, and report why."""
        log.warning("frames are prepared by the CPU: %s", why)
        self.failure, self._options = why, None
        for each in self.times:
            each.by = "cpu"


def _graph(shape: tuple[int, ...], format: Format) -> Graph:
    """Return the graph that converts a frame to an input. Shapes: of the frame: (h, w, 3)."""
    pixels = Tensor(0, "pixels", (1, *shape), "uint8")
    made = Tensor(1, "input", tuple(format.shape), format.dtype)
    levels = {"mean": format.mean, "std": format.std}
    options: dict[str, Any] = {
        name: tuple(np.broadcast_to(given, 3).tolist()) for name, given in levels.items()
    }
    options |= {"scale": format.scale, "zero_point": format.zero_point}
    node = Node(0, "picture", 1, (pixels,), (made,), options)
    return Graph((pixels, made), (node,), (pixels,), (made,))


def _run(model: Model, pixels: NDArray[np.uint8]) -> NDArray[Any]:
    (made,) = model.run(pixels[np.newaxis])
    return made


def _measured(*ways: Callable[[], object]) -> list[float]:
    """Return the minimum milliseconds of each, interleaved: other load only adds time."""
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(_ROUNDS):
        for way, spent in zip(ways, times, strict=True):
            begin_s = time.perf_counter()
            way()
            spent.append(1e3 * (time.perf_counter() - begin_s))
    return [min(spent) for spent in times]

# SPDX-License-Identifier: Apache-2.0
"""A detector for Frigate: a TFLite model on OpenCL. README.md beside this file says where it goes.

SSD, EfficientDet, YOLO and other models are told apart by their outputs, as label_image does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import numpy as np
from frigate.detectors.detection_api import DetectionApi
from frigate.detectors.detector_config import BaseDetectorConfig
from numpy.typing import NDArray

from delegate import DelegateError
from label_image import Detector, RunError

Value = TypeVar("Value")

# Frigate gives a default model to detectors whose names end so.
DETECTOR_KEY = "opencl_tfl"
_RUN_SECONDS = 60  # then a driver hangs
_ROWS, _LEAST_SCORE = 20, 0.4  # as Frigate's other detectors have them
# What a model's `input_tensor` may be, and how its axes become picture, height, width, channels.
_ORDERS = {
    "nhwc": (0, 1, 2, 3), "nchw": (0, 2, 3, 1), "hwnc": (2, 0, 1, 3), "hwcn": (3, 0, 1, 2),
}  # fmt: skip
_LARGEST = {"int": 255, "float_denorm": 255, "float": 1}  # by `input_dtype`: the brightest pixel
_STEPS = {"rgb": 1, "bgr": -1}  # by `input_pixel_format`: from red to blue


class FormatRefused(ValueError):
    """Frigate's configuration asks for frames of a kind that this detector does not take."""


class OpenCLDetectorConfig(BaseDetectorConfig):
    """What stands in Frigate's configuration below the detector's name."""

    type: Literal["opencl_tfl"]
    device: str = "0"  # number or words of a device's name: "panfrost"
    task: str = "detection"  # "detection:yolo8" where the outputs do not tell enough


class OpenCLTfl(DetectionApi):
    """One detector process of Frigate."""

    type_key = DETECTOR_KEY

    def __init__(self, detector_config: OpenCLDetectorConfig) -> None:
        """Make the model ready to run.

        Raises: RunError of label_image, DelegateError: no such device, or no detector's model.
            FormatRefused.
        """
        super().__init__(detector_config)
        self._order = _chosen(detector_config.model, "input_tensor", "nhwc", _ORDERS)
        self._largest = _chosen(detector_config.model, "input_dtype", "int", _LARGEST)
        self._step = _chosen(detector_config.model, "input_pixel_format", "rgb", _STEPS)
        self._detect = Detector(
            detector_config.model.path,
            device=detector_config.device,
            labels=[],  # Frigate has labels of its own, and counts as the model does
            task=detector_config.task,
            threshold=_LEAST_SCORE,
            isolate=True,
            run_timeout=_RUN_SECONDS,
        )

    def detect_raw(self, tensor_input: NDArray[Any]) -> NDArray[np.float32]:
        """Return a row a thing: class, score, top, left, bottom, right; the sides are shares.

        Shapes: (1, h, w, 3), or in another order of `_ORDERS` -> (20, 6), zeros where no more is
            found
        """
        (pixels,) = tensor_input.transpose(self._order)
        # A model's own mean and deviation, or its type, make of pixels what it was trained with.
        pixels = pixels[..., :: self._step]
        if pixels.dtype != np.uint8:
            pixels = np.rint(pixels * (255 / self._largest)).clip(0, 255).astype(np.uint8)
        picture = np.ascontiguousarray(pixels)
        height, width = picture.shape[:2]
        rows = np.zeros((_ROWS, 6), np.float32)
        try:
            things = self._detect(picture)
        except (DelegateError, RunError):  # a driver failed; another process has the device now
            things = self._detect(picture)
        for row, found in zip(rows, things, strict=False):
            left, top, right, bottom = found.box
            sides = top / height, left / width, bottom / height, right / width
            row[:] = found.index, found.score, *sides
        return rows


def _chosen(model: Any, field: str, usual: str, known: Mapping[str, Value]) -> Value:
    """Return what a field of the model's configuration means. Raises: FormatRefused."""
    word = getattr(model, field, None) or usual
    word = str(getattr(word, "value", word))  # Frigate has enumerations
    if word not in known:
        raise FormatRefused(f"model.{field} is {word}: this detector takes {', '.join(known)}")
    return known[word]

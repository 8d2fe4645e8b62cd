# SPDX-License-Identifier: Apache-2.0
"""A detector for Frigate: a TFLite model on OpenCL. README.md beside this file says where it goes.

SSD, EfficientDet, YOLO and other models are told apart by their outputs, as label_image does.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from frigate.detectors.detection_api import DetectionApi
from frigate.detectors.detector_config import BaseDetectorConfig
from numpy.typing import NDArray

from label_image import Detector

# Frigate gives a default model to detectors whose names end so.
DETECTOR_KEY = "opencl_tfl"
_ROWS, _LEAST_SCORE = 20, 0.4  # as Frigate's other detectors have them


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
        """
        super().__init__(detector_config)
        self._detect = Detector(
            detector_config.model.path,
            device=detector_config.device,
            labels=[],  # Frigate has labels of its own, and counts as the model does
            task=detector_config.task,
            threshold=_LEAST_SCORE,
        )

    def detect_raw(self, tensor_input: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return a row a thing: class, score, top, left, bottom, right; the sides are shares.

        Shapes: (1, h, w, 3) -> (20, 6), zeros where no more is found
        """
        (picture,) = tensor_input
        height, width = picture.shape[:2]
        rows = np.zeros((_ROWS, 6), np.float32)
        for row, found in zip(rows, self._detect(picture), strict=False):
            left, top, right, bottom = found.box
            sides = top / height, left / width, bottom / height, right / width
            row[:] = found.index, found.score, *sides
        return rows

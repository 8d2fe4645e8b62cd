# SPDX-License-Identifier: Apache-2.0
"""Image classification, detection and segmentation with .tflite models on the CPU or OpenCL.

Public names are imported lazily: neither the command's start-up nor the decoder processes
should pay for them.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from label_image.predictors import (
        Classifier,
        Detector,
        PictureError,
        Poses,
        RunError,
        Segmenter,
    )

__all__ = ["Classifier", "Detector", "PictureError", "Poses", "RunError", "Segmenter"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'label_image' has no attribute {name!r}")
    return getattr(importlib.import_module("label_image.predictors"), name)

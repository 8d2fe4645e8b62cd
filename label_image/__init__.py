# SPDX-License-Identifier: Apache-2.0
"""A picture, a .tflite model, the CPU or OpenCL, and what is found: the command, and its classes.

The public names are imported when they are asked for: the command's start, and the processes that
decode pictures, must not wait for them.
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

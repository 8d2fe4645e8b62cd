# SPDX-License-Identifier: Apache-2.0
"""Segmenters: a class for each pixel, or scores of classes."""

from __future__ import annotations

import numpy as np

from label_image.heads.view import Head, View
from label_image.scene import Scene
from tflite_opencl.common.feeds import scale_of

_LEAST_SIZE = 8  # a mask has at least one pixel for so many of the input's, each way
_COLOURS = (3, 4)  # channels that are taken for colours where nobody names classes


def _fits(view: View, is_asked: bool) -> bool:
    height, width = view.input_size
    shape = view.shapes[0]
    if len(view.outputs) != 1 or len(shape) not in (3, 4) or shape[0] != 1 or min(shape[1:3]) < 2:
        return False
    if not height or shape[1] * _LEAST_SIZE < height or shape[2] * _LEAST_SIZE < width:
        return False
    kind = np.dtype(view.outputs[0].dtype).kind
    if len(shape) == 3 or shape[3] == 1:  # a class a pixel
        return kind in "iu" and (is_asked or not scale_of(view.outputs[0])[0])
    return kind in "iuf" and (is_asked or view.are_labels_given or shape[3] not in _COLOURS)


def _read(view: View, found: bool) -> Scene:
    values = view.arrays[0][0]
    if values.ndim == 3:
        values = values[..., 0] if values.shape[2] == 1 else values.argmax(-1)
    return Scene(mask=values.astype(np.int64), outputs=frozenset({0}))


HEAD = Head("segmentation", _fits, _read)

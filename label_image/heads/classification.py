# SPDX-License-Identifier: Apache-2.0
"""Classifiers: a row of scores, one a class."""

from __future__ import annotations

from collections.abc import Sequence

from label_image.heads.view import Array, Head, View
from label_image.scene import Scene
from tflite_opencl.common.feeds import scale_of
from tflite_opencl.common.labels import LEAST_SCORE, may_be_scores, top_results


def _fits(view: View, is_asked: bool) -> bool:
    first = view.outputs[0]
    if not may_be_scores(first, view.fed):
        return False
    # One of several outputs, or one of the input's shape (as of an autoencoder), may be anything.
    is_sure = len(view.outputs) == 1 and first.shape != view.fed.shape
    return is_asked or is_sure or first.shape[-1] == len(view.labels)


def _read(view: View, outputs: Sequence[Array]) -> Scene:
    first = view.outputs[0]
    scale, zero_point = scale_of(first)
    # NOTE: TFLite's label_image decodes all outputs by the input's type, also where the two differ:
    # scores above 1, or a 255th of them. Those are decoded as they are.
    is_own = first.dtype != view.fed.dtype and (first.dtype == "float32" or scale > 0)
    dtype = "int16" if is_own else view.fed.dtype
    calibration = view.carried.calibration
    if calibration is not None and len(calibration.numbers) != first.shape[-1]:
        calibration = None  # it is of other classes
    rows = top_results(
        outputs[0], dtype, first.shape[-1], view.least(LEAST_SCORE),
        scale, zero_point, calibration,
    )  # fmt: skip
    return Scene(rows=rows, outputs=frozenset({0}))


def _classes(view: View) -> int | None:
    return view.outputs[0].shape[-1]


HEAD = Head("classification", _fits, _read, _classes)

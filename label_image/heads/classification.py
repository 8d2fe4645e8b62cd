# SPDX-License-Identifier: Apache-2.0
"""A row of numbers of the picture: a classifier's scores, one a class, or features."""

from __future__ import annotations

import numpy as np

from label_image.heads.view import Head, View
from label_image.scene import Scene
from tflite_opencl.common.feeds import scale_of
from tflite_opencl.common.labels import (
    LEAST_SCORE,
    gives_features,
    gives_scores,
    may_be_scores,
    top_results,
)

_UNIT = 1e-3  # how far the L2 norm of an embedding of length 1 is from 1


def _fits_scores(view: View, is_asked: bool) -> bool:
    first = view.outputs[0]
    if not may_be_scores(first, view.fed):
        return False
    # One of several outputs, or one of the input's shape (as of an autoencoder), may be anything.
    is_sure = len(view.outputs) == 1 and first.shape != view.fed.shape
    return is_asked or is_sure or first.shape[-1] == len(view.labels)


def _read_scores(view: View, found: bool) -> Scene:
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
        view.arrays[0], dtype, first.shape[-1], view.least(LEAST_SCORE),
        scale, zero_point, calibration,
    )  # fmt: skip
    return Scene(rows=rows, outputs=frozenset({0}))


def _classes(view: View) -> int | None:
    return view.outputs[0].shape[-1]


CLASSIFICATION = Head("classification", _fits_scores, _read_scores, _classes)


def _fits_features(view: View, is_asked: bool) -> bool:
    is_row = view.shapes[0][-1:] > (1,) and np.prod(view.shapes[0][:-1]) == 1
    if not is_row or is_asked:
        return bool(is_row)
    return len(view.outputs) == 1 and not _has_labels(view) and _says_features(view)


def _says_features(view: View) -> bool:
    """Whether metadata, or the last op, says that the output is no row of scores."""
    words = " ".join(view.carried.outputs).lower()
    return "embedding" in words or "feature" in words or gives_features(view.graph)


def _has_labels(view: View) -> bool:
    return view.are_labels_given or view.outputs[0].shape[-1] == len(view.labels)


def has_its_norm(view: View) -> bool:
    """Whether values of both signs have an L2 norm of 1, and nothing speaks for scores.

    A distribution has no negative values, and logits have that norm by chance only.
    """
    if _has_labels(view) or gives_scores(view.graph):
        return False
    values = view.real(0).reshape(-1).astype(np.float64)
    return bool(values.min(initial=0) < 0) and abs(float(np.linalg.norm(values)) - 1) < _UNIT


def _read_features(view: View, found: bool) -> Scene:
    return Scene(embedding=view.real(0).reshape(-1))


EMBEDDING = Head("embedding", _fits_features, _read_features)

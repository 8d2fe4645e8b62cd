# SPDX-License-Identifier: Apache-2.0
"""Classes of the picture or of each pixel, and features, which have the same shapes.

A classifier gives a row of scores, a segmenter one class or a row of scores per pixel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from label_image.heads.view import Ambiguity, Head, View
from label_image.scene import Class, Scene, mask_of
from tflite_opencl.harness.feeds import scale_of
from tflite_opencl.harness.labels import (
    LEAST_SCORE,
    gives_features,
    gives_scores,
    may_be_scores,
    top_results,
)

_LEAST_SIZE = 8  # a mask has at least one pixel per this many input pixels, in both directions
_COLOURS = (3, 4)  # channel counts taken for colours if there are no labels


def _fits_scores(view: View, is_asked: bool) -> bool:
    first = view.outputs[0]
    if not may_be_scores(first, view.input):
        return False
    # One of several outputs, or one of the input's shape (an autoencoder's), is ambiguous.
    is_sure = len(view.outputs) == 1 and first.shape != view.input.shape
    return is_asked or is_sure or first.shape[-1] == len(view.labels)


def _read_scores(view: View, found: bool) -> Scene:
    first = view.outputs[0]
    scale, zero_point = scale_of(first)
    # NOTE: TFLite's label_image decodes all outputs by the input's type, even if the two differ:
    # scores above 1, or a 255th of them. Here each output is decoded by its own type.
    is_own = first.dtype != view.input.dtype and (
        first.dtype in ("float16", "float32") or scale > 0
    )
    dtype = "int16" if is_own else view.input.dtype
    calibration = view.embedded.calibration
    if calibration is not None and len(calibration.numbers) != first.shape[-1]:
        calibration = None  # it belongs to other classes
    rows = top_results(
        view.arrays[0], dtype, first.shape[-1], view.least(LEAST_SCORE),
        scale, zero_point, calibration,
    )  # fmt: skip
    classes = [Class(view.label(row.index), row.score, row.index) for row in rows]
    return Scene(rows=classes, outputs=frozenset({0}))


def _score_means(view: View, found: bool) -> Sequence[Ambiguity]:
    # Non-scores are printed unchanged, as by label_image: nothing is ambiguous.
    return (Ambiguity(0),) if gives_scores(view.graph) else ()


CLASSIFICATION = Head(
    "classification", _fits_scores, _read_scores, lambda view: view.outputs[0].shape[-1],
    ambiguities=_score_means,
)  # fmt: skip


def _fits_features(view: View, is_asked: bool) -> bool:
    is_row = view.shapes[0][-1:] > (1,) and np.prod(view.shapes[0][:-1]) == 1
    if not is_row or is_asked:
        return bool(is_row)
    # Metadata, or the last op, shows that the output is no row of scores.
    words = " ".join(view.embedded.outputs).lower()
    are_features = "embedding" in words or "feature" in words or gives_features(view.graph)
    return len(view.outputs) == 1 and not _has_labels(view) and are_features


def _has_labels(view: View) -> bool:
    return view.are_labels_given or view.outputs[0].shape[-1] == len(view.labels)


def _read_features(view: View, found: bool) -> Scene:
    return Scene(embedding=view.real(0).reshape(-1))


EMBEDDING = Head("embedding", _fits_features, _read_features)


def _fits_mask(view: View, is_asked: bool) -> bool:
    height, width = view.input_size
    shape = view.shapes[0]
    if len(view.outputs) != 1 or len(shape) not in (3, 4) or shape[0] != 1 or min(shape[1:3]) < 2:
        return False
    if not height or shape[1] * _LEAST_SIZE < height or shape[2] * _LEAST_SIZE < width:
        return False
    kind = np.dtype(view.outputs[0].dtype).kind
    if len(shape) == 3 or shape[3] == 1:  # one class per pixel
        return kind in "iu" and (is_asked or not scale_of(view.outputs[0])[0])
    return kind in "iuf" and (is_asked or view.are_labels_given or shape[3] not in _COLOURS)


def _read_mask(view: View, found: bool) -> Scene:
    values = view.arrays[0][0]
    if values.ndim == 3:
        values = values[..., 0] if values.shape[2] == 1 else values.argmax(-1)
    return Scene(mask=mask_of(values.astype(np.int64), view.label), outputs=frozenset({0}))


SEGMENTATION = Head("segmentation", _fits_mask, _read_mask)

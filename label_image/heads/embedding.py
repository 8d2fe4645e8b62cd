# SPDX-License-Identifier: Apache-2.0
"""Embeddings: a row of features of the picture, which are no classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from label_image.heads.view import Array, Head, View
from label_image.scene import Scene
from tflite_opencl.common.labels import gives_features, gives_scores

_UNIT = 1e-3  # how far the L2 norm of an embedding of length 1 is from 1


def _fits(view: View, is_asked: bool) -> bool:
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


def has_its_norm(view: View, outputs: Sequence[Array]) -> bool:
    """Whether values of both signs have an L2 norm of 1, and nothing speaks for scores.

    A distribution has no negative values, and logits have that norm by chance only.
    """
    if _has_labels(view) or gives_scores(view.graph):
        return False
    values = view.real(0, outputs[0]).reshape(-1).astype(np.float64)
    return bool(values.min(initial=0) < 0) and abs(float(np.linalg.norm(values)) - 1) < _UNIT


def _read(view: View, outputs: Sequence[Array]) -> Scene:
    return Scene(embedding=view.real(0, outputs[0]).reshape(-1))


HEAD = Head("embedding", _fits, _read)

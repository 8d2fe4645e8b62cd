# SPDX-License-Identifier: Apache-2.0
"""Embeddings: a row of features of the picture, which are no classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegate.inspect import Node
from label_image.heads.view import Array, Head, View
from label_image.scene import Scene

_UNIT = 1e-3  # how far the L2 norm of an embedding of length 1 is from 1
# What only moves or converts the values of the op before it.
_TRANSPARENT = {"RESHAPE", "SQUEEZE", "QUANTIZE", "DEQUANTIZE", "CAST", "EXPAND_DIMS", "SLICE"}
_SCORES = {"SOFTMAX", "LOG_SOFTMAX", "LOGISTIC"}
_FEATURES = {"L2_NORMALIZATION", "MEAN", "AVERAGE_POOL_2D", "MAX_POOL_2D", "SUM", "REDUCE_MAX"}
_NORMS = {"SQRT", "RSQRT"}


def _fits(view: View, is_asked: bool) -> bool:
    is_row = view.shapes[0][-1:] > (1,) and np.prod(view.shapes[0][:-1]) == 1
    if not is_row or is_asked:
        return bool(is_row)
    return len(view.outputs) == 1 and not _has_labels(view) and _says_features(view)


def _says_features(view: View) -> bool:
    """Whether metadata, or the last op, says that the output is no row of scores."""
    words = " ".join(view.carried.outputs).lower()
    if "embedding" in words or "feature" in words:
        return True
    last = _last_op(view)
    if last is None:
        return False
    if last.op in ("MUL", "DIV"):  # as x * rsqrt(sum(x * x)) is computed
        makers = {node.outputs[0]: node for node in view.graph.nodes}
        return any(
            tensor in makers and makers[tensor].op in _NORMS
            for tensor in last.inputs
            if tensor is not None
        )
    return last.op in _FEATURES


def _last_op(view: View) -> Node | None:
    """Return the node that computes the first output's values."""
    makers = {tensor: node for node in view.graph.nodes for tensor in node.outputs}
    node = makers.get(view.graph.outputs[0])
    while node is not None and node.op in _TRANSPARENT and node.inputs[0] is not None:
        node = makers.get(node.inputs[0])
    return node


def _has_labels(view: View) -> bool:
    return view.are_labels_given or view.outputs[0].shape[-1] == len(view.labels)


def gives_scores(view: View) -> bool:
    """Whether the last op says that the output is scores."""
    last = _last_op(view)
    return last is not None and last.op in _SCORES


def has_its_norm(view: View, outputs: Sequence[Array]) -> bool:
    """Whether values of both signs have an L2 norm of 1, and nothing speaks for scores.

    A distribution has no negative values, and logits have that norm by chance only.
    """
    if _has_labels(view) or gives_scores(view):
        return False
    values = view.real(0, outputs[0]).reshape(-1).astype(np.float64)
    return bool(values.min(initial=0) < 0) and abs(float(np.linalg.norm(values)) - 1) < _UNIT


def _read(view: View, outputs: Sequence[Array]) -> Scene:
    return Scene(embedding=view.real(0, outputs[0]).reshape(-1))


HEAD = Head("embedding", _fits, _read)

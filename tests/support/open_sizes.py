# SPDX-License-Identifier: Apache-2.0
"""A classifier with dynamic height and width, as Keras exports them: (1, -1, -1, 3)."""

from __future__ import annotations

import numpy as np

from tests.support.model import chain_model, const, op, t

OPEN = (1, -1, -1, 3)


def open_classifier(least: int = 1, is_planar: bool = False) -> bytes:
    """Return a model that ranks a picture's channels by their means.

    `least`: the smallest height and width that it runs with: a window of VALID padding.
    """
    shape = (1, 3, 1, 1) if is_planar else (1, 1, 1, 3)
    signature = (1, 3, -1, -1) if is_planar else OPEN
    picture = t(shape, "float32", name="image", shape_signature=signature)
    inner = t((1, 1, 1, 3), "float32", shape_signature=OPEN)
    pooled, means = t((1, 1, 1, 3), "float32", shape_signature=OPEN), t((1, 3), "float32")
    scores = t((1, 3), "float32", name="scores")
    window = {"stride_w": 1, "stride_h": 1, "filter_width": least, "filter_height": least}
    first = op("RELU", [picture], [inner])
    if is_planar:
        first = op("TRANSPOSE", [picture, const(np.int32([0, 2, 3, 1]))], [inner])
    return chain_model(
        [
            first,
            op("AVERAGE_POOL_2D", [inner], [pooled], {"padding": "VALID", **window}),
            op("MEAN", [pooled, const(np.int32([1, 2]))], [means], {"keep_dims": False}),
            op("SOFTMAX", [means], [scores], {"beta": 1.0}),
        ],
        [picture],
        [scores],
    )

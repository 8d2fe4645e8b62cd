# SPDX-License-Identifier: Apache-2.0
"""A tiny detector and segmenter, whose results follow from the picture's colours.

Also models with constant outputs.
"""

from __future__ import annotations

import numpy as np
from flatbuffers import flexbuffers
from numpy.typing import NDArray

from tests.support.model import chain_model, const, op, t

_POST_PROCESS = {
    "max_detections": 4,
    "max_classes_per_detection": 1,
    "nms_score_threshold": 0.1,
    "nms_iou_threshold": 0.5,
    "num_classes": 2,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}


def detector() -> bytes:
    """Return a model that detects green (class 0) and blue (class 1) halves of a 4x4 picture.

    Red is the background. The boxes are the halves, and the scores their means.
    """
    picture = t((1, 4, 4, 3), "uint8", 1 / 255, 0)
    halves = t((1, 1, 2, 3), "uint8", 1 / 255, 0)
    real, scores = t((1, 1, 2, 3)), t((1, 2, 3))
    window = {"stride_w": 2, "stride_h": 4, "filter_width": 2, "filter_height": 4}
    anchors = np.array([[0.5, 0.25, 1, 0.5], [0.5, 0.75, 1, 0.5]], np.float32)
    results = [t((1, 4, 4)), t((1, 4)), t((1, 4)), t((1,))]
    boxes = const(np.zeros((1, 2, 4), np.float32))
    options = {"custom_options": bytes(flexbuffers.Dumps(_POST_PROCESS))}
    nodes = [
        op("AVERAGE_POOL_2D", [picture], [halves], {"padding": "VALID", **window}),
        op("DEQUANTIZE", [halves], [real]),
        op("RESHAPE", [real], [scores], {"new_shape": [1, 2, 3]}),
        op(
            "TFLite_Detection_PostProcess", [boxes, scores, const(anchors)], results, options,
            is_custom=True,
        ),
    ]  # fmt: skip
    return chain_model(nodes, outputs=results)


def segmenter() -> bytes:
    """Return a model whose class of each pixel of a 4x4 picture is its largest channel."""
    picture = t((1, 4, 4, 3), "uint8", 1 / 255, 0)
    classes = t((1, 4, 4), "int32")
    axis = const(np.array(3, np.int32))
    return chain_model([op("ARG_MAX", [picture, axis], [classes], {"output_type": "int32"})])


def constant_model(*outputs: NDArray[np.float32], side: int = 64) -> bytes:
    """Return a model of a square picture that computes these outputs for any values."""
    picture, mean = t((1, side, side, 3), "float32"), t((1,))
    nothing, axes = t((1,)), const(np.array([1, 2, 3], np.int32))
    nodes = [
        op("MEAN", [picture, axes], [mean], {"keep_dims": False}),
        op("MUL", [mean, const(np.zeros(1, np.float32))], [nothing]),
    ]
    results = [t(output.shape, "float32") for output in outputs]
    for output, result in zip(outputs, results, strict=True):
        nodes.append(op("ADD", [const(output), nothing], [result]))
    return chain_model(nodes, outputs=results)

# SPDX-License-Identifier: Apache-2.0
"""Models for which TFLite's reference kernels are no oracle."""

from __future__ import annotations

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tests.support.model import const, graph_of, op, t

# TFLite's reference SOFTMAX aborts on 512 or more nearly equal values.
CLASSES = 1000
_SIZE, _DEPTH = 12, 16


def depthwise(x: Tensor, y: Tensor) -> Node:
    """Return a convolution that TFLite's reference and built-in kernels round differently.

    Shapes: (n, h, w, 16) both
    """
    rng = np.random.default_rng(0)
    weights = rng.integers(-127, 128, (1, 3, 3, _DEPTH)).astype(np.int8)
    w = const(weights, rng.uniform(0.003, 0.01, _DEPTH), 0, axis=3)
    assert w.quantization is not None
    bias = rng.integers(-2000, 2000, _DEPTH).astype(np.int32)
    b = const(bias, 0.02 * np.array(w.quantization.scale), 0)
    options = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "depth_multiplier": 1}
    return op("DEPTHWISE_CONV_2D", [x, w, b], [y], options, version=3)


def picture(height: int = _SIZE) -> Tensor:
    """Return an int8 tensor (1, height, 12, 16)."""
    return t((1, height, _SIZE, _DEPTH), "int8", 0.031, 3)


def lacking() -> Graph:
    """Return a convolution and a TILE version that ai-edge-litert's reference kernels lack."""
    y = picture()
    tile = op("TILE", [y, const(np.int32([1, 2, 1, 1]))], [picture(2 * _SIZE)], version=3)
    return graph_of([depthwise(picture(), y), tile])


def wrong() -> Graph:
    """Return a convolution and an int8 SUM, which the reference kernel computes wrongly."""
    y, total = picture(), t((1, _DEPTH), "int8", 0.5, -4)
    axes = const(np.int32([1, 2]))
    return graph_of([depthwise(picture(), y), op("SUM", [y, axes], [total], {"keep_dims": False})])


def aborting() -> Graph:
    """Return a convolution, a FULLY_CONNECTED and a SOFTMAX of its nearly equal results."""
    y = picture()
    flat, sums = t((1, _SIZE * _SIZE * _DEPTH), "int8", 0.031, 3), t((1, CLASSES), "int8", 1e-4)
    shares = t((1, CLASSES), "int8", 1 / 256, -128)
    shape = const(np.array(flat.shape, np.int32))
    weights = const(np.ones((CLASSES, flat.shape[1]), np.int8), 1e-6)
    bias = const(np.zeros(CLASSES, np.int32), 3.1e-8)
    return graph_of(
        [
            depthwise(picture(), y),
            op("RESHAPE", [y, shape], [flat], {"new_shape": flat.shape}),
            op("FULLY_CONNECTED", [flat, weights, bias], [sums]),
            op("SOFTMAX", [sums], [shares], {"beta": 1.0}),
        ]
    )


def unknown() -> Graph:
    """Return a custom op that no TFLite has."""
    options = {"custom_options": b""}
    return graph_of([op("Nobody", [t((2,))], [t((2,))], options, is_custom=True)])

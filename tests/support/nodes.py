# SPDX-License-Identifier: Apache-2.0
"""One node of each op that lowers, by its name: what tests of all ops start from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from delegate import Node
from tests.support.convolution import Convolution
from tests.support.convolution_like import weight_nodes
from tests.support.floats import FloatConvolution
from tests.support.model import const, op, t
from tests.support.moves import move_nodes
from tests.support.reductions import reducing_nodes

_POOL: dict[str, Any] = {
    "padding": "SAME",
    "filter_height": 3,
    "filter_width": 3,
    "stride_h": 1,
    "stride_w": 1,
    "fused_activation_function": "NONE",
}


def valid_nodes(dtype: str, channels: int = 8, size: int = 5) -> dict[str, Node]:
    """Return a node an op, on 1 x size x size x channels of a type."""

    def like(name: str, count: int = 1, **options: Any) -> Node:
        shape = (1, size, size, channels)
        inputs = [t(shape, dtype, 0.5, 3) for _ in range(count)]
        return op(name, inputs, [t(shape, dtype, 0.5, 3)], options)

    conv = Convolution(size=(size, size, channels), out_c=channels, dtype=dtype)
    image = t((1, size, size, channels), dtype, 0.5, 3)
    rows = t((size, channels), dtype, 0.5, 3)
    nodes = [
        conv.node(),
        replace(conv, depth_multiplier=1).node(),
        like("AVERAGE_POOL_2D", **_POOL),
        like("MAX_POOL_2D", **_POOL),
        like("ADD", 2, fused_activation_function="NONE"),
        like("QUANTIZE"),
        op(
            "SOFTMAX",
            [rows],
            [t((size, channels), dtype, 1 / 256, 0 if dtype == "uint8" else -128)],
            {"beta": 1.0},
        ),
        op(
            "PAD",
            [image, const(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))],
            [t((1, size + 2, size + 2, channels), dtype, 0.5, 3)],
        ),
        op("RESHAPE", [t((4, 3)), const(np.array([12], np.int32))], [t((12,))]),
        op(
            "MEAN",
            [image, const(np.array([1, 2], np.int32))],
            [t((1, channels), dtype, 0.5, 3)],
        ),
        op(
            "FULLY_CONNECTED",
            [
                rows,
                const(np.ones((channels, channels), dtype), 0.5),
                const(np.zeros(channels, np.int32), 0.25),
            ],
            [t((size, channels), dtype, 0.5, 3)],
            {"fused_activation_function": "NONE", "weights_format": "DEFAULT"},
        ),
        *move_nodes(dtype, channels, size),
        *reducing_nodes(dtype, channels, size),
        *weight_nodes(dtype, channels, size),
    ]
    return {node.op: node for node in nodes}


def valid_float_nodes(channels: int = 8, size: int = 5) -> dict[str, Node]:
    """Return the same for ops on floats; their windows are 1x1 where the picture is one pixel."""
    shape, rows = (1, size, size, channels), (size, channels)
    kernel = (1, 1) if size == 1 else (3, 3)
    conv = FloatConvolution(size=shape[1:], kernel=kernel, out_c=channels)
    weights = const(np.ones((channels, channels), np.float32))
    bias = const(np.zeros(channels, np.float32))
    options = {"fused_activation_function": "NONE", "weights_format": "DEFAULT"}
    nodes = [
        conv.node(),
        replace(conv, depth_multiplier=1).node(),
        op("AVERAGE_POOL_2D", [t(shape)], [t(shape)], _POOL),
        op("MAX_POOL_2D", [t(shape)], [t(shape)], _POOL),
        op("SOFTMAX", [t(rows)], [t(rows)], {"beta": 1.0}),
        op("FULLY_CONNECTED", [t(rows), weights, bias], [t(rows)], options),
    ]
    return {node.op: node for node in nodes}

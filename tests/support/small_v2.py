# SPDX-License-Identifier: Apache-2.0
"""A small MobileNet V2, with every kind of block of the official one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tests.support.model import const, graph_of, op, t

_LINEAR, _CAPPED = (0.05, 128), (6 / 255, 0)  # scale and zero point, RELU6's in the second


def small_v2(size: int = 32, classes: int = 21) -> Graph:
    """Return a uint8 graph: a convolution, three bottlenecks, one of them residual, a classifier.

    Shapes: (1, size, size, 3) -> (1, classes)
    """
    builder = _Builder()
    picture = t((1, size, size, 3), "uint8", 1 / 128, 128, name="picture")
    stem = builder.convolution(picture, 16, 3, 2)
    first = builder.convolution(builder.depthwise(stem, 1), 8, 1, is_linear=True)
    wide = builder.convolution(first, 48, 1)
    second = builder.convolution(builder.depthwise(wide, 2), 24, 1, is_linear=True)
    inner = builder.convolution(second, 96, 1)
    third = builder.convolution(builder.depthwise(inner, 1), 24, 1, is_linear=True)
    added = t(third.shape, "uint8", *_LINEAR)
    builder.nodes.append(op("ADD", [third, second], [added]))
    last = builder.convolution(added, 64, 1)
    height, width = last.shape[1:3]
    pooled = t((1, 1, 1, 64), "uint8", *_CAPPED)
    window = {"filter_height": height, "filter_width": width, "stride_h": 1, "stride_w": 1}
    builder.nodes.append(op("AVERAGE_POOL_2D", [last], [pooled], {"padding": "VALID", **window}))
    scores = builder.convolution(pooled, classes, 1, is_linear=True)
    flat = t((1, classes), "uint8", *_LINEAR)
    builder.nodes.append(op("RESHAPE", [scores], [flat], {"new_shape": [1, classes]}))
    shares = t((1, classes), "uint8", 1 / 256)
    builder.nodes.append(op("SOFTMAX", [flat], [shares], {"beta": 1.0}))
    return graph_of(builder.nodes, [picture], [shares])


class _Builder:
    """The nodes in construction; weights are random with a fixed seed."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._random = np.random.default_rng(2)

    def convolution(
        self, source: Tensor, channels: int, side: int, stride: int = 1, is_linear: bool = False
    ) -> Tensor:
        """Add a CONV_2D; return its output."""
        shape = (channels, side, side, source.shape[3])
        return self._add("CONV_2D", source, shape, channels, stride, is_linear, {})

    def depthwise(self, source: Tensor, stride: int) -> Tensor:
        """Add a DEPTHWISE_CONV_2D of 3x3; return its output."""
        channels = source.shape[3]
        more = {"depth_multiplier": 1}
        shape = (1, 3, 3, channels)
        return self._add("DEPTHWISE_CONV_2D", source, shape, channels, stride, False, more)

    def _add(
        self,
        name: str,
        source: Tensor,
        shape: Sequence[int],
        channels: int,
        stride: int,
        is_linear: bool,
        more: dict[str, int],
    ) -> Tensor:
        scale = 1.2 / (255 * np.sqrt(np.prod(shape) / channels))
        weights = const(self._random.integers(0, 255, shape).astype(np.uint8), scale, 127)
        assert source.quantization is not None
        bias_scale = float(np.float32(source.quantization.scale[0]) * np.float32(scale))
        bias = const(self._random.integers(-500, 500, channels).astype(np.int32), bias_scale)
        height, width = (-(-n // stride) for n in source.shape[1:3])
        result = t((1, height, width, channels), "uint8", *(_LINEAR if is_linear else _CAPPED))
        options = {
            "padding": "SAME",
            "stride_h": stride,
            "stride_w": stride,
            "fused_activation_function": "NONE" if is_linear else "RELU6",
            **more,
        }
        self.nodes.append(op(name, [source, weights, bias], [result], options))
        return result

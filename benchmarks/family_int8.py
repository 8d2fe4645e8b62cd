# SPDX-License-Identifier: Apache-2.0
"""Networks of int8 with random weights, for their speed: ShuffleNet V2, MobileNet EdgeTPU."""

from __future__ import annotations

import numpy as np

from benchmarks.family import Network
from delegate.inspect import Graph, Node, Quantization, Tensor

_INPUT = Quantization((0.0078125,), (-1,))
_ACTIVATION = Quantization((float(np.float32(6 / 255)),), (-128,))
_LINEAR = Quantization((float(np.float32(0.05)),), (3,))
_SHARES = Quantization((1 / 256,), (-128,))
_NONE = {"fused_activation_function": "NONE"}
# Channels and units of each stage at width 1. Source: ShuffleNet V2 (arXiv 1807.11164), table 5.
_STAGES = ((116, 4), (232, 8), (464, 4))
# Channels, of the first unit of each group, stride, window, expansion, then how many more units
# with a residual and an expansion of 4; the first three groups expand by dense convolutions.
# Source: tensorflow/models, research/slim/nets/mobilenet/mobilenet_v3.py, V3_EDGETPU at 0.75.
_GROUPS = (
    (16, 1, 3, 1, 0), (24, 2, 3, 8, 3), (40, 2, 3, 8, 3),
    (72, 2, 3, 8, 3), (72, 1, 3, 8, 3), (120, 2, 5, 8, 3), (144, 1, 3, 8, 0),
)  # fmt: skip
_DENSE_GROUPS = 3


def shufflenet_v2(resolution: int = 224) -> Graph:
    """Return ShuffleNet V2 1.0: a unit splits the channels, joins and shuffles them.

    Shapes: picture (1, resolution, resolution, 3) -> shares (1, 1000)
    """
    network = Int8Network(f"shufflenet_v2_1.0_{resolution} int8, random weights")
    x = picture = network.tensor((1, resolution, resolution, 3), _INPUT)
    x = network.convolution(x, 24, 3, 2)
    x = network.pool("MAX_POOL_2D", x, 3, 2, "SAME")
    for out_c, units in _STAGES:
        half = out_c // 2
        left = network.convolution(_depthwise(network, x, 2), half)
        right = network.convolution(x, half)
        right = network.convolution(_depthwise(network, right, 2), half)
        x = network.shuffled(left, right)
        for _ in range(units - 1):
            left, right = network.halves(x)
            right = _depthwise(network, network.convolution(right, half), 1)
            x = network.shuffled(left, network.convolution(right, half))
    return network.classified(picture, network.convolution(x, 1024))


def _depthwise(network: Network, x: Tensor, stride: int) -> Tensor:
    return network.convolution(
        x, x.shape[3], 3, stride, is_depthwise=True, activation="NONE", quantization=_LINEAR
    )


def mobilenet_edgetpu(resolution: int = 224) -> Graph:
    """Return MobileNet EdgeTPU 0.75: its first units expand by dense 3x3 convolutions.

    Shapes: picture (1, resolution, resolution, 3) -> shares (1, 1000)
    """
    network = Int8Network(f"mobilenet_edgetpu_0.75_{resolution} int8, random weights")
    x = picture = network.tensor((1, resolution, resolution, 3), _INPUT)
    x = network.convolution(x, 24, 3, 2)
    for place, (out_c, stride, side, expansion, more) in enumerate(_GROUPS):
        for unit in range(1 + more):
            source, inner = x, x.shape[3] * (4 if unit else expansion)
            step = 1 if unit else stride
            if place < _DENSE_GROUPS:
                x = network.convolution(x, inner, side, step)
            else:
                x = network.convolution(x, inner)
                x = network.convolution(x, inner, side, step, is_depthwise=True)
            x = network.convolution(x, out_c, activation="NONE", quantization=_LINEAR)
            if unit:
                total = network.tensor(x.shape, _LINEAR)
                x = network.node("ADD", [x, source], total, _NONE)
    return network.classified(picture, network.convolution(x, 1280))


class Int8Network(Network):
    """An int8 graph while it grows: weights have a scale for each channel."""

    dtype = "int8"
    quantization = _ACTIVATION

    def _weights(
        self, x: Tensor, shape: tuple[int, ...], outputs: int, terms: int
    ) -> tuple[Tensor, Tensor]:
        # A scale for each output channel, which is the last axis of depthwise weights.
        axis = 3 if shape[0] == 1 and len(shape) == 4 else 0
        assert x.quantization is not None
        scales = np.float32(self.rng.uniform(0.5, 1.5, outputs) / (30 * np.sqrt(terms)))
        zeros = (0,) * outputs
        codes = self.rng.integers(-127, 128, shape).astype(np.int8)
        values = self.rng.integers(-200, 200, outputs).astype(np.int32)
        of_products = np.float32(x.quantization.scale[0]) * scales
        return (
            self.tensor(shape, Quantization(tuple(scales.tolist()), zeros, axis), codes),
            self.tensor((outputs,), Quantization(tuple(of_products.tolist()), zeros), values),
        )

    def halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Add a SPLIT of the channels."""
        axis = self.tensor((), None, np.array(3, np.int32))
        shape = (*x.shape[:3], x.shape[3] // 2)
        left, right = (self.tensor(shape, x.quantization) for _ in range(2))
        options = {"num_splits": 2}
        node = Node(len(self.nodes), "SPLIT", 1, (axis, x), (left, right), options)
        self.nodes.append(node)
        return left, right

    def shuffled(self, left: Tensor, right: Tensor) -> Tensor:
        """Add the join of two tensors, and the shuffle of its channels: of either one in turn."""
        batch, height, width, half = left.shape
        shape = (batch, height, width, 2 * half)
        x = self.tensor(shape, _ACTIVATION)
        x = self.node("CONCATENATION", [left, right], x, {"axis": 3, **_NONE})
        x = self.reshaped(x, (batch, height, width, 2, half))
        order = self.tensor((5,), None, np.array((0, 1, 2, 4, 3), np.int32))
        turned = self.tensor((batch, height, width, half, 2), _ACTIVATION)
        return self.reshaped(self.node("TRANSPOSE", [x, order], turned, {}), shape)

    def classified(self, picture: Tensor, x: Tensor) -> Graph:
        """Return the graph, once the mean of each channel and a fully connected layer are there."""
        axes = self.tensor((2,), None, np.array((1, 2), np.int32))
        mean = self.tensor((1, x.shape[3]), _ACTIVATION)
        mean = self.node("MEAN", [x, axes], mean, {"keep_dims": False})
        logits = self.fully_connected(mean, 1000)
        shares = self.tensor((1, 1000), _SHARES)
        self.node("SOFTMAX", [logits], shares, {"beta": 1.0})
        return self.graph(picture, shares)

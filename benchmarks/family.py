# SPDX-License-Identifier: Apache-2.0
"""Networks with random weights, for their speed: MobileNet V1 of any size, V2, SqueezeNet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Node, Quantization, Tensor

WIDTHS = (0.25, 0.5, 0.75, 1.0)
RESOLUTIONS = (128, 160, 192, 224)
CLASSES = 1001

# Output channels at width 1 and stride of each depthwise and 1x1 pair.
# Source: MobileNets (arXiv 1704.04861), table 1.
_PAIRS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1),
    (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip
_FIRST = 32
# Expansion, output channels, count and first stride of V2's bottlenecks.
# Source: MobileNetV2 (arXiv 1801.04381), table 2.
_BOTTLENECKS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip
# The first convolution's channels and side; channels of each fire module's 1x1 before and of
# either half after it; None: a pooling.
# Source: SqueezeNet (arXiv 1602.07360) is version 1.0; its authors' repository has 1.1.
_Fires = tuple[tuple[int, int] | None, ...]
_SQUEEZENETS: Mapping[str, tuple[int, int, _Fires]] = {
    "1.0": (96, 7, (
        None, (16, 64), (16, 64), (32, 128),
        None, (32, 128), (48, 192), (48, 192), (64, 256), None, (64, 256),
    )),
    "1.1": (64, 3, (
        None, (16, 64), (16, 64), None, (32, 128), (32, 128),
        None, (48, 192), (48, 192), (64, 256), (64, 256),
    )),
}  # fmt: skip
_INPUT = Quantization((0.0078125,), (128,))
_ACTIVATION = Quantization((float(np.float32(6 / 255)),), (0,))
_LOGITS = Quantization((float(np.float32(0.166)),), (66,))
_SHARES = Quantization((1 / 256,), (0,))
_WEIGHT_ZERO_POINT = 128


def mobilenet_v1(width: float, resolution: int) -> Graph:
    """Return the uint8 network, per tensor as the official quantised ones are.

    Shapes: picture (1, resolution, resolution, 3) -> shares (1, 1001)
    Raises: ValueError: `resolution` is no multiple of 32.
    """
    if resolution % 32:
        raise ValueError(f"resolution {resolution}: only multiples of 32 halve five times")
    network = Network(f"mobilenet_v1_{width}_{resolution}, random weights")
    x = picture = network.tensor((1, resolution, resolution, 3), _INPUT)
    x = network.convolution(x, channels(_FIRST, width), 3, 2)
    for out_c, stride in _PAIRS:
        x = network.convolution(x, x.shape[3], 3, stride, is_depthwise=True)
        x = network.convolution(x, channels(out_c, width))
    side = x.shape[1]
    pooled = network.tensor((1, 1, 1, x.shape[3]), _ACTIVATION)
    window = {"stride_w": 2, "stride_h": 2, "filter_width": side, "filter_height": side}
    network.node("AVERAGE_POOL_2D", [x], pooled, {"padding": "VALID", **window})
    logits = network.convolution(pooled, CLASSES, activation="NONE", quantization=_LOGITS)
    flat = network.reshaped(logits, (1, CLASSES))
    shares = network.tensor(flat.shape, _SHARES)
    network.node("SOFTMAX", [flat], shares, {"beta": 1.0})
    return network.graph(picture, shares)


def mobilenet_v2(resolution: int = 224) -> Graph:
    """Return MobileNet V2 of width 1 in float32.

    Shapes: picture (1, resolution, resolution, 3) -> shares (1, 1001)
    """
    network = FloatNetwork(f"mobilenet_v2_1.0_{resolution}, random weights")
    x = picture = network.tensor((1, resolution, resolution, 3), None)
    x = network.convolution(x, 32, 3, 2)
    for expansion, out_c, count, first_stride in _BOTTLENECKS:
        for number in range(count):
            before, stride = x, 1 if number else first_stride
            if expansion > 1:
                x = network.convolution(x, expansion * x.shape[3])
            x = network.convolution(x, x.shape[3], 3, stride, is_depthwise=True)
            x = network.convolution(x, out_c, activation="NONE")
            if number:
                total = network.tensor(x.shape, None)
                x = network.node("ADD", [x, before], total, {"fused_activation_function": "NONE"})
    x = network.convolution(x, 1280)
    x = network.pool("AVERAGE_POOL_2D", x, x.shape[1], 1)
    x = network.convolution(x, CLASSES, activation="NONE")
    flat = network.reshaped(x, (1, CLASSES))
    shares = network.tensor(flat.shape, None)
    network.node("SOFTMAX", [flat], shares, {"beta": 1.0})
    return network.graph(picture, shares)


def squeezenet(resolution: int = 224, version: str = "1.1", is_float: bool = False) -> Graph:
    """Return SqueezeNet in uint8 or float32: 3x3 convolutions, concatenations, no depthwise ones.

    Shapes: picture (1, resolution, resolution, 3) -> shares (1, 1, 1, 1000)
    """
    first, side, fires = _SQUEEZENETS[version]
    made = FloatNetwork if is_float else Network
    network = made(f"squeezenet_{version}_{resolution}, random weights")
    x = picture = network.tensor((1, resolution, resolution, 3), _INPUT)
    x = network.convolution(x, first, side, 2, activation="RELU")
    for fire in fires:
        if fire is None:
            x = network.pool("MAX_POOL_2D", x, 3, 2)
            continue
        squeezed, expanded = fire
        x = network.convolution(x, squeezed, activation="RELU")
        halves = [network.convolution(x, expanded, side, activation="RELU") for side in (1, 3)]
        joined = network.tensor((*x.shape[:3], 2 * expanded), _ACTIVATION)
        options = {"axis": 3, "fused_activation_function": "NONE"}
        x = network.node("CONCATENATION", halves, joined, options)
    x = network.convolution(x, 1000, activation="RELU")
    x = network.pool("AVERAGE_POOL_2D", x, x.shape[1], x.shape[1])
    shares = network.tensor(x.shape, _SHARES)
    network.node("SOFTMAX", [x], shares, {"beta": 1.0})
    return network.graph(picture, shares)


def channels(at_width_1: int, width: float) -> int:
    """Return a layer's channels at that width."""
    return max(8, int(at_width_1 * width))


class Network:
    """A uint8 graph while it grows, its weights random."""

    dtype = "uint8"  # of activations
    quantization = _ACTIVATION  # of a layer's results, where nothing else is said

    def __init__(self, description: str) -> None:
        self.description = description
        self.rng = np.random.default_rng(0)
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []

    def tensor(
        self,
        shape: tuple[int, ...],
        quantization: Quantization | None,
        data: NDArray[Any] | None = None,
    ) -> Tensor:
        """Add an activation, or a constant of its data's type."""
        dtype = self.dtype if data is None else data.dtype.name
        index = len(self.tensors)
        self.tensors.append(Tensor(index, f"t{index}", shape, dtype, quantization, data))
        return self.tensors[-1]

    def node(
        self, op: str, inputs: list[Tensor], output: Tensor, options: dict[str, Any]
    ) -> Tensor:
        """Add a node and return its output."""
        self.nodes.append(Node(len(self.nodes), op, 1, tuple(inputs), (output,), options))
        return output

    def convolution(
        self,
        x: Tensor,
        out_c: int,
        side: int = 1,
        stride: int = 1,
        is_depthwise: bool = False,
        activation: str = "RELU6",
        quantization: Quantization | None = None,
    ) -> Tensor:
        """Add a convolution with SAME padding."""
        _, height, width, in_c = x.shape
        kernel = (1, side, side, out_c) if is_depthwise else (out_c, side, side, in_c)
        terms = side * side * (1 if is_depthwise else in_c)
        weights, bias = self._weights(x, kernel, out_c, terms)
        options: dict[str, Any] = {
            "padding": "SAME",
            "stride_w": stride,
            "stride_h": stride,
            "fused_activation_function": activation,
            "dilation_w_factor": 1,
            "dilation_h_factor": 1,
        }
        if is_depthwise:
            options["depth_multiplier"] = 1
        return self.node(
            "DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D",
            [x, weights, bias],
            self.tensor(
                (1, -(-height // stride), -(-width // stride), out_c),
                quantization or self.quantization,
            ),
            options,
        )

    def pool(self, op: str, x: Tensor, side: int, stride: int, padding: str = "VALID") -> Tensor:
        """Add a pooling."""
        lost = side - 1 if padding == "VALID" else 0
        sizes = (-(-(size - lost) // stride) for size in x.shape[1:3])
        window = {"stride_w": stride, "stride_h": stride, "filter_width": side}
        options = {"padding": padding, "filter_height": side, **window}
        options["fused_activation_function"] = "NONE"
        return self.node(op, [x], self.tensor((1, *sizes, x.shape[3]), x.quantization), options)

    def reshaped(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Add a RESHAPE."""
        wanted = self.tensor((len(shape),), None, np.array(shape, np.int32))
        result = self.tensor(shape, x.quantization)
        return self.node("RESHAPE", [x, wanted], result, {"new_shape": shape})

    def fully_connected(self, x: Tensor, outputs: int) -> Tensor:
        """Add a fully connected layer."""
        weights, bias = self._weights(x, (outputs, x.shape[1]), outputs, x.shape[1])
        options = {"fused_activation_function": "NONE", "weights_format": "DEFAULT"}
        result = self.tensor((1, outputs), _LOGITS)
        return self.node("FULLY_CONNECTED", [x, weights, bias], result, options)

    def _weights(
        self, x: Tensor, shape: tuple[int, ...], outputs: int, terms: int
    ) -> tuple[Tensor, Tensor]:
        """Add the weights of a layer on x, and its bias; `terms` of each sum."""
        # Codes of a standard deviation of 74: the sums fill the range of the output.
        scale = float(np.float32(1 / (30 * np.sqrt(terms))))
        codes = self.rng.integers(0, 256, shape).astype(np.uint8)
        weights = self.tensor(shape, Quantization((scale,), (_WEIGHT_ZERO_POINT,)), codes)
        assert x.quantization is not None
        bias_scale = float(np.float32(x.quantization.scale[0] * scale))
        values = self.rng.integers(-200, 200, outputs).astype(np.int32)
        return weights, self.tensor((outputs,), Quantization((bias_scale,), (0,)), values)

    def graph(self, source: Tensor, result: Tensor) -> Graph:
        """Return what was added."""
        return Graph(tuple(self.tensors), tuple(self.nodes), (source,), (result,), self.description)


class FloatNetwork(Network):
    """The same in float32."""

    dtype = "float32"

    def tensor(
        self,
        shape: tuple[int, ...],
        quantization: Quantization | None,
        data: NDArray[Any] | None = None,
    ) -> Tensor:
        """Add an activation, or a constant of its data's type; never quantised."""
        return super().tensor(shape, None, data)

    def _weights(
        self, x: Tensor, shape: tuple[int, ...], outputs: int, terms: int
    ) -> tuple[Tensor, Tensor]:
        # Sums as large as the inputs after an activation that halves them.
        factors = self.rng.standard_normal(shape) * np.sqrt(2 / terms)
        values = self.rng.uniform(-0.1, 0.1, outputs)
        weights, bias = (each.astype(np.float32) for each in (factors, values))
        return self.tensor(shape, None, weights), self.tensor((outputs,), None, bias)

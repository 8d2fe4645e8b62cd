# SPDX-License-Identifier: Apache-2.0
"""Networks with random weights, for their speed: MobileNet V1 of any size, SqueezeNet."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import Graph, Node, Quantization, Tensor

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
# Channels of each fire module's 1x1 before and of either half after it; None: a pooling.
# Source: SqueezeNet (arXiv 1602.07360), as its version 1.1 has them.
_FIRES: tuple[tuple[int, int] | None, ...] = (
    None, (16, 64), (16, 64), None, (32, 128), (32, 128),
    None, (48, 192), (48, 192), (64, 256), (64, 256),
)  # fmt: skip
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
    flat = network.tensor((1, CLASSES), _LOGITS)
    shape = network.tensor((2,), None, np.array(flat.shape, np.int32))
    network.node("RESHAPE", [logits, shape], flat, {"new_shape": flat.shape})
    shares = network.tensor(flat.shape, _SHARES)
    network.node("SOFTMAX", [flat], shares, {"beta": 1.0})
    return network.graph(picture, shares)


def squeezenet(resolution: int = 224) -> Graph:
    """Return SqueezeNet 1.1 in uint8: 3x3 convolutions, concatenations, no depthwise ones.

    Shapes: picture (1, resolution, resolution, 3) -> shares (1, 1, 1, 1000)
    """
    network = Network(f"squeezenet_1.1_{resolution}, random weights")
    x = picture = network.tensor((1, resolution, resolution, 3), _INPUT)
    x = network.convolution(x, 64, 3, 2, activation="RELU")
    for fire in _FIRES:
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
        """Add a uint8 activation, or a constant of its data's type."""
        dtype = "uint8" if data is None else data.dtype.name
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
        quantization: Quantization = _ACTIVATION,
    ) -> Tensor:
        """Add a convolution with SAME padding."""
        _, height, width, in_c = x.shape
        kernel = (1, side, side, out_c) if is_depthwise else (out_c, side, side, in_c)
        terms = side * side * (1 if is_depthwise else in_c)
        # Codes of a standard deviation of 74: the sums fill the range of the output.
        scale = float(np.float32(1 / (30 * np.sqrt(terms))))
        codes = self.rng.integers(0, 256, kernel).astype(np.uint8)
        weights = self.tensor(kernel, Quantization((scale,), (_WEIGHT_ZERO_POINT,)), codes)
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
            [x, weights, self._bias(x, scale, out_c)],
            self.tensor((1, -(-height // stride), -(-width // stride), out_c), quantization),
            options,
        )

    def pool(self, op: str, x: Tensor, side: int, stride: int) -> Tensor:
        """Add a pooling without padding."""
        sizes = ((size - side) // stride + 1 for size in x.shape[1:3])
        window = {"stride_w": stride, "stride_h": stride, "filter_width": side}
        options = {"padding": "VALID", "filter_height": side, **window}
        options["fused_activation_function"] = "NONE"
        return self.node(op, [x], self.tensor((1, *sizes, x.shape[3]), x.quantization), options)

    def fully_connected(self, x: Tensor, outputs: int) -> Tensor:
        """Add a fully connected layer."""
        scale = float(np.float32(1 / (30 * np.sqrt(x.shape[1]))))
        codes = self.rng.integers(0, 256, (outputs, x.shape[1])).astype(np.uint8)
        weights = self.tensor(codes.shape, Quantization((scale,), (_WEIGHT_ZERO_POINT,)), codes)
        options = {"fused_activation_function": "NONE", "weights_format": "DEFAULT"}
        result = self.tensor((1, outputs), _LOGITS)
        return self.node(
            "FULLY_CONNECTED", [x, weights, self._bias(x, scale, outputs)], result, options
        )

    def _bias(self, x: Tensor, weight_scale: float, outputs: int) -> Tensor:
        assert x.quantization is not None
        scale = float(np.float32(x.quantization.scale[0] * weight_scale))
        values = self.rng.integers(-200, 200, outputs).astype(np.int32)
        return self.tensor((outputs,), Quantization((scale,), (0,)), values)

    def graph(self, source: Tensor, result: Tensor) -> Graph:
        """Return what was added."""
        return Graph(tuple(self.tensors), tuple(self.nodes), (source,), (result,), self.description)

# SPDX-License-Identifier: Apache-2.0
"""A builder of networks with random weights, for models of which only the speed matters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Node, Tensor, flexbuffer_of, write_model
from tflite_opencl.models.build import constant, graph, integers, node, numbers, tensor

# Scale and zero point by content of a tensor.
_QUANTIZATION: dict[str, dict[str, tuple[float, int]]] = {
    "uint8": {"picture": (1 / 128, 128), "activation": (6 / 255, 0), "shares": (1 / 256, 0),
              "logits": (0.166, 66), "codes": (0.06, 131)},
    "int8": {"picture": (1 / 128, -1), "activation": (6 / 255, -128), "shares": (1 / 256, -128),
             "logits": (0.166, 66), "linear": (0.05, 3), "tanh": (1 / 128, 0)},
}  # fmt: skip


class Network:
    """A graph of uint8 with a scale a tensor, of int8 with a scale a channel, or of float32.

    Its methods add nodes, and return the output of the last one.
    """

    def __init__(self, dtype: str = "uint8") -> None:
        self.dtype = dtype  # of activations
        self._rng = np.random.default_rng(0)
        self.nodes: list[Node] = []

    def tensor(self, shape: tuple[int, ...], holds: str = "activation") -> Tensor:
        """Return an activation, or the network's input; `holds`: "picture", "logits", ..."""
        of_type = _QUANTIZATION.get(self.dtype)
        scale, zero_point = of_type[holds] if of_type else (None, 0)
        return tensor(shape, self.dtype, scale, zero_point)

    def add(self, op: str, inputs: list[Tensor], output: Tensor, **options: Any) -> Tensor:
        """Add a node of one output."""
        self.nodes.append(node(op, inputs, [output], options))
        return output

    def convolution(
        self,
        x: Tensor,
        out_c: int,
        side: int = 1,
        stride: int = 1,
        is_depthwise: bool = False,
        activation: str = "RELU6",
        holds: str = "activation",
    ) -> Tensor:
        """Add a convolution with SAME padding."""
        _, height, width, in_c = x.shape
        shape = (1, side, side, out_c) if is_depthwise else (out_c, side, side, in_c)
        options = {"padding": "SAME", "stride_w": stride, "stride_h": stride}
        if is_depthwise:
            options["depth_multiplier"] = 1
        return self.add(
            "DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D",
            [x, *self._weights(x, shape, side * side * (1 if is_depthwise else in_c), out_c)],
            self.tensor((1, -(-height // stride), -(-width // stride), out_c), holds),
            fused_activation_function=activation,
            **options,
        )

    def transposed(
        self, x: Tensor, out_c: int, side: int, stride: int, holds: str = "activation"
    ) -> Tensor:
        """Add a transposed convolution with SAME padding; a sum has a part of the window's taps."""
        _, height, width, in_c = x.shape
        shape = (1, stride * height, stride * width, out_c)
        terms = max(1, side * side // stride**2) * in_c
        weights, bias = self._weights(x, (out_c, side, side, in_c), terms, out_c)
        options = {"padding": "SAME", "stride_w": stride, "stride_h": stride}
        inputs = [numbers(shape), weights, x, bias]
        return self.add("TRANSPOSE_CONV", inputs, self.tensor(shape, holds), **options)

    def pool(self, op: str, x: Tensor, side: int, stride: int, padding: str = "VALID") -> Tensor:
        """Add a pooling."""
        lost = side - 1 if padding == "VALID" else 0
        sizes = (-(-(size - lost) // stride) for size in x.shape[1:3])
        window = {"stride_w": stride, "stride_h": stride, "filter_width": side}
        result = replace(x, shape=(1, *sizes, x.shape[3]))
        return self.add(op, [x], result, padding=padding, filter_height=side, **window)

    def reshaped(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Add a RESHAPE."""
        return self.add("RESHAPE", [x, numbers(shape)], replace(x, shape=shape), new_shape=shape)

    def fully_connected(self, x: Tensor, outputs: int) -> Tensor:
        """Add a fully connected layer."""
        weights = self._weights(x, (outputs, x.shape[1]), x.shape[1], outputs)
        return self.add("FULLY_CONNECTED", [x, *weights], self.tensor((1, outputs), "logits"))

    def softmax(self, x: Tensor) -> Tensor:
        """Add a SOFTMAX of the last dimension."""
        return self.add("SOFTMAX", [x], self.tensor(x.shape, "shares"), beta=1.0)

    def joined(self, parts: list[Tensor], axis: int = 3) -> Tensor:
        """Add a CONCATENATION, of channels if nothing else is said."""
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self.add("CONCATENATION", parts, replace(parts[0], shape=tuple(shape)), axis=axis)

    def halves(self, x: Tensor) -> list[Tensor]:
        """Add a SPLIT of the channels, and return both parts."""
        results = [replace(x, shape=(*x.shape[:3], x.shape[3] // 2)) for _ in range(2)]
        self.nodes.append(node("SPLIT", [numbers(3), x], results, {"num_splits": 2}))
        return results

    def detections(
        self, codes: Tensor, scores: Tensor, anchors: NDArray[np.float32], most: int
    ) -> None:
        """Add a TFLite_Detection_PostProcess, with the options of TensorFlow's detectors.

        Shapes: codes (1, n, 4), scores (1, n, classes + 1), anchors (n, 4)
        """
        scale = anchors.max() / 255
        rounded = constant(np.rint(anchors / scale).astype(np.uint8), scale)
        options = flexbuffer_of(
            max_detections=most, max_classes_per_detection=1, detections_per_class=100,
            use_regular_nms=False, nms_score_threshold=1e-8, nms_iou_threshold=0.6,
            num_classes=scores.shape[2] - 1, y_scale=10.0, x_scale=10.0, h_scale=5.0, w_scale=5.0,
        )  # fmt: skip
        results = [tensor(shape) for shape in ((1, most, 4), (1, most), (1, most), (1,))]
        inputs = [codes, scores, rounded]
        op = "TFLite_Detection_PostProcess"
        self.nodes.append(node(op, inputs, results, options, is_custom=True))

    def floats(self, shape: tuple[int, ...], terms: float) -> Tensor:
        """Return weights such that sums of `terms` products are about as large as their inputs."""
        return constant((self._rng.standard_normal(shape) / np.sqrt(terms)).astype(np.float32))

    def _weights(
        self, x: Tensor, shape: tuple[int, ...], terms: int, outputs: int
    ) -> tuple[Tensor, Tensor]:
        """Return the weights of a layer on x, and its bias; `terms` of each sum."""
        if x.quantization is None:
            # Sums as large as the inputs after an activation that halves them.
            weights = self.floats(shape, terms / 2)
            return weights, constant(self._rng.uniform(-0.1, 0.1, outputs).astype(np.float32))
        # Codes of a standard deviation of 74: the sums fill the range of the output.
        scale = np.float32(1 / (30 * np.sqrt(terms)))
        axis = zero_point = 0
        if self.dtype == "uint8":
            scales, zero_point = scale[None], 128
        else:  # a scale for each output channel, which is the last axis of depthwise weights
            scales = np.float32(self._rng.uniform(0.5, 1.5, outputs)) * scale
            axis = 3 if shape[0] == 1 and len(shape) == 4 else 0
        codes = integers(self._rng, shape, self.dtype)
        bias = self._rng.integers(-200, 200, outputs).astype(np.int32)
        of_products = np.float32(x.quantization.scale[0]) * scales
        return constant(codes, scales, zero_point, axis=axis), constant(bias, of_products)

    def graph(self, description: str) -> Graph:
        """Return the graph; its inputs are written by no node, its outputs read by none."""
        return replace(graph(self.nodes), description=f"{description}, random weights")


def one_pool() -> bytes:
    """Return a model of one node, whose kernel is small."""
    network = Network()
    network.pool("AVERAGE_POOL_2D", network.tensor((1, 4, 4, 4)), 2, 2)
    return write_model(network.graph("one pool"))

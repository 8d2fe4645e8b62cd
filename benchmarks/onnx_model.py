# SPDX-License-Identifier: Apache-2.0
"""Graph -> an ONNX model of the same structure with random weights, int8 QDQ or float32.

What ONNX runtimes fuse best: uint8 activations, int8 weights, a scale a channel, NCHW. Its speed is
that of the real network; its answers mean nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Skipped, imported
from delegate.inspect import Graph, Node, Tensor

_OPSET = 17
# A saturating quantisation is RELU6 already, where the range is RELU6's own.
_SCALE, _ZERO_POINT = np.float32(6 / 255), np.uint8(0)
_POOLS = {"AVERAGE_POOL_2D": "AveragePool", "MAX_POOL_2D": "MaxPool"}
_IGNORED = ("QUANTIZE", "DEQUANTIZE", "RESHAPE")


def onnx_model(graph: Graph, batch: int = 1, is_quantized: bool = True) -> bytes:
    """Return the bytes of an ONNX model with the graph's layers.

    Shapes: input (batch, c, h, w) uint8, or float32 -> output (batch, classes) float32
    Raises: Skipped: the package onnx is not there, or an op has no translation here.
    """
    imported("onnx")
    return _Builder(graph, batch, is_quantized).model()


class _Builder:
    """The ONNX graph while it grows; each method returns the name of a value."""

    def __init__(self, graph: Graph, batch: int, is_quantized: bool) -> None:
        self.onnx = importlib.import_module("onnx")
        self.graph, self.batch, self.is_quantized = graph, batch, is_quantized
        self.rng = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def model(self) -> bytes:
        helper, types = self.onnx.helper, self.onnx.TensorProto
        if len(self.graph.inputs) != 1 or len(self.graph.outputs) != 1:
            raise Skipped("the model has several inputs or outputs")
        (source,), (result,) = self.graph.inputs, self.graph.outputs
        values = {source.index: "input"}
        if self.is_quantized:
            values[source.index] = self.dequantize("input", _SCALE, _ZERO_POINT)
        for node in self.graph.nodes:
            first = node.inputs[0] if node.inputs else None
            if first is None or first.index not in values:
                raise Skipped(f"op {node.op} has no ONNX translation here")
            values[node.outputs[0].index] = (
                values[first.index]
                if node.op in _IGNORED
                else self.quantized(self.layer(node, values), node)
            )
        self.add("Flatten", [values[result.index]], axis=1)
        self.nodes[-1].output[0] = "output"
        _, height, width, channels = source.shape
        kind = types.UINT8 if self.is_quantized else types.FLOAT
        shape = self.batch, channels, height, width
        given = helper.make_tensor_value_info("input", kind, shape)
        output = helper.make_tensor_value_info("output", types.FLOAT, (self.batch, None))
        graph = helper.make_graph(self.nodes, "network", [given], [output], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
        model.ir_version = 8  # what runtimes of 2023 read, too
        return bytes(model.SerializeToString())

    def layer(self, node: Node, values: dict[int, str]) -> str:
        first = node.inputs[0]
        assert first is not None
        x = values[first.index]
        if node.op in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            return self.convolution(node, x)
        if node.op == "FULLY_CONNECTED":
            shape = _constant(node, 1).shape
            flat = self.add("Flatten", [x], axis=1)
            return self.add("Gemm", [flat, *self.weights_and_bias(shape, shape[0])], transB=1)
        if (kind := _POOLS.get(node.op)) is not None:
            size = (node.options["filter_height"], node.options["filter_width"])
            if first.shape[1:3] == size:
                return self.add(f"Global{kind}", [x])
            return self.add(kind, [x], kernel_shape=size, **_window(node))
        if node.op == "MEAN":
            return self.add("GlobalAveragePool", [x])
        if node.op == "ADD":
            second = node.inputs[1]
            if second is not None and second.index in values:
                return self.add("Add", [x, values[second.index]])
        if node.op == "SOFTMAX":
            return self.add("Softmax", [self.add("Flatten", [x], axis=1)], axis=1)
        raise Skipped(f"op {node.op} has no ONNX translation here")

    def convolution(self, node: Node, x: str) -> str:
        first, height, width, last = _constant(node, 1).shape
        out_c, in_c, groups = first, last, 1
        if node.op == "DEPTHWISE_CONV_2D":
            out_c, in_c, groups = last, 1, last // int(node.options["depth_multiplier"])
        return self.add(
            "Conv",
            [x, *self.weights_and_bias((out_c, in_c, height, width), out_c)],
            kernel_shape=(height, width),
            group=groups,
            dilations=(node.options["dilation_h_factor"], node.options["dilation_w_factor"]),
            **_window(node),
        )

    def weights_and_bias(self, shape: tuple[int, ...], channels: int) -> list[str]:
        """Add random weights that keep the activations about where they are."""
        deviation = np.sqrt(2 / np.prod(shape[1:]))  # half of the inputs are 0 after RELU
        if not self.is_quantized:
            values = (self.rng.standard_normal(shape) * deviation).astype(np.float32)
            return [self.constant(values), self.constant(np.zeros(channels, np.float32))]
        codes = self.rng.integers(-127, 128, shape).astype(np.int8)
        scales = np.full(channels, deviation / 73, np.float32)  # which is that of the codes
        bias = self.constant(np.zeros(channels, np.int32))
        return [
            self.dequantize(self.constant(codes), scales, np.zeros(channels, np.int8), axis=0),
            self.dequantize(bias, scales * _SCALE, np.zeros(channels, np.int32), axis=0),
        ]

    def quantized(self, x: str, node: Node) -> str:
        """Round an activation to uint8 and back; the runtimes fuse the two into the layers."""
        if not self.is_quantized:
            if node.options.get("fused_activation_function", "NONE") == "NONE":
                return x
            low, high = self.constant(np.float32(0)), self.constant(np.float32(6))
            return self.add("Clip", [x, low, high])
        if node.op == "SOFTMAX":
            return x
        scale, zero_point = self.constant(_SCALE), self.constant(_ZERO_POINT)
        codes = self.add("QuantizeLinear", [x, scale, zero_point])
        return self.dequantize(codes, _SCALE, _ZERO_POINT)

    def dequantize(self, codes: str, scale: Any, zero_point: Any, **attributes: int) -> str:
        inputs = [codes, self.constant(scale), self.constant(zero_point)]
        return self.add("DequantizeLinear", inputs, **attributes)

    def add(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        output = f"{kind}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, values: NDArray[Any] | np.generic) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(values), name))
        return name


def _constant(node: Node, position: int) -> Tensor:
    tensor = node.inputs[position]
    if tensor is None or tensor.data is None:
        raise Skipped(f"{node.op} {node.index} has computed weights")
    return tensor


def _window(node: Node) -> dict[str, Any]:
    """Return strides and padding; SAME puts the odd one below and right in both formats."""
    padding = "SAME_UPPER" if node.options["padding"] == "SAME" else "VALID"
    strides = node.options["stride_h"], node.options["stride_w"]
    return {"strides": strides, "auto_pad": padding}

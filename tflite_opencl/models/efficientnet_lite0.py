# SPDX-License-Identifier: Apache-2.0
"""EfficientNet-Lite0 as a TFLite graph: PyTorch weights to float32, and float32 to int8.

Neither reads nor writes files, nor calibrates activation ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Node, Quantization, Tensor, with_tensors
from tflite_opencl.models.build import constant, node, tensor
from tflite_opencl.models.build import graph as graph_of

CLASSES = 1000
SIZE = 224  # of the input, in pixels

# Blocks, first block's stride, expansion and output channels of each stage; the rest follows from
# the weights. Source: tensorflow/tpu, efficientnet/lite/efficientnet_lite_builder.py.
_STAGES = (
    (1, 1, 1, 16),
    (2, 2, 6, 24),
    (2, 2, 6, 40),
    (3, 2, 6, 80),
    (3, 1, 6, 112),
    (4, 2, 6, 192),
    (1, 1, 6, 320),
)
_BATCH_NORM_EPSILON = 1e-3

# The op versions that introduced int8. Source: tflite/tools/versioning/op_version.cc.
_INT8_VERSIONS = {
    "ADD": 2, "AVERAGE_POOL_2D": 2, "CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4,
    "RESHAPE": 1, "SOFTMAX": 2,
}  # fmt: skip
# Their int8 output has the scale and zero point of their input.
_KEEP_QUANTIZATION = ("AVERAGE_POOL_2D", "RESHAPE")
# Axis of the weights' output channels; None: one scale for the whole tensor.
_CHANNEL_AXIS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": None}
# The largest bias in quanta. A dozen layers have dead channels, with weights of 1e-8 and a
# bias of 1: scaled by their weights alone, such a bias would overflow 32 bits.
_BIAS_LIMIT = 2**20


class _Network:
    """The float graph under construction; each method appends nodes and returns the last output."""

    def __init__(self, weights: Mapping[str, NDArray[Any]]) -> None:
        self.weights = weights
        self.nodes: list[Node] = []

    def node(
        self, op: str, inputs: tuple[Tensor, ...], name: str, shape: tuple[int, ...], **options: Any
    ) -> Tensor:
        output = tensor(shape, name=name)
        self.nodes.append(node(op, inputs, [output], options))
        return output

    def conv_2d(
        self, x: Tensor, name: str, layer: str, norm: str, stride: int = 1, activation: str = "NONE"
    ) -> Tensor:
        """Append the convolution `layer` with batch normalisation `norm` folded into it."""
        # Elementwise in double precision: the same bytes on every machine.
        weights = self.weights[f"{layer}.weight"].astype(np.float64)
        gamma, beta, mean, variance = (
            self.weights[f"{norm}.{part}"].astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = gamma / np.sqrt(variance + _BATCH_NORM_EPSILON)
        folded = (weights * factor[:, None, None, None]).astype(np.float32)
        bias = (beta - mean * factor).astype(np.float32)
        out_c, in_c, *_ = folded.shape
        op, order, options = "CONV_2D", (0, 2, 3, 1), {}
        if in_c == 1:
            op, order, options = "DEPTHWISE_CONV_2D", (1, 2, 3, 0), {"depth_multiplier": 1}
        kernel = constant(np.ascontiguousarray(folded.transpose(order)), name=f"{name}/weights")
        out_h = -(-x.shape[1] // stride)  # TensorFlow's SAME padding, and kernels are square
        return self.node(
            op, (x, kernel, constant(bias, name=f"{name}/bias")), name, (1, out_h, out_h, out_c),
            padding="SAME", stride_w=stride, stride_h=stride, fused_activation_function=activation,
            dilation_w_factor=1, dilation_h_factor=1, **options,
        )  # fmt: skip

    def block(self, x: Tensor, number: int, stride: int, expansion: int, channels: int) -> Tensor:
        """Append an inverted residual block: expand, filter depthwise, project, add the input."""
        name, layer, block_input = f"block{number}", f"_blocks.{number}", x
        if expansion != 1:
            expand, norm = f"{layer}._expand_conv", f"{layer}._bn0"
            x = self.conv_2d(x, f"{name}/expand", expand, norm, activation="RELU6")
        depthwise, norm = f"{layer}._depthwise_conv", f"{layer}._bn1"
        x = self.conv_2d(x, f"{name}/depthwise", depthwise, norm, stride, "RELU6")
        x = self.conv_2d(x, f"{name}/project", f"{layer}._project_conv", f"{layer}._bn2")
        if stride != 1 or block_input.shape[3] != channels:
            return x
        both = (x, block_input)
        return self.node("ADD", both, f"{name}/add", x.shape, fused_activation_function="NONE")


def float_graph(weights: Mapping[str, NDArray[Any]]) -> Graph:
    """Return the network on float32: (byte - 127) / 128 in, 1000 probabilities out.

    Shapes: image (1, 224, 224, 3) -> probabilities (1, 1000)
    Source: EfficientNet-Lite, https://github.com/tensorflow/tpu; layer names as in PyTorch's port.
    """
    network = _Network(weights)
    image = tensor((1, SIZE, SIZE, 3), name="image")
    x = network.conv_2d(image, "stem", "_conv_stem", "_bn0", 2, "RELU6")
    blocks = (
        (stride, expansion, channels)
        for count, first_stride, expansion, channels in _STAGES
        for stride in (first_stride, *(1,) * (count - 1))
    )
    for number, block in enumerate(blocks):
        x = network.block(x, number, *block)
    x = network.conv_2d(x, "head", "_conv_head", "_bn1", activation="RELU6")
    side, channels = x.shape[1], x.shape[3]
    x = network.node(
        "AVERAGE_POOL_2D", (x,), "average", (1, 1, 1, channels), padding="VALID", stride_w=side,
        stride_h=side, filter_width=side, filter_height=side, fused_activation_function="NONE",
    )  # fmt: skip
    flat = constant(np.array((1, channels), np.int32), name="flat/shape")
    x = network.node("RESHAPE", (x, flat), "flat", (1, channels), new_shape=(1, channels))
    fc_weights = constant(weights["_fc.weight"], name="logits/weights")
    fc_bias = constant(weights["_fc.bias"], name="logits/bias")
    x = network.node(
        "FULLY_CONNECTED", (x, fc_weights, fc_bias), "logits", (1, CLASSES),
        fused_activation_function="NONE", weights_format="DEFAULT", keep_num_dims=False,
    )  # fmt: skip
    x = network.node("SOFTMAX", (x,), "probabilities", (1, CLASSES), beta=1.0)
    return replace(graph_of(network.nodes), description="EfficientNet-Lite0")


def quantize(graph: Graph, ranges: Mapping[str, tuple[float, float]]) -> Graph:
    """Quantise the float graph to int8: activations per tensor, convolution weights per channel.

    `ranges`: minimum and maximum of each computed tensor and of the inputs, by name.
    Source: TFLite 8-bit quantization specification.
    """

    def activation(tensor: Tensor, given: Quantization | None = None) -> Tensor:
        return replace(tensor, dtype="int8", quantization=given or _affine(*ranges[tensor.name]))

    made = {each: activation(each) for each in graph.inputs}
    for step in graph.nodes:
        source, *constants = (each for each in step.inputs if each is not None)
        (output,) = step.outputs
        given = made[source].quantization
        assert given is not None
        made[output] = activation(output, given if step.op in _KEEP_QUANTIZATION else None)
        if step.op in _CHANNEL_AXIS:
            weights, bias = constants
            pair = _quantized(weights, bias, _CHANNEL_AXIS[step.op], given.scale[0])
            made[weights], made[bias] = pair
    nodes = [
        replace(step, version=_INT8_VERSIONS[step.op]) for step in with_tensors(graph, made).nodes
    ]
    return replace(graph_of(nodes), description=f"{graph.description} int8")


def _affine(low: float, high: float) -> Quantization:
    low, high = min(low, 0.0), max(high, 0.0)  # zero must be representable, for padding
    scale = float(np.float32((high - low) / 255))
    return Quantization((scale,), (round(-128 - low / scale),))


def _quantized(
    weights: Tensor, bias: Tensor, axis: int | None, input_scale: float
) -> tuple[Tensor, Tensor]:
    """Return the weights as int8 and the bias as int32; `axis`: of output channels."""
    values, biases = np.asarray(weights.data, np.float64), np.asarray(bias.data, np.float64)
    others = tuple(dimension for dimension in range(values.ndim) if dimension != axis)
    peaks = np.abs(values).max(axis=others, keepdims=True)
    floors = np.abs(biases) / (input_scale * _BIAS_LIMIT)
    floors = floors.max() if axis is None else floors.reshape(peaks.shape)
    scales = np.maximum(peaks / 127, floors).astype(np.float32).astype(np.float64)
    codes = np.rint(values / scales).astype(np.int8)
    # TFLite requires the bias scale to be input scale x weight scale, in float32.
    bias_scales = (scales.ravel() * input_scale).astype(np.float32)
    bias_codes = np.rint(biases / bias_scales).astype(np.int32)
    return (
        constant(codes, scales.ravel(), axis=axis or 0, name=weights.name),
        constant(bias_codes, bias_scales, name=bias.name),
    )

# SPDX-License-Identifier: Apache-2.0
"""Quantised convolutions in real numbers: their weights, and what each channel can hold.

A channel's range is proven by the weights alone, for every input there is. Source of the
arithmetic: tflite/kernels/internal/reference/integer_ops/conv.h, depthwise_conv.h
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.passes.convolutions import (
    is_convolution,
    reason_to_leave,
    source_and_weights,
)

Reals = NDArray[np.float64]
Range = tuple[Reals, Reals]  # the least and the greatest real value of each channel: (c,), (c,)
_MULTIPLIER_SLACK = 2.0**-10  # quanta; far more than a multiplier of 31 bits is off


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A convolution's weights and bias as real numbers."""

    node: Node
    weights: Reals  # (o, taps, i): of each output channel, for the input channels that it reads
    bias: Reals  # (o,)
    reads: NDArray[np.int64]  # (o, i): which input channels these are

    @property
    def inputs(self) -> int:
        """How many channels the input has."""
        return int(source_and_weights(self.node)[0].shape[3])

    def per_input(self, values: Reals) -> Reals:
        """Return values of input channels for each weight: (c,) -> (o, 1, i)."""
        return np.asarray(values[self.reads][:, None, :])


def layer_of(node: Node) -> Layer:
    """Return a convolution that `reason_to_leave` has nothing against."""
    source, weights = source_and_weights(node)
    assert source.quantization is not None
    assert weights.quantization is not None
    scales = np.array(weights.quantization.scale, np.float64)
    values = np.asarray(weights.data).astype(np.float64)
    in_c = source.shape[3]
    if node.op == "DEPTHWISE_CONV_2D":
        out_c = values.shape[3]
        values = np.moveaxis(values, 3, 0).reshape(out_c, -1, 1)
        reads = np.arange(out_c)[:, None] // (out_c // in_c)
    else:
        out_c, own = values.shape[0], values.shape[3]
        values = values.reshape(out_c, -1, own)
        group = np.arange(out_c) // (out_c // (in_c // own))
        reads = group[:, None] * own + np.arange(own)
    if weights.dtype == "uint8":
        values = values - weights.quantization.zero_point[0]
    bias = node.inputs[2] if len(node.inputs) == 3 else None
    codes = np.zeros(out_c) if bias is None else np.asarray(bias.data).astype(np.float64)
    return Layer(
        node,
        values * scales[:, None, None],
        codes * scales * source.quantization.scale[0],
        reads,
    )


def channel_ranges(graph: Graph) -> dict[Tensor, Range]:
    """Return what each channel of quantised tensors can hold, in real numbers.

    Tensors whose nodes are not looked at have what their type and scale can hold.
    """
    found: dict[Tensor, Range] = {}
    for node in graph.nodes:
        if is_convolution(node) and reason_to_leave(graph, node) is None:
            source = source_and_weights(node)[0]
            sums = sums_of(layer_of(node), found.get(source) or whole_range(source))
            found[node.outputs[0]] = _stored(node, sums)
        elif node.op == "PAD" and node.inputs[0] in found and not node.is_custom:
            low, high = found[node.inputs[0]]
            if node.outputs[0].shape[-1:] == low.shape:
                found[node.outputs[0]] = np.minimum(low, 0), np.maximum(high, 0)
    return found


def whole_range(tensor: Tensor) -> Range:
    """Return what the type and the scale of a quantised tensor can hold, for each channel."""
    low, high = _code_range(tensor, "NONE")
    return np.full(tensor.shape[-1], low), np.full(tensor.shape[-1], high)


def stored_range(node: Node) -> tuple[float, float]:
    """Return what a convolution can store after its activation function, in real numbers."""
    return _code_range(node.outputs[0], str(node.options.get("fused_activation_function", "NONE")))


def sums_of(layer: Layer, inputs: Range) -> Range:
    """Return between which real numbers the sums of a convolution lie, before they are stored."""
    low, high = inputs
    if layer.weights.shape[1] > 1:
        low, high = np.minimum(low, 0), np.maximum(high, 0)  # a window over the edge finds zeros
    low_in, high_in = layer.per_input(low), layer.per_input(high)
    ends = layer.weights * low_in, layer.weights * high_in
    least = np.minimum(*ends).sum(axis=(1, 2)) + layer.bias
    most = np.maximum(*ends).sum(axis=(1, 2)) + layer.bias
    return least, most


def never_clamped_between(graph: Graph, node: Node, result: Tensor) -> bool:
    """Whether a convolution to `result` stores what it stores now, moved to another zero point.

    `result` has the type and the scale of the convolution's output. It does not where the output
    clamps numbers that `result` could hold.
    """
    own = stored_range(node)
    moved = stored_range(replace(node, outputs=(result,)))
    whole = _code_range(result, "NONE")
    least, most = max(own[0], whole[0]), min(own[1], whole[1])  # what both steps together leave
    source = source_and_weights(node)[0]
    sums = sums_of(layer_of(node), channel_ranges(graph).get(source) or whole_range(source))
    half = (result.quantization.scale[0] if result.quantization else 0) * (0.5 + _slack(node))
    fits_below = moved[0] == least or bool((sums[0] - half > least).all())
    fits_above = moved[1] == most or bool((sums[1] + half < most).all())
    return fits_below and fits_above


def _stored(node: Node, sums: Range) -> Range:
    """Return the range of a convolution's output: sums rounded to quanta and clamped."""
    quantization = node.outputs[0].quantization
    assert quantization is not None
    scale = quantization.scale[0]
    low, high = stored_range(node)
    slack = _slack(node)
    least = np.ceil(sums[0] / scale - 0.5 - slack) * scale
    most = np.floor(sums[1] / scale + 0.5 + slack) * scale
    return np.clip(least, low, high), np.clip(most, low, high)


def _slack(node: Node) -> Reals:
    """Return by how many quanta each channel's sum may be off before its last rounding: (1 or c,).

    The reference kernels may round twice: first to whole numbers, then by a shift to the right.
    Source: tflite/kernels/internal/common.h MultiplyByQuantizedMultiplier
    """
    source, weights = source_and_weights(node)
    scales = [
        tensor.quantization.scale for tensor in (source, node.outputs[0]) if tensor.quantization
    ]
    assert weights.quantization is not None
    multiplier = np.array(weights.quantization.scale) * scales[0][0] / scales[1][0]
    shift = np.maximum(-np.frexp(multiplier)[1], 0)
    return np.asarray(np.where(shift > 0, 0.5 ** (shift + 1), 0) + _MULTIPLIER_SLACK)


def _code_range(tensor: Tensor, activation: str) -> tuple[float, float]:
    """Return the real numbers that the least and the greatest code stand for.

    Source: tflite/kernels/kernel_util.cc CalculateActivationRangeQuantized; what is no clamp
    leaves the whole range
    """
    assert tensor.quantization is not None
    scale, zero = tensor.quantization.scale[0], tensor.quantization.zero_point[0]
    limits = np.iinfo(tensor.dtype)
    low, high = {"RELU": (0, None), "RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1)}.get(
        activation, (None, None)
    )
    codes = [
        zero + round(each / scale) if each is not None else int(end)
        for each, end in ((low, limits.min), (high, limits.max))
    ]
    least, most = max(codes[0], int(limits.min)), min(codes[1], int(limits.max))
    return (least - zero) * scale, (most - zero) * scale

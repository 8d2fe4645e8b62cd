# SPDX-License-Identifier: Apache-2.0
"""Quantised convolutions in real numbers: their weights, and each channel's value range.

A channel's range is proven from the weights alone, for all inputs. Source of the
arithmetic: tflite/kernels/internal/reference/integer_ops/conv.h, depthwise_conv.h
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Tensor, integers
from tflite_opencl.rewrites.changes import NoMatch, quanta
from tflite_opencl.rewrites.passes.convolutions import Conv2D, convolution_of

Reals = NDArray[np.float64]
Range = tuple[Reals, Reals]  # minimum and maximum real value of each channel: (c,), (c,)
# Name -> minimum and maximum real value; None: unbounded.
CLAMPS = {name: ends for name, ends in integers.FUSED_BOUNDS.items() if name != "NONE"}
_MULTIPLIER_SLACK = 2.0**-10  # quanta; far more than the error of a 31-bit multiplier


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A convolution's weights and bias as real numbers."""

    conv: Conv2D
    weights: Reals  # (o, taps, i): of each output channel, for the input channels that it reads
    bias: Reals  # (o,)
    reads: NDArray[np.int64]  # (o, i): the indices of these input channels

    def per_input(self, values: Reals) -> Reals:
        """Return values of input channels for each weight: (c,) -> (o, 1, i)."""
        return np.asarray(values[self.reads][:, None, :])


def layer_of(conv: Conv2D) -> Layer:
    """Return a convolution that can be rewritten."""
    codes, reads = conv.weights_and_reads()
    values = codes.reshape(conv.out_c, -1, reads.shape[1]).astype(np.float64) - conv.weight_zero
    scales = conv.weight_scales
    bias = np.zeros(conv.out_c) if conv.bias is None else np.asarray(conv.bias.data, np.float64)
    return Layer(
        conv, values * scales[:, None, None], bias * scales * quanta(conv.source)[0], reads
    )


def channel_ranges(graph: Graph) -> dict[Tensor, Range]:
    """Return the range of each channel of quantised tensors, in real numbers.

    Outputs of other nodes have the range of their type and scale.
    """
    found: dict[Tensor, Range] = {}
    for node in graph.nodes:
        conv = convolution_of(node)
        if conv is not None:
            try:
                conv.require_treatable(graph)
            except NoMatch:
                continue
            found[conv.result] = _stored(conv, sums_of(layer_of(conv), input_range(conv, found)))
        elif node.op == "PAD" and node.inputs[0] in found and not node.is_custom:
            low, high = found[node.inputs[0]]
            if node.outputs[0].shape[-1:] == low.shape:
                found[node.outputs[0]] = np.minimum(low, 0), np.maximum(high, 0)
    return found


def input_range(conv: Conv2D, ranges: Mapping[Tensor, Range]) -> Range:
    """Return the range of each channel of a convolution's input, as far as proven."""
    if conv.source in ranges:
        return ranges[conv.source]
    low, high = _code_range(conv.source, "NONE")
    return np.full(conv.in_c, low), np.full(conv.in_c, high)


def stored_range(conv: Conv2D) -> tuple[float, float]:
    """Return the range of a convolution's output after its activation, in real numbers."""
    options = conv.node.options
    return _code_range(conv.result, str(options.get("fused_activation_function", "NONE")))


def sums_of(layer: Layer, inputs: Range) -> Range:
    """Return the range of a convolution's sums in real numbers, before requantisation."""
    low, high = inputs
    if layer.weights.shape[1] > 1:
        low, high = np.minimum(low, 0), np.maximum(high, 0)  # windows at the edge read zeros
    low_in, high_in = layer.per_input(low), layer.per_input(high)
    ends = layer.weights * low_in, layer.weights * high_in
    least = np.minimum(*ends).sum(axis=(1, 2)) + layer.bias
    most = np.maximum(*ends).sum(axis=(1, 2)) + layer.bias
    return least, most


def never_clamped_between(graph: Graph, conv: Conv2D, result: Tensor) -> bool:
    """Whether a convolution to `result` stores the same values, at another zero point.

    `result` has the type and scale of the convolution's output. False if the output
    clamps values that `result` can represent.
    """
    own = stored_range(conv)
    moved = stored_range(replace(conv, result=result))
    whole = _code_range(result, "NONE")
    least, most = max(own[0], whole[0]), min(own[1], whole[1])  # the range after both steps
    sums = sums_of(layer_of(conv), input_range(conv, channel_ranges(graph)))
    half = quanta(result)[0] * (0.5 + _slack(conv))
    fits_below = moved[0] == least or bool((sums[0] - half > least).all())
    fits_above = moved[1] == most or bool((sums[1] + half < most).all())
    return fits_below and fits_above


def _stored(conv: Conv2D, sums: Range) -> Range:
    """Return the range of a convolution's output: sums rounded to quanta and clamped."""
    scale = quanta(conv.result)[0]
    low, high = stored_range(conv)
    slack = _slack(conv)
    least = np.ceil(sums[0] / scale - 0.5 - slack) * scale
    most = np.floor(sums[1] / scale + 0.5 + slack) * scale
    return np.clip(least, low, high), np.clip(most, low, high)


def _slack(conv: Conv2D) -> Reals:
    """Return each channel's maximum error in quanta before its last rounding: (1 or c,).

    The reference kernels may round twice: first to integers, then by a right shift.
    Source: tflite/kernels/internal/common.h MultiplyByQuantizedMultiplier
    """
    multiplier = conv.weight_scales * quanta(conv.source)[0] / quanta(conv.result)[0]
    shift = np.maximum(-np.frexp(multiplier)[1], 0)
    return np.asarray(np.where(shift > 0, 0.5 ** (shift + 1), 0) + _MULTIPLIER_SLACK)


def clamp_codes(tensor: Tensor, clamp: str) -> tuple[float, float]:
    """Return the minimum and maximum integer after a clamp, possibly beyond the type's range.

    Source: tflite/kernels/kernel_util.cc CalculateActivationRangeQuantized; other activations
    leave the type's whole range
    """
    scale, zero = quanta(tensor)
    limits = np.iinfo(tensor.dtype)

    def code(real: float) -> float:
        # TfLiteRound of a float32 quotient, half away from zero. It may be infinite.
        with np.errstate(over="ignore"):
            exact = float(np.float32(real) / np.float32(scale))
        return zero + float(np.copysign(np.floor(abs(exact) + 0.5), exact))

    low, high = CLAMPS.get(clamp, (None, None))
    return (
        limits.min if low is None else code(low), limits.max if high is None else code(high)
    )  # fmt: skip


def _code_range(tensor: Tensor, clamp: str) -> tuple[float, float]:
    """Return the real numbers of the minimum and maximum integer after a clamp."""
    scale, zero = quanta(tensor)
    limits, (low, high) = np.iinfo(tensor.dtype), clamp_codes(tensor, clamp)
    return (max(low, limits.min) - zero) * scale, (min(high, limits.max) - zero) * scale

# SPDX-License-Identifier: Apache-2.0
"""int8 activations and weights become uint8 (exact).

    x int8 -CONV_2D, w int8-> y int8
    becomes
    x -QUANTIZE-> x uint8 -CONV_2D, w uint8-> y uint8 -QUANTIZE-> y int8

A chain of such nodes has a QUANTIZE at its ends alone. Inputs and outputs of the graph keep their
type, so that programs need no change. Codes and zero points move by 128 (signs.py).

Weights need one scale: per_channel_to_per_tensor comes first. The uint8 kernels compute their
multiplier otherwise; a layer is converted where that is proven to round every sum alike
(rounding.py), by this weight scale or one a few bits beside it, and is left elsewhere.

It is for targets that know uint8 alone, as etnaviv's NPU, and for runtimes of TensorFlow 1's days.
Source: tflite/kernels/kernel_util.cc, and the kernels of each op in both types.
"""

from __future__ import annotations

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.notes import Notes
from tflite_opencl.rewrites.passes.rounding import (
    double_product,
    float_product,
    round_alike,
    stay_in_32_bits,
    sums_of,
)
from tflite_opencl.rewrites.passes.signs import (
    BEYOND_32_BITS,
    Signs,
    converted,
    one_scale,
    with_values,
)

_BESIDE = 8  # scales that are tried on each side, one bit apart


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph with uint8 in the place of int8; the same one where no node can be."""
    notes = Notes() if notes is None else notes
    return converted(graph, notes, Signs("int8", "uint8", _weights))


def _weights(node: Node) -> Tensor | str:
    source, weights, result = node.inputs[0], node.inputs[1], node.outputs[0]
    if weights is None or weights.data is None or weights.is_sparse:
        return "weights that are computed or sparse"
    if source is None or source.quantization is None or result.quantization is None:
        return "no scale"
    scale = one_scale(weights)
    if scale is None:
        return "weights with several scales: per_channel_to_per_tensor gives them one"
    if weights.quantization is None or any(weights.quantization.zero_point):
        return "int8 weights with a zero point other than 0"
    in_scale, out_scale = source.quantization.scale[0], result.quantization.scale[0]
    wanted = double_product(in_scale, scale, out_scale)
    least, greatest = sums_of(node, np.asarray(weights.data, np.int64))
    if not stay_in_32_bits(wanted, least, greatest):
        return BEYOND_32_BITS
    if node.op == "FULLY_CONNECTED":  # its kernels of both types share the multiplier
        return with_values(weights, "uint8", scale, 128, 128)
    for beside in _beside(scale):
        if round_alike(wanted, float_product(in_scale, beside, out_scale), least, greatest):
            return with_values(weights, "uint8", beside, 128, 128)
    return "the multiplier of uint8 is a float's, and rounds some sums otherwise"


def _beside(scale: float) -> list[float]:
    """Return a float32 and those next to it, the nearest first."""
    found, low, high = [scale], np.float32(scale), np.float32(scale)
    for _ in range(_BESIDE):
        low, high = np.nextafter(low, np.float32(0)), np.nextafter(high, np.float32(np.inf))
        found += [float(low), float(high)]
    return found

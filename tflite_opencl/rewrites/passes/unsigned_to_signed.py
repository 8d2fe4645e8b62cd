# SPDX-License-Identifier: Apache-2.0
"""uint8 activations and weights become int8 (exact).

    x uint8 -CONV_2D, w uint8-> y uint8
    becomes
    x -QUANTIZE-> x int8 -CONV_2D, w int8-> y int8 -QUANTIZE-> y uint8

A chain of such nodes has a QUANTIZE at its ends alone. Inputs and outputs of the graph keep their
type, so that programs need no change. Codes and zero points move by 128 (signs.py). Weights move by
their zero point, because int8 weights have none; those farther than 127 from it have no int8 code,
and their layer is left. So is one whose multiplier rounds some sum otherwise (rounding.py).

It is for targets that know int8 alone (CMSIS-NN and other kernels for TFLite Micro).
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


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph with int8 in the place of uint8; the same one where no node can be."""
    notes = Notes() if notes is None else notes
    return converted(graph, notes, Signs("uint8", "int8", _weights))


def _weights(node: Node) -> Tensor | str:
    source, weights, result = node.inputs[0], node.inputs[1], node.outputs[0]
    if weights is None or weights.data is None or weights.is_sparse:
        return "weights that are computed or sparse"
    if source is None or source.quantization is None or result.quantization is None:
        return "no scale"
    scale = one_scale(weights)
    if scale is None or weights.quantization is None:
        return "uint8 weights with several scales"
    zero = weights.quantization.zero_point[0]
    values = np.asarray(weights.data, np.int64) - zero
    if np.abs(values).max(initial=0) > 127:
        return "weights farther than 127 from their zero point"
    in_scale, out_scale = source.quantization.scale[0], result.quantization.scale[0]
    least, greatest = sums_of(node, values)
    new = double_product(in_scale, scale, out_scale)
    if not stay_in_32_bits(new, least, greatest):
        return BEYOND_32_BITS
    if node.op != "FULLY_CONNECTED":  # its kernels of both types share the multiplier
        old = float_product(in_scale, scale, out_scale)
        if not round_alike(old, new, least, greatest):
            return "the multiplier of int8 is a double's, and rounds some sums otherwise"
    return with_values(weights, "int8", scale, 0, -zero)

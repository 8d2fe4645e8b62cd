# SPDX-License-Identifier: Apache-2.0
"""uint8 activations and weights become int8 (exact).

    x uint8 -CONV_2D, w uint8-> y uint8
    becomes
    x -QUANTIZE-> x int8 -CONV_2D, w int8-> y int8 -QUANTIZE-> y uint8

A chain of such nodes has QUANTIZEs only at its ends. Inputs and outputs of the graph keep their
type, for compatibility. Values and zero points shift by 128 (signs.py). Weights shift by their
zero point, because int8 weights have none; those farther than 127 from it are not representable,
and their layer is left. So is one whose multiplier rounds some sum differently (rounding.py).

For targets with only int8 (CMSIS-NN and other kernels for TFLite Micro).
Source: tflite/kernels/kernel_util.cc, and the kernels of each op in both types.
"""

from __future__ import annotations

from delegate.inspect import Graph
from tflite_opencl.rewrites.changes import Notes
from tflite_opencl.rewrites.passes.signs import converted


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph with int8 instead of uint8; the same object if no node can be converted."""
    return converted(graph, notes, "int8")

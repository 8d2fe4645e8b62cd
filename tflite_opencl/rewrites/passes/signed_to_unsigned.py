# SPDX-License-Identifier: Apache-2.0
"""int8 activations and weights become uint8 (exact).

    x int8 -CONV_2D, w int8-> y int8
    becomes
    x -QUANTIZE-> x uint8 -CONV_2D, w uint8-> y uint8 -QUANTIZE-> y int8

A chain of such nodes has QUANTIZEs only at its ends. Inputs and outputs of the graph keep their
type, for compatibility. Values and zero points shift by 128 (signs.py).

Weights need a single scale: run per_channel_to_per_tensor first. The uint8 kernels compute their
multiplier differently; a layer is converted if that provably rounds every sum alike
(rounding.py), with this weight scale or one a few bits away, and is left otherwise.

For targets with only uint8, such as etnaviv's NPU, and for runtimes from TensorFlow 1's time.
Source: tflite/kernels/kernel_util.cc, and the kernels of each op in both types.
"""

from __future__ import annotations

from delegate.inspect import Graph
from tflite_opencl.rewrites.changes import Notes
from tflite_opencl.rewrites.passes.signs import converted


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph with uint8 instead of int8; the same object if no node can be converted."""
    return converted(graph, notes, "uint8")

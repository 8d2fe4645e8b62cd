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

from delegate.inspect import Graph
from tflite_opencl.rewrites.changes import Notes
from tflite_opencl.rewrites.passes.signs import converted


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph with uint8 in the place of int8; the same one where no node can be."""
    return converted(graph, notes, "uint8")

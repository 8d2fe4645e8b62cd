# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D becomes CONV_2D with dense weights.

    x -DEPTHWISE_CONV_2D, weights (1, kh, kw, i * m)-> y
    becomes
    x -CONV_2D, weights (i * m, kh, kw, i)-> y

An output channel keeps its weights and its scale. Weights of input channels that it does not
read are the zero point, which adds nothing, so the pass is exact. Integers only: 0 times an
infinite float is not zero.

For targets without depthwise convolution. It costs i times the weights and i times
the multiply-adds. Mesa's Teflon drivers do the same (etnaviv_ml_nn.c, `expand_depthwise`).
"""

from __future__ import annotations

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.changes import Change, Notes, changed
from tflite_opencl.rewrites.passes.convolutions import convolution_of


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph without quantised depthwise convolutions; the same object if it has none."""
    made: dict[tuple[Tensor, int], Tensor] = {}  # depthwise weights, channels in -> dense ones

    def change(node: Node) -> Change | None:
        conv = convolution_of(node)
        if conv is None or not conv.is_depthwise:
            return None
        conv.require_treatable(graph)
        key = (conv.weights, conv.in_c)
        if key not in made:
            made[key] = conv.dense_tensor("dense", conv.dense_weights())
        one = conv.as_conv_2d(conv.source, made[key])
        return Change("CONV_2D with dense weights", {node: [one]})

    return changed(graph, notes, change)

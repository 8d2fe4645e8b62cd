# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D becomes CONV_2D with dense weights.

    x -DEPTHWISE_CONV_2D, weights (1, kh, kw, i * m)-> y
    becomes
    x -CONV_2D, weights (i * m, kh, kw, i)-> y

An output channel keeps its own weights and its own scale. For the input channels that it does not
read it gets the zero point, which adds nothing, so the pass is exact. Integers only: 0 times an
infinite float is no zero.

It is for targets that have no depthwise convolution. It pays with i times the weights and i times
the multiply-adds. Mesa's Teflon drivers do the same (etnaviv_ml_nn.c, `expand_depthwise`).
"""

from __future__ import annotations

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.editing import rebuilt
from tflite_opencl.rewrites.notes import Notes
from tflite_opencl.rewrites.passes.convolutions import (
    conv_2d,
    dense_tensor,
    dense_weights,
    is_convolution,
    reason_to_leave,
    source_and_weights,
)


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph without quantised depthwise convolutions; the same one if it has none."""
    notes = Notes() if notes is None else notes
    made: dict[tuple[Tensor, int], Tensor] = {}  # depthwise weights, channels in -> dense ones
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        if not is_convolution(node) or node.op == "CONV_2D":
            continue
        reason = reason_to_leave(graph, node)
        if reason is not None:
            notes.left(node, reason)
            continue
        source, weights = source_and_weights(node)
        key = (weights, source.shape[3])
        if key not in made:
            made[key] = dense_tensor(node, "dense", dense_weights(node))
        new[node] = conv_2d(node, source, made[key])
        notes.treated(node, "CONV_2D with dense weights")
    return rebuilt(graph, (new.get(node, node) for node in graph.nodes))

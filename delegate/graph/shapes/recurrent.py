# SPDX-License-Identifier: Apache-2.0
"""Shapes of recurrent ops' own outputs; new versions of variable tensors keep their shapes.

Source: tflite/kernels/svdf.cc, lstm.cc, basic_rnn.cc, {uni,bi}directional_sequence_{lstm,rnn}.cc
"""

from __future__ import annotations

from delegate.graph.ir import Node
from delegate.graph.shapes.rule import Shape, output, outputs, shape


@output("SVDF")
def _svdf(node: Node) -> Shape:
    batch, depth = shape(node)
    filters, features = shape(node, 1)
    rank = node.options["rank"]
    if depth != features or filters % rank:
        raise ValueError("sizes that do not fit")
    return batch, filters // rank


@outputs("LSTM UNIDIRECTIONAL_SEQUENCE_LSTM")
def _lstm(node: Node) -> list[Shape]:
    if node.options.get("kernel_type") == "BASIC":
        (rows, depth), (_, cells) = shape(node), shape(node, 1)
        return [(rows, width) for width in (cells, cells, depth + cells, 4 * cells)]
    _, width = shape(node, 6)  # of the forget gate's recurrent weights, which are mandatory
    return [(*shape(node)[:-1], width)]


@output("RNN UNIDIRECTIONAL_SEQUENCE_RNN")
def _rnn(node: Node) -> Shape:
    units, _ = shape(node, 1)
    return (*shape(node)[:-1], units)


@outputs("BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN")
def _both(node: Node) -> list[Shape]:
    # The width is that of an LSTM's recurrent weights, or an RNN's number of units.
    places, at = ((6, 23), 1) if node.op == "BIDIRECTIONAL_SEQUENCE_LSTM" else ((1, 5), 0)
    widths = [shape(node, place)[at] for place in places]
    whole = shape(node)[:-1]
    if node.options.get("merge_outputs"):
        return [(*whole, sum(widths))]
    return [(*whole, width) for width in widths]

# SPDX-License-Identifier: Apache-2.0
"""Shapes of recurrent ops' own outputs; what variable tensors become has their shapes.

Source: tflite/kernels/svdf.cc, lstm.cc, unidirectional_sequence_lstm.cc
"""

from __future__ import annotations

from delegate.graph.ir import Node
from delegate.graph.shapes.rule import Shape, output, shape


@output("SVDF")
def _svdf(node: Node) -> Shape:
    batch, depth = shape(node)
    filters, features = shape(node, 1)
    rank = node.options["rank"]
    if depth != features or filters % rank:
        raise ValueError("sizes that do not fit")
    return batch, filters // rank


@output("LSTM UNIDIRECTIONAL_SEQUENCE_LSTM")
def _lstm(node: Node) -> Shape:
    _, width = shape(node, 6)  # of the forget gate's recurrent weights, which all have
    return (*shape(node)[:-1], width)

# SPDX-License-Identifier: Apache-2.0
"""Whether a model's outputs are scores of classes, by their form and by the last op."""

from __future__ import annotations

import math

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.common.feeds import scale_of

# What only moves or converts the values of the op before it.
_TRANSPARENT = {"RESHAPE", "SQUEEZE", "QUANTIZE", "DEQUANTIZE", "CAST", "EXPAND_DIMS", "SLICE"}
_SCORES = {"SOFTMAX", "LOG_SOFTMAX", "LOGISTIC"}
_FEATURES = {"L2_NORMALIZATION", "MEAN", "AVERAGE_POOL_2D", "MAX_POOL_2D", "SUM", "REDUCE_MAX"}
_NORMS = {"SQRT", "RSQRT"}


def may_be_scores(output: Tensor, fed: Tensor) -> bool:
    """Whether an output has the form of scores: a row of numbers, or one a picture.

    `fed`: the input whose type decides how label_image decodes scores.
    """
    shape = output.shape
    is_row = len(shape) in (1, 2) or math.prod(shape[:-1]) == 1
    is_decoded = output.dtype == "float32" or (
        output.dtype in ("uint8", "int8") and fed.dtype in ("uint8", "int8", "float32")
    )
    return (
        bool(shape)
        and is_row
        and shape[-1] > 1
        and (is_decoded or (output.dtype in ("uint8", "int8", "int16") and scale_of(output)[0] > 0))
    )


def are_scores(graph: Graph, first: Tensor, fed: Tensor, classes: int) -> bool:
    """Whether the first output is scores of classes.

    `first`: it, in the shape of a run. `fed`: the input with the picture. `classes`: how many
    labels there are, 0 where there are none.
    """
    if graph.outputs[0] in graph.inputs or not may_be_scores(first, fed):
        return False
    if first.shape[-1] == classes:
        return True
    is_embedding = math.prod(first.shape[:-1]) == 1 and gives_features(graph)
    return len(graph.outputs) == 1 and first.shape != fed.shape and not is_embedding


def gives_features(graph: Graph) -> bool:
    """Whether the last op says that the output is no row of scores."""
    last = _last_op(graph)
    if last is None:
        return False
    if last.op in ("MUL", "DIV"):  # as x * rsqrt(sum(x * x)) is computed
        makers = {node.outputs[0]: node for node in graph.nodes}
        return any(
            tensor in makers and makers[tensor].op in _NORMS
            for tensor in last.inputs
            if tensor is not None
        )
    return last.op in _FEATURES


def gives_scores(graph: Graph) -> bool:
    """Whether the last op says that the output is scores."""
    last = _last_op(graph)
    return last is not None and last.op in _SCORES


def _last_op(graph: Graph) -> Node | None:
    """Return the node that computes the first output's values."""
    makers = {tensor: node for node in graph.nodes for tensor in node.outputs}
    node = makers.get(graph.outputs[0])
    while node is not None and node.op in _TRANSPARENT and node.inputs[0] is not None:
        node = makers.get(node.inputs[0])
    return node

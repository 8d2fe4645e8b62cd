# SPDX-License-Identifier: Apache-2.0
"""Shapes of ops that keep their input's, or to which several inputs broadcast.

Source: tflite/kernels/activations.cc, elementwise.cc, add.cc, comparisons.cc, select.cc
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from delegate.graph.ir import Node
from delegate.graph.shapes.rule import Rule, Shape, broadcast, shape


def _same(node: Node) -> list[Shape]:
    return [shape(node)]


def _two(node: Node) -> list[Shape]:
    return [broadcast(shape(node, 0), shape(node, 1))]


def _select(node: Node) -> list[Shape]:
    condition, chosen, other = (shape(node, position) for position in range(3))
    is_row = len(condition) == 0 or (len(condition) == 1 and condition[:1] == chosen[:1])
    if chosen != other or not (condition == chosen or is_row):
        raise ValueError("SELECT does not broadcast")
    return [_not_from_scalar(chosen, node)]


def _select_v2(node: Node) -> list[Shape]:
    shapes = (shape(node, position) for position in range(3))
    return [_not_from_scalar(broadcast(*shapes), node)]


def _not_from_scalar(result: Shape, node: Node) -> Shape:
    # ai-edge-litert leaves an output as it is that is recorded as a scalar and gets one element.
    if node.outputs[0].shape == () and math.prod(result) == 1:
        raise ValueError("TFLite's runtimes differ")
    return result


_SAME = (
    "ABS CAST CEIL COS CUMSUM DENSIFY DEQUANTIZE DYNAMIC_UPDATE_SLICE ELU EXP FAKE_QUANT FLOOR GELU"
    " HARD_SWISH L2_NORMALIZATION LEAKY_RELU LOCAL_RESPONSE_NORMALIZATION LOG LOGICAL_NOT LOGISTIC"
    " LOG_SOFTMAX MATRIX_SET_DIAG NEG PRELU QUANTIZE RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1"
    " REVERSE_SEQUENCE REVERSE_V2 ROUND RSQRT SIGN SIN SOFTMAX SQRT SQUARE TANH ZEROS_LIKE"
)
_TWO = (
    "ADD ATAN2 BITWISE_XOR DIV EQUAL FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL"
    " LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM MUL NOT_EQUAL POW RIGHT_SHIFT SQUARED_DIFFERENCE SUB"
)
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_SAME.split(), _same),
    **dict.fromkeys(_TWO.split(), _two),
    "SELECT": _select,
    "SELECT_V2": _select_v2,
}

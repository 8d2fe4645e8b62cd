# SPDX-License-Identifier: Apache-2.0
"""Tensors that stay float32: sums, squares, quotients and masks of unknown range."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from delegate.graph.float_results import float_result
from delegate.graph.ir import Node, Tensor
from delegate.ops import ops
from delegate.plan.fp16.fp16_range import BOUNDS, Ranges
from tests.support.model import const, op, t

SHAPE = (1, 8, 8, 4)
CONV = {"padding": "SAME", "stride_w": 1, "stride_h": 1}


def number(value: float) -> Tensor:
    return const(np.full((1,), value, np.float32))


def noted(nodes: Sequence[Node]) -> list[bool]:
    ranges = Ranges()
    return [ranges.note(each) for each in nodes]


def conv(x: Tensor, y: Tensor, size: float = 1.0) -> Node:
    return op("CONV_2D", [x, const(np.full((4, 1, 1, 4), size, np.float32)), None], [y], CONV)


def test_sum_is_float32_until_next_product_with_weights() -> None:
    x, total, share, y, z = t(SHAPE), t(SHAPE), t(SHAPE), t(SHAPE), t(SHAPE)
    axes = const(np.array([1, 2], np.int32))
    result = noted(
        [
            op("SUM", [x, axes], [total], {"keep_dims": True}),
            op("MUL", [total, number(1 / 64)], [share]),
            conv(share, y),
            op("RELU", [y], [z]),
        ]
    )
    # A convolution reads float32 and returns fp16.
    assert result == [False, False, False, True]


def test_norm_is_float32() -> None:
    x, square, mean, root, y = (t(SHAPE) for _ in range(5))
    axes = const(np.array([3], np.int32))
    nodes = [
        op("MUL", [x, x], [square]),
        op("MEAN", [square, axes], [mean], {"keep_dims": True}),
        op("RSQRT", [mean], [root]),
        op("MUL", [x, root], [y]),
    ]
    assert noted(nodes) == [False] * 4


@pytest.mark.parametrize("hidden", [-1e9, -np.inf, float(np.finfo(np.float32).min)])
def test_mask_is_float32_and_softmax_is_fp16(hidden: float) -> None:
    x, masked, shares, y = (t(SHAPE) for _ in range(4))
    mask = const(np.array([0, 0, hidden, hidden], np.float32))
    nodes = [
        op("ADD", [x, mask], [masked]),
        op("SOFTMAX", [masked], [shares], {"beta": 1.0}),
        op("RELU", [shares], [y]),
    ]
    assert noted(nodes) == [False, False, True]


@pytest.mark.parametrize(
    ("nodes", "last"),
    [
        # Squeeze and excite, SiLU: one factor is at most 1.
        (lambda x, y, z: [op("LOGISTIC", [x], [y]), op("MUL", [x, y], [z])], True),
        (lambda x, y, z: [op("RELU6", [x], [y]), op("MUL", [x, y], [z])], True),
        (lambda x, y, z: [op("RELU", [x], [y]), op("MUL", [x, y], [z])], False),
        (lambda x, y, z: [op("RELU", [x], [y]), op("STABLEHLO_MULTIPLY", [x, y], [z])], False),
        (lambda x, y, z: [op("SEGMENT_SUM", [x, t((8,), "int32")], [z])], False),
        (lambda x, y, z: [op("RELU6", [x], [y]), op("MUL", [y, y], [z])], True),
        (lambda x, y, z: [op("RELU6", [x], [y]), op("SQUARE", [y], [z])], True),
        (lambda x, y, z: [op("SQUARE", [x], [z])], False),
        # A residual is still an activation.
        (lambda x, y, z: [op("RELU", [x], [y]), op("ADD", [x, y], [z])], True),
        (lambda x, y, z: [op("TANH", [x], [y]), op("EXP", [y], [z])], True),
        (lambda x, y, z: [op("EXP", [x], [z])], False),
        (lambda x, y, z: [op("DIV", [x, number(8)], [z])], True),
        (lambda x, y, z: [op("DIV", [x, number(1e-3)], [z])], False),
        (lambda x, y, z: [op("DIV", [x, number(0)], [z])], False),
        (lambda x, y, z: [op("DIV", [x, t(SHAPE)], [z])], False),
        (lambda x, y, z: [op("MUL", [x, number(0.5)], [z])], True),
        (lambda x, y, z: [op("MUL", [x, number(255)], [z])], False),
        (lambda x, y, z: [op("LOGISTIC", [x], [y]), op("MUL", [y, number(255)], [z])], True),
        (lambda x, y, z: [op("MUL", [x, number(1e-6)], [z])], False),
        (lambda x, y, z: [op("MUL", [x, number(0)], [z])], True),
        (lambda x, y, z: [op("ADD", [x, number(1e-12)], [z])], False),
        (lambda x, y, z: [conv(x, z)], True),
        (lambda x, y, z: [conv(x, z, 1e5)], False),
        (lambda x, y, z: [conv(x, z, 1e-6)], False),
        (lambda x, y, z: [op("SQUARE", [x], [y]), op("RELU", [y], [z])], False),
        (lambda x, y, z: [op("SQUARE", [x], [y]), op("RESHAPE", [y], [z])], False),
    ],
)
def test_proven_ranges(nodes, last: bool) -> None:  # type: ignore[no-untyped-def]
    assert noted(nodes(t(SHAPE), t(SHAPE), t(SHAPE)))[-1] is last


def test_clamp_returns_to_fp16() -> None:
    x, square, clamped, y = (t(SHAPE) for _ in range(4))
    fused = {"fused_activation_function": "RELU6"}
    nodes = [
        op("SQUARE", [x], [square]),
        op("ADD", [square, x], [clamped], fused),
        op("RELU", [clamped], [y]),
    ]
    assert noted(nodes) == [False, False, True]


def test_large_bias() -> None:
    x, y = t(SHAPE), t(SHAPE)
    bias = const(np.full(4, 1e6, np.float32))
    weights = const(np.ones((4, 1, 1, 4), np.float32))
    assert noted([op("CONV_2D", [x, weights, bias], [y], CONV)]) == [True]


def test_every_op_says_how_large_its_results_are() -> None:
    assert {float_result(name).growth for name in ops()} == BOUNDS.keys()

# SPDX-License-Identifier: Apache-2.0
"""The work of each launch, counted by hand."""

from __future__ import annotations

import pytest

from benchmarks.family import mobilenet_v1
from benchmarks.layers import multiply_adds, summary, work_of
from tests.support.report import report


def test_multiply_adds_by_hand() -> None:
    first, depthwise, pointwise, *_ = mobilenet_v1(1.0, 32).nodes
    assert multiply_adds(first) == 16 * 16 * 32 * (3 * 3 * 3)
    assert multiply_adds(depthwise) == 16 * 16 * 32 * (3 * 3)
    assert multiply_adds(pointwise) == 16 * 16 * 64 * 32


@pytest.mark.parametrize("launched", [range(31), range(2, 31), range(0, 31, 2)], ids=str)
def test_no_work_is_lost_where_nodes_are_fused(launched: range) -> None:
    graph = mobilenet_v1(0.25, 32)
    work = work_of(graph, launched)
    assert set(work) == set(launched)
    assert sum(work.values()) == sum(map(multiply_adds, graph.nodes))


def test_sums_by_op() -> None:
    (layers,) = report().layers
    assert summary(layers) == [
        ("CONV_2D", 150.0, 21_000_000, 5_000_000),
        ("SOFTMAX", 50.0, 0, 2002),
    ]

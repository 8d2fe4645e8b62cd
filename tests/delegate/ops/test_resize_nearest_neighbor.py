# SPDX-License-Identifier: Apache-2.0
"""RESIZE_NEAREST_NEIGHBOR: its launches, what it refuses, and every pixel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import ops
from delegate.inspect import Node
from delegate.target import Rules
from tests.support.cases import (
    LANES_8,
    SIMT,
    STRATEGIES,
    Strategy,
    changed,
    only_launch,
    refusal,
    retyped,
)
from tests.support.factories import drawn, refused
from tests.support.resizing import resizings
from tests.support.suite_cases import assert_graph_or_refused, from_suite
from tflite_opencl.conformance.cases.resizes import resize

OP = "RESIZE_NEAREST_NEIGHBOR"
DTYPES = ("uint8", "int8", "int16", "float32")

test_resize_nearest_neighbor = from_suite(OP, first="in1x3x3x19")


def node(
    shape: tuple[int, ...] = (1, 3, 5, 3), size: tuple[int, int] = (7, 11), dtype: str = "uint8"
) -> Node:
    return resize(OP, shape, size).graph(dtype).nodes[0]


@pytest.mark.parametrize(
    ("strategy", "depth", "dtype", "names"),
    [
        (SIMT, 3, "uint8", ["plain"]),
        (SIMT, 1, "float32", ["vector 4", "plain"]),
        (LANES_8, 21, "int8", ["vector 16", "plain"]),
        (LANES_8, 5, "int16", ["vector 8", "plain"]),
        (LANES_8, 1, "int16", ["plain"]),
    ],
)
def test_alternatives(strategy: Strategy, depth: int, dtype: str, names: list[str]) -> None:
    found = ops.lower(node((1, 3, 5, depth), dtype=dtype), strategy.target)
    assert [alternative.name for alternative in found] == names


def test_no_launch_where_no_pixel_moves() -> None:
    same = node(size=(3, 5))
    both = changed(same, options={"align_corners": True, "half_pixel_centers": True})
    assert [found.name for found in ops.lower(same, SIMT.target)] == ["view"]
    assert [found.name for found in ops.lower(both, SIMT.target)] == ["plain"]


def test_launch() -> None:
    found = ops.lower(node((2, 3, 5, 21), dtype="int16"), LANES_8.target)
    vector, plain = map(only_launch, found)
    assert (vector.params["units"], vector.defines) == (42, {"ELEM": "uchar", "LANES": 16})
    assert (plain.params["units"], plain.defines) == (21, {"ELEM": "ushort", "LANES": 1})
    assert (vector.params["items"], plain.params["items"]) == (2 * 7 * 3, 2 * 7 * 21)


NODE = node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "computed_size": (changed(NODE, 1, data=None), "height and width are not constant"),
    "output": (
        changed(NODE, -1, shape=(1, 7, 12, 3)),
        "shapes 1x3x5x3 -> 1x7x12x3: the output must be 1x7x11x3",
    ),
    "int64": (
        retyped(NODE, "int64"),
        "int64 in, int64 out: one of uint8, int8, int16, float32, int32, bool, float16 is needed",
    ),
    "rank": (
        changed(NODE, 1, shape=(), data=np.array(3, np.int32)),
        "size int32 of scalar: int32 of 2 is needed",
    ),
}

test_refusals = refused(REFUSALS)


def test_older_kernels_know_fewer_types() -> None:
    older = replace(SIMT.target, rules=Rules(resizes_newer_types=False))
    reason = refusal(node(dtype="int32"), older)
    assert reason.endswith("one of uint8, int8, int16, float32 is needed")
    assert ops.lower(node(dtype="int32"), SIMT.target)


test_drawn = drawn(resizings(OP, DTYPES), STRATEGIES, assert_graph_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [node((1, size, size, channels), (2 * size, 3 * size), dtype)]


BUILT = [node((1, 3, 3, 17), dtype=dtype) for dtype in DTYPES]

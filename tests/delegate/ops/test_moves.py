# SPDX-License-Identifier: Apache-2.0
"""BROADCAST_TO, FILL, REVERSE_V2, TILE, TRANSPOSE: what they refuse, and what they move."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.target import Rules
from tests.support.cases import (
    LANES_4,
    LANES_16,
    SEEDS,
    SIMT,
    Strategy,
    changed,
    only_launch,
    retyped,
)
from tests.support.factories import drawn, exact, refused
from tests.support.model import op
from tests.support.moves import (
    ANY,
    MOVE_STRATEGIES,
    assert_moved,
    assert_moved_or_refused,
    like,
    numbers,
    one_value,
)
from tests.support.refusals import rescaled
from tests.support.suite_cases import assert_graph, from_suite
from tflite_opencl.conformance.cases._rows import NodeTemplate
from tflite_opencl.conformance.cases.orders import broadcast, reverse, tile, transpose
from tflite_opencl.oracle.values import input_sets

test_broadcast_to = from_suite("BROADCAST_TO")
test_fill = from_suite("FILL")
test_zeros_like = from_suite("ZEROS_LIKE")
test_reverse = from_suite("REVERSE_V2")
test_tile = from_suite("TILE")
test_transpose = from_suite("TRANSPOSE")


def node_of(row: NodeTemplate, dtype: str = "uint8") -> Node:
    return row.graph(dtype).nodes[0]


BROADCAST_NODE = node_of(broadcast((3, 1), (2, 3, 4)))
BROADCAST_REFUSALS = {
    "computed": (changed(BROADCAST_NODE, 1, data=None), "shape: not constant"),
    "size": (changed(BROADCAST_NODE, 0, shape=(2, 1)), "2x1 cannot be broadcast to 2x3x4"),
    "rank": (
        changed(BROADCAST_NODE, 0, shape=(1, 1, 3, 1)),
        "more dimensions than the result's 3",
    ),
    "output": (
        changed(BROADCAST_NODE, -1, shape=(2, 3, 5)),
        "output 2x3x5: the inputs give 2x3x4",
    ),
}
test_broadcast_refusal = refused(BROADCAST_REFUSALS)


@st.composite
def broadcast_nodes(draw: st.DrawFn) -> Node:
    wide = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    shape = [n if draw(st.booleans()) else 1 for n in wide][draw(st.integers(0, len(wide))) :]
    dtype, index = draw(st.sampled_from(ANY)), draw(st.sampled_from(["int32", "int64"]))
    return node_of(broadcast(tuple(shape), tuple(wide), index), dtype)


test_broadcast_drawn = drawn(broadcast_nodes(), MOVE_STRATEGIES, assert_moved_or_refused)


def filled(
    shape: tuple[int, ...], dtype: str = "uint8", index: str = "int32", value: Any = None
) -> Node:
    """Return the node; a `value` makes it a constant."""
    one = like((), dtype) if value is None else one_value(value, dtype)
    return op("FILL", [numbers(np.array(shape), index), one], [like(shape, dtype)])


FILL_NODE = filled((2, 3))
FILL_REFUSALS = {
    "computed": (changed(FILL_NODE, 0, data=None), "shape: not constant"),
    "values": (changed(FILL_NODE, 1, shape=(2,)), "value 2: one number is needed"),
    "types": (changed(FILL_NODE, 1, dtype="int8"), "int8 in, uint8 out: they must be equal"),
    "scales": rescaled(FILL_NODE, 1),
    "output": (changed(FILL_NODE, -1, shape=(3, 2)), "output 3x2: the inputs give 2x3"),
}
test_fill_refusal = refused(FILL_REFUSALS)


ZEROS_NODE = op("ZEROS_LIKE", [like((2, 3), "float32")], [like((2, 3), "float32")])
test_zeros_refusal = refused(
    {
        "type": (retyped(ZEROS_NODE, "int8"), "int8: only float32, int32, int64"),
        "output": (changed(ZEROS_NODE, -1, shape=(3, 2)), "output 3x2: the inputs give 2x3"),
    }
)


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    dtype=st.sampled_from(ANY),
    value=st.none() | st.integers(0, 1),
    strategy=st.sampled_from(MOVE_STRATEGIES),
    seed=SEEDS,
)
def test_fill_drawn(
    device: DeviceInfo,
    shape: list[int],
    dtype: str,
    value: int | None,
    strategy: Strategy,
    seed: int,
) -> None:
    assert_moved_or_refused(filled(tuple(shape), dtype, value=value), device, strategy, seed)


REVERSE_NODE = node_of(reverse((2, 3, 4), (1,)))
REVERSE_REFUSALS = {
    "computed": (changed(REVERSE_NODE, 1, data=None), "axes: not constant"),
    "axis": (changed(REVERSE_NODE, 1, data=np.array([3])), "axis 3: outside of 3 dimensions"),
    "twice": (
        changed(REVERSE_NODE, 1, data=np.array([1, -2])),
        "axes [1, 1]: one is repeated",
    ),
    "apart": (
        changed(REVERSE_NODE, 1, data=np.array([0, 2])),
        "axes [0, 2]: TFLite fails on some that are not neighbours",
    ),
    "scalar": (changed(REVERSE_NODE, 1, data=np.array(1)), "axes of shape (): (n,) is needed"),
    "output": (
        changed(REVERSE_NODE, -1, shape=(2, 4, 3)),
        "output 2x4x3: the inputs give 2x3x4",
    ),
}
test_reverse_refusal = refused(REVERSE_REFUSALS)


def test_the_first_axis_alone() -> None:
    first, both = REVERSE_NODE, node_of(reverse((2, 3, 4), (1, 0)))
    older = replace(SIMT.target, rules=Rules(reverses_first_axis=True))
    launches = [only_launch(ops.lower(node, older)[0]) for node in (first, both)]
    numbers_of = [
        {name: value for name, value in each.params.items() if isinstance(value, int)}
        for each in launches
    ]
    assert numbers_of[0] == numbers_of[1]


@st.composite
def reverse_nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    rank = len(shape)
    axes = draw(
        st.lists(
            st.integers(-rank, rank - 1), min_size=1, max_size=rank, unique_by=lambda a: a % rank
        )
    )
    return node_of(reverse(tuple(shape), tuple(axes)), draw(st.sampled_from(ANY)))


test_reverse_drawn = drawn(reverse_nodes(), MOVE_STRATEGIES, assert_moved_or_refused)


TILE_NODE = node_of(tile((2, 3), (2, 3)))
TILE_REFUSALS = {
    "computed": (changed(TILE_NODE, 1, data=None), "multiples: not constant"),
    "zero": (
        changed(TILE_NODE, 1, data=np.array([0, 3])),
        "multiples [0, 3]: at least 1 is needed",
    ),
    "rank": (changed(TILE_NODE, 1, data=np.array([3])), "multiples of shape (1,): (2,) is needed"),
    "output": (changed(TILE_NODE, -1, shape=(4, 3)), "output 4x3: the inputs give 4x9"),
}
test_tile_refusal = refused(TILE_REFUSALS)


@st.composite
def tile_nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    times = tuple(draw(st.integers(1, 4)) for _ in shape)
    dtype, index = draw(st.sampled_from(ANY)), draw(st.sampled_from(["int32", "int64"]))
    return node_of(tile(tuple(shape), times, index), dtype)


test_tile_drawn = drawn(tile_nodes(), MOVE_STRATEGIES, assert_moved_or_refused)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int64"])
@pytest.mark.parametrize("strategy", [LANES_4, LANES_16], ids=str)
def test_planes_become_columns(strategy: Strategy, dtype: str, device: DeviceInfo) -> None:
    for size in ((2, 3, 5), (3, 1, 7), (3, 61, 67), (4, 16, 16)):
        graph = transpose((1, *size), (0, 2, 3, 1)).graph(dtype)
        names = [each.name for each in ops.lower(graph.nodes[0], strategy.target)]
        assert names == ["columns", "row", "plain"]
        assert_graph(graph, device, strategy, input_sets(graph, 1))
    for other in ((2, 3, 5, 5), (1, 5, 5, 5)):  # planes of two pictures, of too many columns
        node = transpose(other, (0, 2, 3, 1)).graph(dtype).nodes[0]
        assert [each.name for each in ops.lower(node, strategy.target)] == ["row", "plain"]


TRANSPOSE_NODE = node_of(transpose((2, 3, 4), (2, 0, 1)))
TRANSPOSE_REFUSALS = {
    "computed": (changed(TRANSPOSE_NODE, 1, data=None), "order of axes: not constant"),
    "axis": (
        changed(TRANSPOSE_NODE, 1, data=np.array([3, 0, 1])),
        "axis 3: outside of 3 dimensions",
    ),
    "twice": (
        changed(TRANSPOSE_NODE, 1, data=np.array([1, 1, 0])),
        "order of axes [1, 1, 0]: one is repeated",
    ),
    "rank": (
        changed(TRANSPOSE_NODE, 1, data=np.array([0, 1])),
        "order of axes of shape (2,): (3,) is needed",
    ),
    "output": (changed(TRANSPOSE_NODE, -1, shape=(2, 3, 4)), "output 2x3x4: the inputs give 4x2x3"),
}
test_transpose_refusal = refused(TRANSPOSE_REFUSALS)


@st.composite
def transpose_nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=6))
    order = draw(st.permutations(range(len(shape))))
    order = [axis - len(shape) if draw(st.booleans()) else axis for axis in order]
    return node_of(transpose(tuple(shape), tuple(order)), draw(st.sampled_from(ANY)))


test_transpose_drawn = drawn(transpose_nodes(), MOVE_STRATEGIES, assert_moved_or_refused)


# Types that the suite has no column for, or that it leaves out.
test_types = exact(
    {
        "broadcast": node_of(broadcast((3, 1, 4), (2, 3, 5, 4)), "float16"),
        "fill": filled((3, 5), "float16"),
        "reverse": node_of(reverse((3, 4, 5), (1,)), "float16"),
        "tile": node_of(tile((2, 3, 4), (1, 2, 3)), "float16"),
        "tile_int16": node_of(tile((2, 3, 4), (1, 2, 3)), "int16"),
        "transpose": node_of(transpose((3, 4, 5), (2, 0, 1)), "float16"),
    },
    check=assert_moved,
)

NODES = {"ZEROS_LIKE": ZEROS_NODE}
BUILT = [
    node_of(transpose((1, columns, 5, 7), (0, 2, 3, 1)), dtype)
    for columns in (2, 3, 4)
    for dtype in ("uint8", "int16", "float32", "int64")
]


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    shape = (1, size, size, channels)
    rows = (
        broadcast(shape, (3, *shape[1:])),
        reverse(shape, (1,)),
        tile(shape, (2, 1, 3, 1)),
        transpose(shape, (0, 3, 2, 1)),
    )
    return [filled((size, channels), dtype, value=5), *(node_of(row, dtype) for row in rows)]

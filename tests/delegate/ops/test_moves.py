# SPDX-License-Identifier: Apache-2.0
"""BROADCAST_TO, FILL, REVERSE_V2, TILE, TRANSPOSE: what they refuse, and against TFLite's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.target import Rules
from tests.support.cases import SEEDS, SIMT, Way, changed, only_launch
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import (
    ANY,
    MOVE_WAYS,
    assert_moved,
    assert_moved_or_refused,
    like,
    numbers,
    one_value,
)
from tests.support.refusals import rescaled


def broadcast_to(
    shape: tuple[int, ...], wide: tuple[int, ...], dtype: str = "uint8", index: str = "int32"
) -> Node:
    inputs = [like(shape, dtype), numbers(wide, index)]
    return op("BROADCAST_TO", inputs, [like(wide, dtype)], version=2)


BROADCAST_NODE = broadcast_to((3, 1), (2, 3, 4))
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
BROADCAST_CASES = {
    "scalar": broadcast_to((), (3, 5)),
    "pixels": broadcast_to((1, 1, 1, 16), (2, 7, 5, 16)),
    "rows": broadcast_to((3, 1, 5), (3, 4, 5)),
    "columns": broadcast_to((3, 1), (2, 3, 129)),
    "same": broadcast_to((3, 5), (3, 5)),
    "five": broadcast_to((2, 1, 3, 1, 5), (2, 3, 3, 4, 5)),
    "eight": broadcast_to((2, 1, 2, 1, 2, 1, 2), (3, 2, 2, 2, 2, 2, 2, 2)),
}

test_broadcast_refusal = refused(BROADCAST_REFUSALS)
test_broadcast_exact = exact(BROADCAST_CASES, MOVE_WAYS, assert_moved)
test_broadcast_types = types(
    lambda dtype: broadcast_to((3, 1, 4), (2, 3, 5, 4), dtype), ANY, assert_moved
)


@st.composite
def broadcast_nodes(draw: st.DrawFn) -> Node:
    wide = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    shape = [n if draw(st.booleans()) else 1 for n in wide][draw(st.integers(0, len(wide))) :]
    dtype, index = draw(st.sampled_from(ANY)), draw(st.sampled_from(["int32", "int64"]))
    return broadcast_to(tuple(shape), tuple(wide), dtype, index)


test_broadcast_drawn = drawn(broadcast_nodes(), MOVE_WAYS, assert_moved_or_refused)


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
FILL_CASES = {
    "matrix": filled((3, 5), "int8"),
    "one": filled((1,), "int8"),
    "tile_and_one": filled((4097,), "float32"),
    "int64_shape": filled((2, 3, 4), "int32", "int64"),
}

test_fill_refusal = refused(FILL_REFUSALS)


def zeros_like(shape: tuple[int, ...], dtype: str = "float32") -> Node:
    return op("ZEROS_LIKE", [like(shape, dtype)], [like(shape, dtype)])


ZEROS_NODE = zeros_like((2, 3))
test_zeros_refusal = refused(
    {
        "type": (zeros_like((2, 3), "int8"), "int8: only float32, int32, int64"),
        "output": (changed(ZEROS_NODE, -1, shape=(3, 2)), "output 3x2: the inputs give 2x3"),
    }
)
ZEROS_CASES = {
    f"{dtype}_{len(shape)}": zeros_like(shape, dtype)
    for dtype in ("float32", "int32", "int64")
    for shape in ((1,), (65,), (2, 3, 5, 7))
}
test_zeros_exact = exact(ZEROS_CASES, MOVE_WAYS, assert_moved)
test_fill_exact = exact(FILL_CASES, MOVE_WAYS, assert_moved)
test_fill_types = types(
    lambda dtype: filled((3, 5), dtype),
    ["int8", "int16", "int32", "int64", "float16", "float32", "bool"],
    assert_moved,
)


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    dtype=st.sampled_from(ANY),
    value=st.none() | st.integers(0, 1),
    way=st.sampled_from(MOVE_WAYS),
    seed=SEEDS,
)
def test_fill_drawn(
    device: DeviceInfo, shape: list[int], dtype: str, value: int | None, way: Way, seed: int
) -> None:
    assert_moved_or_refused(filled(tuple(shape), dtype, value=value), device, way, seed)


def backwards(shape: tuple[int, ...], axes: list[int], dtype: str = "uint8") -> Node:
    return op("REVERSE_V2", [like(shape, dtype), numbers(axes)], [like(shape, dtype)])


REVERSE_NODE = backwards((2, 3, 4), [1])
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
REVERSE_CASES = {
    "rows": backwards((2, 5, 7, 16), [1]),
    "columns": backwards((2, 5, 7, 3), [2]),
    "channels": backwards((2, 5, 7, 3), [-1]),
    "batch": backwards((5, 33), [0]),
    "two": backwards((2, 5, 7, 3), [1, 2]),
    "three_out_of_order": backwards((2, 5, 7, 3), [3, 1, 2]),
    "of_size_1": backwards((1, 5), [0]),
    "long": backwards((4097,), [0]),
}

test_reverse_refusal = refused(REVERSE_REFUSALS)
test_reverse_exact = exact(REVERSE_CASES, MOVE_WAYS, assert_moved)
test_reverse_types = types(lambda dtype: backwards((3, 4, 5), [1], dtype), ANY, assert_moved)


def test_the_first_axis_alone() -> None:
    first, both = backwards((2, 3, 4), [1]), backwards((2, 3, 4), [1, 0])
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
    return backwards(tuple(shape), axes, draw(st.sampled_from(ANY)))


test_reverse_drawn = drawn(reverse_nodes(), MOVE_WAYS, assert_moved_or_refused)


def tile(
    shape: tuple[int, ...], times: list[int], dtype: str = "uint8", index: str = "int32"
) -> Node:
    result = [n * count for n, count in zip(shape, times, strict=True)]
    return op("TILE", [like(shape, dtype), numbers(times, index)], [like(result, dtype)])


TILE_NODE = tile((2, 3), [2, 3])
TILE_REFUSALS = {
    "computed": (changed(TILE_NODE, 1, data=None), "multiples: not constant"),
    "zero": (
        changed(TILE_NODE, 1, data=np.array([0, 3])),
        "multiples [0, 3]: at least 1 is needed",
    ),
    "rank": (changed(TILE_NODE, 1, data=np.array([3])), "multiples of shape (1,): (2,) is needed"),
    "output": (changed(TILE_NODE, -1, shape=(4, 3)), "output 4x3: the inputs give 4x9"),
}
TILE_CASES = {
    "rows": tile((3, 5), [3, 1]),
    "columns": tile((3, 5), [1, 4]),
    "pixels": tile((1, 1, 1, 16), [2, 7, 5, 1]),
    "all": tile((2, 3, 1, 5), [2, 3, 4, 2]),
    "once": tile((2, 3), [1, 1]),
    "int64": tile((4099,), [2], index="int64"),
}

test_tile_refusal = refused(TILE_REFUSALS)
test_tile_exact = exact(TILE_CASES, MOVE_WAYS, assert_moved)
test_tile_types = types(lambda dtype: tile((2, 3, 4), [1, 2, 3], dtype), ANY, assert_moved)


@st.composite
def tile_nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    times = [draw(st.integers(1, 4)) for _ in shape]
    dtype, index = draw(st.sampled_from(ANY)), draw(st.sampled_from(["int32", "int64"]))
    return tile(tuple(shape), times, dtype, index)


test_tile_drawn = drawn(tile_nodes(), MOVE_WAYS, assert_moved_or_refused)


def transpose(shape: tuple[int, ...], order: list[int], dtype: str = "uint8") -> Node:
    result = [shape[axis] for axis in order]
    return op("TRANSPOSE", [like(shape, dtype), numbers(order)], [like(result, dtype)])


TRANSPOSE_NODE = transpose((2, 3, 4), [2, 0, 1])
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
TRANSPOSE_CASES = {
    "to_channels_first": transpose((2, 5, 7, 3), [0, 3, 1, 2]),
    "to_channels_last": transpose((1, 16, 5, 7), [0, 2, 3, 1]),
    "matrix": transpose((67, 129), [1, 0]),
    "rows_of_16": transpose((5, 7, 16), [1, 0, 2]),
    "nothing_moves": transpose((1, 5, 1, 3), [2, 1, 0, 3]),
    "same": transpose((3, 5), [0, 1]),
    "five": transpose((2, 3, 4, 5, 3), [4, 2, 0, 3, 1]),
    "six": transpose((2, 3, 2, 3, 2, 3), [5, 3, 1, 0, 2, 4]),
}

test_transpose_refusal = refused(TRANSPOSE_REFUSALS)
test_transpose_exact = exact(TRANSPOSE_CASES, MOVE_WAYS, assert_moved)
test_transpose_types = types(
    lambda dtype: transpose((3, 4, 5), [2, 0, 1], dtype), ANY, assert_moved
)


@st.composite
def transpose_nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=6))
    order = draw(st.permutations(range(len(shape))))
    order = [axis - len(shape) if draw(st.booleans()) else axis for axis in order]
    return transpose(tuple(shape), order, draw(st.sampled_from(ANY)))


test_transpose_drawn = drawn(transpose_nodes(), MOVE_WAYS, assert_moved_or_refused)


NODES = {"ZEROS_LIKE": ZEROS_NODE}


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    return [
        broadcast_to((1, size, size, channels), (3, size, size, channels), dtype),
        filled((size, channels), dtype, value=5),
        backwards((1, size, size, channels), [1], dtype),
        tile((1, size, size, channels), [2, 1, 3, 1], dtype),
        transpose((1, size, size, channels), [0, 3, 2, 1], dtype),
    ]

# SPDX-License-Identifier: Apache-2.0
"""SPLIT: what it refuses, and every part against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import changed
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, MOVE_WAYS, assert_moved, assert_moved_or_refused, like, numbers


def split(shape: tuple[int, ...], count: int, axis: int = -1, dtype: str = "uint8") -> Node:
    part = list(shape)
    part[axis] //= count
    results = [like(part, dtype) for _ in range(count)]
    return op("SPLIT", [numbers(axis), like(shape, dtype)], results, {"num_splits": count})


NODE = split((1, 2, 3, 6), 3)
REFUSALS = {
    "axis": (changed(NODE, 0, data=np.array(4)), "axis 4: outside of 4 dimensions"),
    "computed": (changed(NODE, 0, data=None), "computed axis: only constant"),
    "float_axis": (changed(NODE, 0, dtype="float32"), "float32 axis: only int32 and int64"),
    "two_axes": (
        changed(NODE, 0, data=np.array([1, 2])),
        "axis of shape (2,): one number is needed",
    ),
    "not_equal": (
        changed(NODE, 1, shape=(1, 2, 3, 7)),
        "7 elements in 3 parts: they are not equal",
    ),
    "count": (changed(NODE, options={"num_splits": 2}), "2 parts, 3 outputs: not equal"),
    "no_output": (
        replace(NODE, outputs=(), options={"num_splits": 0}),
        "0 outputs: at least 1 is expected",
    ),
    "output": (changed(NODE, -1, shape=(1, 2, 3, 3)), "output 1x2x3x3: the inputs give 1x2x3x2"),
    "types": (changed(NODE, -1, dtype="int8"), "uint8 in, int8 out: they must be equal"),
    "bool": (
        split((4, 4), 2, dtype="bool"),
        "bool: only uint8, int8, int16, int32, int64, float32",
    ),
}
CASES = {
    "channels": split((2, 5, 7, 32), 2),
    "single_channels": split((1, 8, 8, 6), 6),
    "rows": split((2, 6, 5, 3), 3, 1),
    "batch": split((4, 3, 5), 2, 0),
    "one_part": split((3, 5), 1),
    "a_tile_and_one_more": split((2 * 4097,), 2),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_WAYS, assert_moved)
test_types = types(
    lambda dtype: split((3, 4, 10), 2, dtype=dtype),
    ["uint8", "int8", "int16", "int32", "int64", "float32"],
    assert_moved,
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    count = draw(st.integers(1, 5))
    shape[axis] *= count
    return split(tuple(shape), count, axis, draw(st.sampled_from(ANY)))


test_drawn = drawn(nodes(), MOVE_WAYS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [split((1, size, size, channels), size, 1, dtype)]

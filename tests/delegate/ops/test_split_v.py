# SPDX-License-Identifier: Apache-2.0
"""SPLIT_V: what it refuses, and parts of every size against TFLite's."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import changed
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, MOVE_WAYS, assert_moved, assert_moved_or_refused, like, numbers


def split(
    shape: tuple[int, ...],
    sizes: list[int],
    axis: int = -1,
    dtype: str = "uint8",
    hidden: int | None = None,
) -> Node:
    """Return the node; the size of part `hidden` is written as -1."""
    results = []
    for size in sizes:
        part = list(shape)
        part[axis] = size
        results.append(like(part, dtype))
    written = [-1 if i == hidden else size for i, size in enumerate(sizes)]
    inputs = [like(shape, dtype), numbers(written), numbers(axis)]
    return op("SPLIT_V", inputs, results, {"num_splits": len(sizes)})


NODE = split((1, 2, 3, 6), [1, 5])
REFUSALS = {
    "axis": (changed(NODE, 2, data=np.array(-5)), "axis -5: outside of 4 dimensions"),
    "computed": (changed(NODE, 1, data=None), "computed sizes: only constant"),
    "sum": (changed(NODE, 1, data=np.array([1, 4])), "parts of [1, 4] elements: 6 are there"),
    "two_hidden": (
        changed(NODE, 1, data=np.array([-1, -1])),
        "parts of [-1, -1] elements: 6 are there",
    ),
    "negative": (
        changed(NODE, 1, data=np.array([8, -2])),
        "parts of [8, -2] elements: 6 are there",
    ),
    "count": (changed(NODE, 1, data=np.array([6])), "sizes of shape (1,): (2,) is needed"),
    "output": (changed(NODE, -1, shape=(1, 2, 3, 3)), "output 1x2x3x3: the inputs give 1x2x3x1"),
    "empty": (split((2, 6), [0, 6]), "shape 2x0: it is empty"),
}
CASES = {
    "channels": split((2, 5, 7, 48), [16, 32]),
    "hidden": split((2, 5, 7, 9), [3, 5, 1], hidden=1),
    "rows": split((2, 6, 5, 3), [1, 2, 3], 1),
    "batch": split((4, 3, 5), [3, 1], 0, hidden=0),
    "one_part": split((3, 5), [5]),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_WAYS, assert_moved)
test_types = types(
    lambda dtype: split((3, 4, 10), [3, 7], dtype=dtype),
    ["uint8", "int8", "int16", "int32", "int64", "float32"],
    assert_moved,
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    shape[axis] = sum(sizes)
    hidden = draw(st.none() | st.integers(0, len(sizes) - 1))
    return split(tuple(shape), sizes, axis, draw(st.sampled_from(ANY)), hidden)


test_drawn = drawn(nodes(), MOVE_WAYS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [split((1, size, size, channels + 1), [1, channels], 3, dtype, hidden=1)]

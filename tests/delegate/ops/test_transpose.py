# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE: what it refuses, and every order of axes against TFLite's."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import changed
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, MOVE_WAYS, assert_moved, assert_moved_or_refused, like, numbers


def transpose(shape: tuple[int, ...], order: list[int], dtype: str = "uint8") -> Node:
    result = [shape[axis] for axis in order]
    return op("TRANSPOSE", [like(shape, dtype), numbers(order)], [like(result, dtype)])


NODE = transpose((2, 3, 4), [2, 0, 1])
REFUSALS = {
    "computed": (changed(NODE, 1, data=None), "computed order of axes: only constant"),
    "axis": (changed(NODE, 1, data=np.array([3, 0, 1])), "axis 3: outside of 3 dimensions"),
    "twice": (
        changed(NODE, 1, data=np.array([1, 1, 0])),
        "order of axes [1, 1, 0]: one is there twice",
    ),
    "rank": (
        changed(NODE, 1, data=np.array([0, 1])),
        "order of axes of shape (2,): (3,) is needed",
    ),
    "output": (changed(NODE, -1, shape=(2, 3, 4)), "output 2x3x4: the inputs give 4x2x3"),
}
CASES = {
    "to_channels_first": transpose((2, 5, 7, 3), [0, 3, 1, 2]),
    "to_channels_last": transpose((1, 16, 5, 7), [0, 2, 3, 1]),
    "matrix": transpose((67, 129), [1, 0]),
    "rows_of_16": transpose((5, 7, 16), [1, 0, 2]),
    "nothing_moves": transpose((1, 5, 1, 3), [2, 1, 0, 3]),
    "same": transpose((3, 5), [0, 1]),
    "five": transpose((2, 3, 4, 5, 3), [4, 2, 0, 3, 1]),
    "six": transpose((2, 3, 2, 3, 2, 3), [5, 3, 1, 0, 2, 4]),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_WAYS, assert_moved)
test_types = types(lambda dtype: transpose((3, 4, 5), [2, 0, 1], dtype), ANY, assert_moved)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=6))
    order = draw(st.permutations(range(len(shape))))
    order = [axis - len(shape) if draw(st.booleans()) else axis for axis in order]
    return transpose(tuple(shape), order, draw(st.sampled_from(ANY)))


test_drawn = drawn(nodes(), MOVE_WAYS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [transpose((1, size, size, channels), [0, 3, 2, 1], dtype)]

# SPDX-License-Identifier: Apache-2.0
"""REVERSE_V2: what it refuses, and every axis backwards against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from delegate import ops
from delegate.inspect import Node
from delegate.target import Rules
from tests.support.cases import SIMT, changed, only_launch
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, MOVE_WAYS, assert_moved, assert_moved_or_refused, like, numbers


def backwards(shape: tuple[int, ...], axes: list[int], dtype: str = "uint8") -> Node:
    return op("REVERSE_V2", [like(shape, dtype), numbers(axes)], [like(shape, dtype)])


NODE = backwards((2, 3, 4), [1])
REFUSALS = {
    "computed": (changed(NODE, 1, data=None), "computed axes: only constant"),
    "axis": (changed(NODE, 1, data=np.array([3])), "axis 3: outside of 3 dimensions"),
    "twice": (changed(NODE, 1, data=np.array([1, -2])), "axes [1, 1]: one is there twice"),
    "apart": (
        changed(NODE, 1, data=np.array([0, 2])),
        "axes [0, 2]: TFLite fails on some that are not neighbours",
    ),
    "scalar": (changed(NODE, 1, data=np.array(1)), "axes of shape (): (n,) is needed"),
    "output": (changed(NODE, -1, shape=(2, 4, 3)), "output 2x4x3: the inputs give 2x3x4"),
}
CASES = {
    "rows": backwards((2, 5, 7, 16), [1]),
    "columns": backwards((2, 5, 7, 3), [2]),
    "channels": backwards((2, 5, 7, 3), [-1]),
    "batch": backwards((5, 33), [0]),
    "two": backwards((2, 5, 7, 3), [1, 2]),
    "three_out_of_order": backwards((2, 5, 7, 3), [3, 1, 2]),
    "of_size_1": backwards((1, 5), [0]),
    "long": backwards((4097,), [0]),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_WAYS, assert_moved)
test_types = types(lambda dtype: backwards((3, 4, 5), [1], dtype), ANY, assert_moved)


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
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    rank = len(shape)
    axes = draw(
        st.lists(
            st.integers(-rank, rank - 1), min_size=1, max_size=rank, unique_by=lambda a: a % rank
        )
    )
    return backwards(tuple(shape), axes, draw(st.sampled_from(ANY)))


test_drawn = drawn(nodes(), MOVE_WAYS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [backwards((1, size, size, channels), [1], dtype)]

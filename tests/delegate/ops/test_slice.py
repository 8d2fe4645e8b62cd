# SPDX-License-Identifier: Apache-2.0
"""SLICE: what it refuses, and boxes against TFLite's."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import changed, retyped
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, MOVE_WAYS, assert_moved, assert_moved_or_refused, like, numbers


def piece(
    shape: tuple[int, ...],
    begin: list[int],
    sizes: list[int],
    dtype: str = "uint8",
    index: str = "int32",
) -> Node:
    result = [n - b if s == -1 else s for n, b, s in zip(shape, begin, sizes, strict=True)]
    inputs = [like(shape, dtype), numbers(begin, index), numbers(sizes, index)]
    return op("SLICE", inputs, [like(result, dtype)])


NODE = piece((4, 5), [1, 2], [2, 3])
REFUSALS = {
    "computed_begin": (changed(NODE, 1, data=None), "computed begin: only constant"),
    "computed_size": (changed(NODE, 2, data=None), "computed sizes: only constant"),
    "begin": (changed(NODE, 1, data=np.array([-1, 2])), "[2, 3] elements from [-1, 2] on of 4x5"),
    "size": (changed(NODE, 2, data=np.array([4, 3])), "[4, 3] elements from [1, 2] on of 4x5"),
    "negative": (
        changed(NODE, 2, data=np.array([-2, 3])),
        "[-2, 3] elements from [1, 2] on of 4x5",
    ),
    "rank": (changed(NODE, 1, data=np.array([1])), "begin of shape (1,): (2,) is needed"),
    "output": (changed(NODE, -1, shape=(3, 2)), "output 3x2: the inputs give 2x3"),
    "empty": (piece((4, 5), [1, 2], [0, 3]), "shape 0x3: it is empty"),
    "string": (
        retyped(NODE, "string"),
        "string: only uint8, int8, int16, int32, int64, float16, float32, bool",
    ),
}
CASES = {
    "box": piece((3, 9, 7, 5), [1, 2, 0, 1], [2, 5, 7, 3]),
    "channels": piece((2, 5, 7, 48), [0, 0, 0, 16], [-1, -1, -1, 32]),
    "rest": piece((2, 9, 7), [1, 3, 2], [-1, -1, -1]),
    "all": piece((3, 5), [0, 0], [-1, 5]),
    "one": piece((3, 5), [2, 4], [1, 1]),
    "long": piece((2, 9000), [1, 7], [1, 8993], index="int64"),
    "five": piece((2, 3, 4, 3, 5), [0, 1, 1, 1, 1], [2, 2, 2, 2, 3]),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_WAYS, assert_moved)
test_types = types(lambda dtype: piece((4, 5, 8), [1, 2, 4], [2, 3, 4], dtype), ANY, assert_moved)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    begin = [draw(st.integers(0, n - 1)) for n in shape]
    sizes = [draw(st.just(-1) | st.integers(1, n - b)) for n, b in zip(shape, begin, strict=True)]
    dtype, index = draw(st.sampled_from(ANY)), draw(st.sampled_from(["int32", "int64"]))
    return piece(tuple(shape), begin, sizes, dtype, index)


test_drawn = drawn(nodes(), MOVE_WAYS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    half = max(1, size // 2)
    return [piece((1, size, size, channels), [0, 0, size - half, 0], [1, size, half, -1], dtype)]

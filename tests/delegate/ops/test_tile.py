# SPDX-License-Identifier: Apache-2.0
"""TILE: what it refuses, and repeated tensors against TFLite's."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import changed
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, MOVE_WAYS, assert_moved, assert_moved_or_refused, like, numbers


def tile(
    shape: tuple[int, ...], times: list[int], dtype: str = "uint8", index: str = "int32"
) -> Node:
    result = [n * count for n, count in zip(shape, times, strict=True)]
    return op("TILE", [like(shape, dtype), numbers(times, index)], [like(result, dtype)])


NODE = tile((2, 3), [2, 3])
REFUSALS = {
    "computed": (changed(NODE, 1, data=None), "computed multiples: only constant"),
    "zero": (changed(NODE, 1, data=np.array([0, 3])), "multiples [0, 3]: at least 1 is needed"),
    "rank": (changed(NODE, 1, data=np.array([3])), "multiples of shape (1,): (2,) is needed"),
    "output": (changed(NODE, -1, shape=(4, 3)), "output 4x3: the inputs give 4x9"),
}
CASES = {
    "rows": tile((3, 5), [3, 1]),
    "columns": tile((3, 5), [1, 4]),
    "pixels": tile((1, 1, 1, 16), [2, 7, 5, 1]),
    "all": tile((2, 3, 1, 5), [2, 3, 4, 2]),
    "once": tile((2, 3), [1, 1]),
    "int64": tile((4099,), [2], index="int64"),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_WAYS, assert_moved)
test_types = types(lambda dtype: tile((2, 3, 4), [1, 2, 3], dtype), ANY, assert_moved)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    times = [draw(st.integers(1, 4)) for _ in shape]
    dtype, index = draw(st.sampled_from(ANY)), draw(st.sampled_from(["int32", "int64"]))
    return tile(tuple(shape), times, dtype, index)


test_drawn = drawn(nodes(), MOVE_WAYS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [tile((1, size, size, channels), [2, 1, 3, 1], dtype)]

# SPDX-License-Identifier: Apache-2.0
"""BROADCAST_TO: what it refuses, and broadcast tensors against TFLite's."""

from __future__ import annotations

from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import changed
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, MOVE_WAYS, assert_moved, assert_moved_or_refused, like, numbers


def broadcast_to(
    shape: tuple[int, ...], wide: tuple[int, ...], dtype: str = "uint8", index: str = "int32"
) -> Node:
    inputs = [like(shape, dtype), numbers(wide, index)]
    return op("BROADCAST_TO", inputs, [like(wide, dtype)], version=2)


NODE = broadcast_to((3, 1), (2, 3, 4))
REFUSALS = {
    "computed": (changed(NODE, 1, data=None), "computed shape: only constant"),
    "size": (changed(NODE, 0, shape=(2, 1)), "2x1 cannot be broadcast to 2x3x4"),
    "rank": (changed(NODE, 0, shape=(1, 1, 3, 1)), "more dimensions than the result's 3"),
    "output": (changed(NODE, -1, shape=(2, 3, 5)), "output 2x3x5: the inputs give 2x3x4"),
}
CASES = {
    "scalar": broadcast_to((), (3, 5)),
    "pixels": broadcast_to((1, 1, 1, 16), (2, 7, 5, 16)),
    "rows": broadcast_to((3, 1, 5), (3, 4, 5)),
    "columns": broadcast_to((3, 1), (2, 3, 129)),
    "same": broadcast_to((3, 5), (3, 5)),
    "five": broadcast_to((2, 1, 3, 1, 5), (2, 3, 3, 4, 5)),
    "eight": broadcast_to((2, 1, 2, 1, 2, 1, 2), (3, 2, 2, 2, 2, 2, 2, 2)),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_WAYS, assert_moved)
test_types = types(lambda dtype: broadcast_to((3, 1, 4), (2, 3, 5, 4), dtype), ANY, assert_moved)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    wide = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    shape = [n if draw(st.booleans()) else 1 for n in wide][draw(st.integers(0, len(wide))) :]
    dtype, index = draw(st.sampled_from(ANY)), draw(st.sampled_from(["int32", "int64"]))
    return broadcast_to(tuple(shape), tuple(wide), dtype, index)


test_drawn = drawn(nodes(), MOVE_WAYS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [broadcast_to((1, size, size, channels), (3, size, size, channels), dtype)]

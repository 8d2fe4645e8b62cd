# SPDX-License-Identifier: Apache-2.0
"""EXPAND_DIMS: a view, and what it refuses."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from delegate import ops
from delegate.inspect import Node
from tests.support.cases import GROUPS, SIMT, changed
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, assert_moved, assert_moved_or_refused, like, numbers


def expand(shape: tuple[int, ...], axis: int, dtype: str = "uint8", index: str = "int32") -> Node:
    place = axis + (len(shape) + 1 if axis < 0 else 0)
    result = (*shape[:place], 1, *shape[place:])
    return op("EXPAND_DIMS", [like(shape, dtype), numbers(axis, index)], [like(result, dtype)])


NODE = expand((3, 5), 1)
REFUSALS = {
    "computed": (changed(NODE, 1, data=None), "computed axis: only constant"),
    "axis": (changed(NODE, 1, data=np.array(3)), "axis 3: outside of 3 dimensions"),
    "output": (changed(NODE, -1, shape=(1, 3, 5)), "output 1x3x5: the inputs give 3x1x5"),
    "types": (changed(NODE, -1, dtype="int8"), "uint8 3x5 -> int8 3x1x5: type and size must stay"),
    "scales": (
        changed(NODE, -1, quantization=None),
        "input and output differ in scale or zero point",
    ),
}
CASES = {
    "first": expand((3, 5), 0),
    "inside": expand((3, 5), 1),
    "last": expand((3, 5), -1),
    "negative": expand((3, 5), -3),
    "scalar": expand((), 0),
    "int64": expand((3, 5), 1, index="int64"),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, GROUPS, assert_moved)
test_types = types(lambda dtype: expand((3, 5), 1, dtype), ANY, assert_moved)


def test_view() -> None:
    (view,) = ops.lower(NODE, SIMT.target)
    assert (view.name, view.launches) == ("view", ())
    assert view.view == (NODE.inputs[0], NODE.outputs[0])


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 7), max_size=4))
    axis = draw(st.integers(-len(shape) - 1, len(shape)))
    dtype, index = draw(st.sampled_from(ANY)), draw(st.sampled_from(["int32", "int64"]))
    return expand(tuple(shape), axis, dtype, index)


test_drawn = drawn(nodes(), GROUPS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [expand((1, size, size, channels), 0, dtype)]

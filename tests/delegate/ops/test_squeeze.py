# SPDX-License-Identifier: Apache-2.0
"""SQUEEZE: a view, and what it refuses."""

from __future__ import annotations

from hypothesis import strategies as st

from delegate import ops
from delegate.inspect import Node
from tests.support.cases import GROUPS, SIMT, changed, retyped
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, assert_moved, assert_moved_or_refused, like


def squeeze(shape: tuple[int, ...], dims: tuple[int, ...] = (), dtype: str = "uint8") -> Node:
    gone = {axis % len(shape) for axis in dims} or {i for i, n in enumerate(shape) if n == 1}
    result = [n for i, n in enumerate(shape) if i not in gone]
    return op("SQUEEZE", [like(shape, dtype)], [like(result, dtype)], {"squeeze_dims": dims})


NODE = squeeze((1, 3, 1, 5), (0,))
REFUSALS = {
    "not_1": (
        changed(NODE, options={"squeeze_dims": (1,)}),
        "dimensions [1] of 1x3x1x5: not all are 1",
    ),
    "axis": (changed(NODE, options={"squeeze_dims": (-5,)}), "axis -5: outside of 4 dimensions"),
    "no_list": (changed(NODE, options={"squeeze_dims": 1}), "squeeze_dims is 1: a list is needed"),
    "output": (changed(NODE, -1, shape=(3, 5)), "output 3x5: the inputs give 3x1x5"),
    "types": (
        changed(NODE, -1, dtype="int8"),
        "uint8 1x3x1x5 -> int8 3x1x5: type and size must stay",
    ),
    "empty": (squeeze((1, 0)), "shape 0: it is empty"),
    "string": (retyped(NODE, "string"), "string: only types of a fixed size"),
}
CASES = {
    "all": squeeze((1, 3, 1, 5)),
    "first": squeeze((1, 3, 1, 5), (0,)),
    "negative": squeeze((1, 3, 1, 5), (-2,)),
    "none": squeeze((3, 5)),
    "to_a_scalar": squeeze((1, 1)),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, GROUPS, assert_moved)
test_types = types(lambda dtype: squeeze((1, 3, 1), (2,), dtype), ANY, assert_moved)


def test_view() -> None:
    (view,) = ops.lower(NODE, SIMT.target)
    assert (view.name, view.launches) == ("view", ())
    assert view.view == (NODE.inputs[0], NODE.outputs[0])


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.sampled_from([1, 1, 2, 3, 7]), min_size=1, max_size=5))
    ones = [i - draw(st.sampled_from([0, len(shape)])) for i, n in enumerate(shape) if n == 1]
    dims = draw(st.sets(st.sampled_from(ones))) if ones else set()
    return squeeze(tuple(shape), tuple(dims), draw(st.sampled_from(ANY)))


test_drawn = drawn(nodes(), GROUPS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [squeeze((1, size, size, channels), dtype=dtype)]

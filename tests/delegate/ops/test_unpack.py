# SPDX-License-Identifier: Apache-2.0
"""UNPACK: what it refuses, and layers along every axis against TFLite's."""

from __future__ import annotations

from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import changed
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, MOVE_WAYS, assert_moved, assert_moved_or_refused, like


def unpack(shape: tuple[int, ...], axis: int = 0, dtype: str = "uint8") -> Node:
    layer = list(shape)
    count = layer.pop(axis)
    results = [like(layer, dtype) for _ in range(count)]
    return op("UNPACK", [like(shape, dtype)], results, {"axis": axis, "num": count})


NODE = unpack((2, 3))
REFUSALS = {
    "axis": (changed(NODE, options={"axis": 2}), "axis 2: outside of 2 dimensions"),
    "count": (changed(NODE, options={"num": 3}), "2 layers, 2 outputs: not equal"),
    "layers": (changed(NODE, 0, shape=(4, 3)), "4 layers, 2 outputs: not equal"),
    "output": (changed(NODE, -1, shape=(2,)), "output 2: the inputs give 3"),
    "scales": (
        changed(NODE, -1, quantization=None),
        "input and output differ in scale or zero point",
    ),
    "scalar": (changed(NODE, 0, shape=()), "axis 0: outside of 0 dimensions"),
}
CASES = {
    "outermost": unpack((3, 5)),
    "innermost": unpack((17, 2), 1),
    "last": unpack((2, 5, 16, 3), -1),
    "inside": unpack((4, 3, 16), 1),
    "to_scalars": unpack((3,)),
    "one": unpack((3, 1, 5), 1),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_WAYS, assert_moved)
test_types = types(
    lambda dtype: unpack((4, 3, 5), 1, dtype),
    ["uint8", "int8", "int16", "int32", "float16", "float32", "bool"],
    assert_moved,
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return unpack(tuple(shape), axis, draw(st.sampled_from(ANY)))


test_drawn = drawn(nodes(), MOVE_WAYS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [unpack((1, size, size, channels), 2, dtype)]

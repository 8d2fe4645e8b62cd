# SPDX-License-Identifier: Apache-2.0
"""PACK: what it refuses, and layers along every axis against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import changed
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, MOVE_WAYS, assert_moved, assert_moved_or_refused, like


def pack(shape: tuple[int, ...], count: int, axis: int = 0, dtype: str = "uint8") -> Node:
    total = list(shape)
    total.insert(axis if axis >= 0 else len(shape) + 1 + axis, count)
    sources = [like(shape, dtype) for _ in range(count)]
    return op("PACK", sources, [like(total, dtype)], {"axis": axis, "values_count": count})


NODE = pack((2, 3), 2)
REFUSALS = {
    "axis": (changed(NODE, options={"axis": 3}), "axis 3: outside of 3 dimensions"),
    "count": (changed(NODE, options={"values_count": 3}), "3 layers, 2 inputs"),
    "shapes": (changed(NODE, 1, shape=(3, 2)), "layers 2x3 and 3x2"),
    "output": (changed(NODE, -1, shape=(3, 2)), "output 3x2: the inputs give 2x2x3"),
    "scales": (
        changed(NODE, 1, quantization=None),
        "input and output differ in scale or zero point",
    ),
    "types": (changed(NODE, 1, dtype="int8"), "int8 in, uint8 out: they must be equal"),
    "no_input": (replace(NODE, inputs=()), "0 inputs: 1 expected"),
}
CASES = {
    "outermost": pack((3, 5), 3),
    "innermost": pack((1, 17), 2, 2),
    "last": pack((2, 5, 16), 4, -1),
    "inside": pack((4, 3, 5), 2, 1),
    "scalars": pack((), 3),
    "one": pack((3, 5), 1, 1),
    "same_twice": replace(pack((7, 3), 2, 1), inputs=pack((7, 3), 2, 1).inputs[:1] * 2),
    "with_a_constant": changed(
        pack((2, 3), 2, 1), 0, data=np.arange(6, dtype="uint8").reshape(2, 3)
    ),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_WAYS, assert_moved)
test_types = types(
    lambda dtype: pack((4, 5), 3, 1, dtype),
    ["uint8", "int8", "int16", "int32", "int64", "float32"],
    assert_moved,
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 7), max_size=4))
    axis = draw(st.integers(-len(shape) - 1, len(shape)))
    return pack(tuple(shape), draw(st.integers(1, 5)), axis, draw(st.sampled_from(ANY)))


test_drawn = drawn(nodes(), MOVE_WAYS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [pack((1, size, size, channels), 2, 1, dtype)]

# SPDX-License-Identifier: Apache-2.0
"""SPLIT, SPLIT_V, UNPACK: what they refuse, and every part against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import changed
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import (
    ANY,
    MOVE_STRATEGIES,
    assert_moved,
    assert_moved_or_refused,
    like,
    numbers,
)
from tests.support.refusals import rescaled


def split(shape: tuple[int, ...], count: int, axis: int = -1, dtype: str = "uint8") -> Node:
    part = list(shape)
    part[axis] //= count
    results = [like(part, dtype) for _ in range(count)]
    return op("SPLIT", [numbers(axis), like(shape, dtype)], results, {"num_splits": count})


NODE = split((1, 2, 3, 6), 3)
REFUSALS = {
    "axis": (changed(NODE, 0, data=np.array(4)), "axis 4: outside of 4 dimensions"),
    "computed": (changed(NODE, 0, data=None), "axis: not constant"),
    "float_axis": (changed(NODE, 0, dtype="float32"), "float32 axis: only int32 and int64"),
    "two_axes": (
        changed(NODE, 0, data=np.array([1, 2])),
        "axis of shape (2,): one number is needed",
    ),
    "not_equal": (
        changed(NODE, 1, shape=(1, 2, 3, 7)),
        "7 elements in 3 parts: they must be equal",
    ),
    "count": (changed(NODE, options={"num_splits": 2}), "2 parts, 3 outputs: they must be equal"),
    "no_output": (
        replace(NODE, outputs=(), options={"num_splits": 0}),
        "0 outputs: at least 1 is expected",
    ),
    "output": (changed(NODE, -1, shape=(1, 2, 3, 3)), "output 1x2x3x3: the inputs give 1x2x3x2"),
    "types": (changed(NODE, -1, dtype="int8"), "uint8 in, int8 out: they must be equal"),
    "bool": (
        split((4, 4), 2, dtype="bool"),
        "bool: only uint8, int8, int16, int32, int64, float32",
    ),
}
CASES = {
    "channels": split((2, 5, 7, 32), 2),
    "single_channels": split((1, 8, 8, 6), 6),
    "rows": split((2, 6, 5, 3), 3, 1),
    "batch": split((4, 3, 5), 2, 0),
    "one_part": split((3, 5), 1),
    "a_tile_and_one_more": split((2 * 4097,), 2),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_STRATEGIES, assert_moved)
test_types = types(
    lambda dtype: split((3, 4, 10), 2, dtype=dtype),
    ["uint8", "int8", "int16", "int32", "int64", "float32"],
    assert_moved,
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    count = draw(st.integers(1, 5))
    shape[axis] *= count
    return split(tuple(shape), count, axis, draw(st.sampled_from(ANY)))


test_drawn = drawn(nodes(), MOVE_STRATEGIES, assert_moved_or_refused)


def split_v_split(
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


SPLIT_V_NODE = split_v_split((1, 2, 3, 6), [1, 5])
SPLIT_V_REFUSALS = {
    "axis": (changed(SPLIT_V_NODE, 2, data=np.array(-5)), "axis -5: outside of 4 dimensions"),
    "computed": (changed(SPLIT_V_NODE, 1, data=None), "sizes: not constant"),
    "sum": (
        changed(SPLIT_V_NODE, 1, data=np.array([1, 4])),
        "parts of [1, 4] elements: they must add up to 6",
    ),
    "two_hidden": (
        changed(SPLIT_V_NODE, 1, data=np.array([-1, -1])),
        "parts of [-1, -1] elements: they must add up to 6",
    ),
    "negative": (
        changed(SPLIT_V_NODE, 1, data=np.array([8, -2])),
        "parts of [8, -2] elements: they must add up to 6",
    ),
    "count": (changed(SPLIT_V_NODE, 1, data=np.array([6])), "sizes of shape (1,): (2,) is needed"),
    "output": (
        changed(SPLIT_V_NODE, -1, shape=(1, 2, 3, 3)),
        "output 1x2x3x3: the inputs give 1x2x3x1",
    ),
    "empty": (split_v_split((2, 6), [0, 6]), "shape 2x0: it is empty"),
}
SPLIT_V_CASES = {
    "channels": split_v_split((2, 5, 7, 48), [16, 32]),
    "hidden": split_v_split((2, 5, 7, 9), [3, 5, 1], hidden=1),
    "rows": split_v_split((2, 6, 5, 3), [1, 2, 3], 1),
    "batch": split_v_split((4, 3, 5), [3, 1], 0, hidden=0),
    "one_part": split_v_split((3, 5), [5]),
}

test_split_v_refusal = refused(SPLIT_V_REFUSALS)
test_split_v_exact = exact(SPLIT_V_CASES, MOVE_STRATEGIES, assert_moved)
test_split_v_types = types(
    lambda dtype: split_v_split((3, 4, 10), [3, 7], dtype=dtype),
    ["uint8", "int8", "int16", "int32", "int64", "float32"],
    assert_moved,
)


@st.composite
def split_v_nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    shape[axis] = sum(sizes)
    hidden = draw(st.none() | st.integers(0, len(sizes) - 1))
    return split_v_split(tuple(shape), sizes, axis, draw(st.sampled_from(ANY)), hidden)


test_split_v_drawn = drawn(split_v_nodes(), MOVE_STRATEGIES, assert_moved_or_refused)


def unpack(shape: tuple[int, ...], axis: int = 0, dtype: str = "uint8") -> Node:
    layer = list(shape)
    count = layer.pop(axis)
    results = [like(layer, dtype) for _ in range(count)]
    return op("UNPACK", [like(shape, dtype)], results, {"axis": axis, "num": count})


UNPACK_NODE = unpack((2, 3))
UNPACK_REFUSALS = {
    "axis": (changed(UNPACK_NODE, options={"axis": 2}), "axis 2: outside of 2 dimensions"),
    "count": (changed(UNPACK_NODE, options={"num": 3}), "2 layers, 2 outputs: they must be equal"),
    "layers": (changed(UNPACK_NODE, 0, shape=(4, 3)), "4 layers, 2 outputs: they must be equal"),
    "output": (changed(UNPACK_NODE, -1, shape=(2,)), "output 2: the inputs give 3"),
    "scales": rescaled(UNPACK_NODE, -1),
    "scalar": (changed(UNPACK_NODE, 0, shape=()), "axis 0: outside of 0 dimensions"),
}
UNPACK_CASES = {
    "outermost": unpack((3, 5)),
    "innermost": unpack((17, 2), 1),
    "last": unpack((2, 5, 16, 3), -1),
    "inside": unpack((4, 3, 16), 1),
    "to_scalars": unpack((3,)),
    "one": unpack((3, 1, 5), 1),
}

test_unpack_refusal = refused(UNPACK_REFUSALS)
test_unpack_exact = exact(UNPACK_CASES, MOVE_STRATEGIES, assert_moved)
test_unpack_types = types(
    lambda dtype: unpack((4, 3, 5), 1, dtype),
    ["uint8", "int8", "int16", "int32", "float16", "float32", "bool"],
    assert_moved,
)


@st.composite
def unpack_nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return unpack(tuple(shape), axis, draw(st.sampled_from(ANY)))


test_unpack_drawn = drawn(unpack_nodes(), MOVE_STRATEGIES, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    return [
        split((1, size, size, channels), size, 1, dtype),
        split_v_split((1, size, size, channels + 1), [1, channels], 3, dtype, hidden=1),
        unpack((1, size, size, channels), 2, dtype),
    ]

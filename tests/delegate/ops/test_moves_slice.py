# SPDX-License-Identifier: Apache-2.0
"""SLICE and STRIDED_SLICE: what they refuse, and boxes against TFLite's."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import changed, retyped
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
    "computed_begin": (changed(NODE, 1, data=None), "begin: not constant"),
    "computed_size": (changed(NODE, 2, data=None), "sizes: not constant"),
    "begin": (
        changed(NODE, 1, data=np.array([-1, 2])),
        "[2, 3] elements from [-1, 2] on of 4x5: outside of it",
    ),
    "size": (
        changed(NODE, 2, data=np.array([4, 3])),
        "[4, 3] elements from [1, 2] on of 4x5: outside of it",
    ),
    "negative": (
        changed(NODE, 2, data=np.array([-2, 3])),
        "[-2, 3] elements from [1, 2] on of 4x5: outside of it",
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
test_exact = exact(CASES, MOVE_STRATEGIES, assert_moved)
test_types = types(lambda dtype: piece((4, 5, 8), [1, 2, 4], [2, 3, 4], dtype), ANY, assert_moved)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    begin = [draw(st.integers(0, n - 1)) for n in shape]
    sizes = [draw(st.just(-1) | st.integers(1, n - b)) for n, b in zip(shape, begin, strict=True)]
    dtype, index = draw(st.sampled_from(ANY)), draw(st.sampled_from(["int32", "int64"]))
    return piece(tuple(shape), begin, sizes, dtype, index)


test_drawn = drawn(nodes(), MOVE_STRATEGIES, assert_moved_or_refused)


# Python's words for an entry: a slice, a number (drops the axis), None (a new one), ... (the rest).
Entry = slice | int | None | EllipsisType


def strided(
    shape: tuple[int, ...],
    entries: Sequence[Entry],
    dtype: str = "uint8",
    has_offsets: bool = False,
    result: tuple[int, ...] | None = None,
    version: int = 1,
) -> Node:
    """Return the node of source[entries]; `result`: the output's shape if numpy has another.

    `has_offsets`: ends are written as counted from the beginnings.
    """
    begin, end, strides = [], [], []
    masks = dict.fromkeys(("begin", "end", "ellipsis", "new_axis", "shrink_axis"), 0)
    for i, entry in enumerate(entries):
        first, last, step = 0, 1, 1
        if entry is None or entry is ...:
            masks["new_axis" if entry is None else "ellipsis"] |= 1 << i
        elif isinstance(entry, int):
            masks["shrink_axis"] |= 1 << i
            first, last = entry, entry + 1
        else:
            first, last, step = (entry.start or 0, entry.stop or 0, entry.step or 1)
            masks["begin"] |= (entry.start is None) << i
            masks["end"] |= (entry.stop is None) << i
        begin.append(first)
        end.append(last - first if has_offsets else last)
        strides.append(step)
    if result is None:
        result = np.zeros(shape)[tuple(entries)].shape
    return op(
        "STRIDED_SLICE",
        [like(shape, dtype), *(numbers(values) for values in (begin, end, strides))],
        [like(result, dtype)],
        {f"{name}_mask": mask for name, mask in masks.items()} | {"offset": has_offsets},
        version,
    )


STRIDED_NODE = strided((4, 5), [slice(1, 3), slice(0, 5, 2)])
STRIDED_REFUSALS = {
    "computed_begin": (changed(STRIDED_NODE, 1, data=None), "begin: not constant"),
    "computed_end": (changed(STRIDED_NODE, 2, data=None), "end: not constant"),
    "computed_strides": (
        changed(STRIDED_NODE, 3, data=None),
        "strides: not constant",
    ),
    "stride_0": (changed(STRIDED_NODE, 3, data=np.array([1, 0])), "a stride of 0"),
    "lengths": (
        changed(STRIDED_NODE, 3, data=np.array([1])),
        "strides of shape (1,): (2,) is needed",
    ),
    "entries": (changed(STRIDED_NODE, 0, shape=(4,)), "2 entries for 4: too many"),
    "ellipses": (
        changed(STRIDED_NODE, options={"ellipsis_mask": 3}),
        "two ellipses: at most one",
    ),
    "dropped": (
        changed(STRIDED_NODE, 1, data=np.array([4, 0]), options={"shrink_axis_mask": 1}),
        "element 4 by 1 of 4: none is there",
    ),
    "dropped_backwards": (
        changed(STRIDED_NODE, 3, data=np.array([-1, 2]), options={"shrink_axis_mask": 1}),
        "element 1 by -1 of 4: none is there",
    ),
    "offsets_of_some": (
        strided((4, 5), [slice(0, 2)], has_offsets=True),
        "ends as offsets: only for all dimensions, forwards and without masks",
    ),
    "offsets_beyond": (
        changed(STRIDED_NODE, 2, data=np.array([4, 5]), options={"offset": True}),
        "elements 1 to 5 of 4: not all are there",
    ),
    "offsets_and_masks": (
        changed(STRIDED_NODE, options={"offset": True, "begin_mask": 1}),
        "ends as offsets: only for all dimensions, forwards and without masks",
    ),
    "output": (changed(STRIDED_NODE, -1, shape=(2, 2)), "output 2x2: the inputs give 2x3"),
    "empty": (strided((4, 5), [slice(3, 1)]), "shape 0x5: it is empty"),
}
STRIDED_CASES = {
    "box": strided((2, 9, 7, 5), [slice(0, 2), slice(2, 8), slice(1, 6), slice(0, 3)]),
    "strides": strided((1, 9, 8, 16), [slice(None), slice(0, 9, 2), slice(1, None, 3)]),
    "backwards": strided((5, 7), [slice(None, None, -1), slice(5, 0, -2)]),
    "negative_places": strided((9, 7), [slice(-5, -1), slice(-3, None)]),
    "beyond": strided((9, 7), [slice(-50, 100), slice(50, -100, -3)]),
    "dropped_axes": strided((3, 5, 7), [1, slice(None), -2]),
    "new_axes": strided((3, 5), [None, slice(1, 3), None]),
    "ellipsis": strided((3, 2, 5, 7), [1, ..., slice(2, 6)]),
    # TFLite's own: the ellipsis takes the second dimension, and the last entry counts for nothing.
    "ellipsis_of_nothing": strided((3, 5), [slice(1, 3), ..., slice(2, 4)], result=(2, 5)),
    "ellipsis_and_new": strided((3, 5, 7), [..., None, slice(1, 5, 2)]),
    "fewer_entries": strided((3, 5, 7), [slice(1, 3)]),
    "one_number": strided((4,), [0]),
    "all": strided((3, 5), [slice(None), slice(None)]),
    "offsets": strided((9, 7), [slice(2, 6), slice(1, 7, 2)], has_offsets=True, version=8),
    "five": strided((3, 4, 3, 4, 5), [slice(None, None, 2)] * 5),
    "long": strided((2, 9001), [slice(None), slice(None, None, -2)]),
}

test_strided_refusal = refused(STRIDED_REFUSALS)
test_strided_exact = exact(STRIDED_CASES, MOVE_STRATEGIES, assert_moved)
test_strided_types = types(
    lambda dtype: strided((4, 5, 6), [slice(1, 3), 2, slice(None, None, -1)], dtype),
    ANY,
    assert_moved,
)


@st.composite
def strided_nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    has_offsets = draw(st.integers(0, 9)) == 0
    entries: list[Entry] = []
    count = len(shape) if has_offsets else draw(st.integers(1, len(shape)))
    for n in shape[:count]:
        place = st.none() | st.integers(-n - 2, n + 2)
        step = st.sampled_from([1, 1, 2, 3, -1, -2])
        some = st.builds(slice, place, place, step)
        if has_offsets:
            first = draw(st.integers(0, n - 1))
            last, by = draw(st.integers(first + 1, n)), draw(st.integers(1, 3))
            entries.append(slice(first, last, by))
        else:
            entries.append(draw(some | some | st.integers(-n, n - 1)))
    if len(entries) < len(shape) and draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), ...)
    if len(shape) < 4 and not has_offsets and draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), None)
    dtype, version = draw(st.sampled_from(ANY)), draw(st.sampled_from([1, 2, 3, 4, 8]))
    try:
        return strided(tuple(shape), entries, dtype, has_offsets, version=version)
    except IndexError:  # an ellipsis moved a number to a smaller dimension
        reject()


def is_filled(node: Node) -> bool:
    return 0 not in node.outputs[0].shape


test_strided_drawn = drawn(
    strided_nodes().filter(is_filled), MOVE_STRATEGIES, assert_moved_or_refused
)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    half = max(1, size // 2)
    return [
        piece((1, size, size, channels), [0, 0, size - half, 0], [1, size, half, -1], dtype),
        strided((1, size, size, channels), [slice(0, None, 2)] * 4, dtype),
    ]

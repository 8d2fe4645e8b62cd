# SPDX-License-Identifier: Apache-2.0
"""GATHER: what it refuses, and layers along every axis against TFLite's."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import GROUPS, changed
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, assert_moved, assert_moved_or_refused, like, numbers


def gather(
    shape: tuple[int, ...],
    indices: Any,
    axis: int = 0,
    batch_dims: int = 0,
    dtype: str = "uint8",
    index: str = "int32",
) -> Node:
    places = np.array(indices)
    batch = batch_dims + (places.ndim if batch_dims < 0 else 0)
    first = axis % len(shape)
    result = (*shape[:first], *places.shape[batch:], *shape[first + 1 :])
    return op(
        "GATHER",
        [like(shape, dtype), numbers(places, index)],
        [like(result, dtype)],
        {"axis": axis, "batch_dims": batch_dims},
    )


NODE = gather((4, 3), [3, 0])
REFUSALS = {
    "computed": (
        changed(NODE, 1, data=None),
        "computed indices: one out of range must fail as it does in TFLite",
    ),
    "too_large": (changed(NODE, 1, data=np.array([4, 0])), "an index is 4: outside of 4 elements"),
    "negative": (changed(NODE, 1, data=np.array([1, -1])), "an index is -1: outside of 4 elements"),
    "axis": (changed(NODE, options={"axis": 2}), "axis 2: outside of 2 dimensions"),
    "batch_dims": (
        changed(NODE, options={"batch_dims": 1}),
        "batch_dims 1: beyond axis 0 or 1 dimensions",
    ),
    "batches": (
        changed(gather((2, 3), [[0], [1]], 1, 1), 0, shape=(3, 3)),
        "batches 3x3 and 2x1: they differ",
    ),
    "output": (changed(NODE, -1, shape=(2, 4)), "output 2x4: the inputs give 2x3"),
    "float_indices": (
        changed(NODE, 1, dtype="float32"),
        "float32 indices: only int16, int32 and int64",
    ),
}
CASES = {
    "rows": gather((7, 16), [6, 0, 3, 3]),
    "channels": gather((2, 3, 5), [4, 0, 0, 2], -1),
    "inside": gather((2, 5, 3, 4), [1, 4], 1),
    "matrix_of_indices": gather((5, 3), [[0, 1, 2], [4, 3, 0]]),
    "scalar_index": gather((5, 3), 2),
    "a_batch": gather((2, 5, 3), [[0, 4], [1, 1]], 1, 1),
    "a_batch_and_more": gather((2, 4, 5, 3), [[0, 4, 2], [1, 1, 0]], 2, 1),
    "two_batches": gather((2, 3, 4, 2), np.arange(12).reshape(2, 3, 2) % 4, 2, 2),
    "negative_batch": gather((2, 5), [[0, 4], [1, 1]], 1, -1),
    "int64": gather((5, 3), [4, 1], index="int64"),
    "large": gather((50, 129), [*range(49, -1, -1)] * 2),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, GROUPS, assert_moved)
test_types = types(lambda dtype: gather((4, 3), [3, 0, 1], dtype=dtype), ANY, assert_moved)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    axis = draw(st.integers(0, len(shape) - 1))
    batch = draw(st.integers(0, axis))
    more = draw(st.lists(st.integers(1, 4), max_size=2))
    places = np.array(draw(st.lists(st.integers(0, shape[axis] - 1), min_size=1, max_size=9)))
    indices = np.resize(places, (*shape[:batch], *more))
    dtype, index = draw(st.sampled_from(ANY)), draw(st.sampled_from(["int32", "int64"]))
    axis -= len(shape) if draw(st.booleans()) else 0
    return gather(tuple(shape), indices, axis, batch, dtype, index)


test_drawn = drawn(nodes(), GROUPS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [gather((1, size, size, channels), [0, 0, size - 1], 2, dtype=dtype)]

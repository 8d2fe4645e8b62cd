# SPDX-License-Identifier: Apache-2.0
"""CUMSUM: what it refuses, and running sums against TFLite's."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo
from delegate.inspect import Node
from tests.support.cases import GROUPS, SEEDS, Strategy, changed
from tests.support.factories import exact, refused, types
from tests.support.model import op, t
from tests.support.moves import assert_moved, assert_moved_or_refused, numbers

TYPES = ("int32", "int64", "float32")


def cumsum(
    shape: tuple[int, ...],
    axis: int = -1,
    dtype: str = "int32",
    exclusive: bool = False,
    reverse: bool = False,
) -> Node:
    options = {"exclusive": exclusive, "reverse": reverse}
    return op("CUMSUM", [t(shape, dtype), numbers(axis)], [t(shape, dtype)], options)


NODE = cumsum((3, 5))
REFUSALS = {
    "computed": (changed(NODE, 1, data=None), "axis: not constant"),
    "axis": (changed(NODE, 1, data=np.array(2)), "axis 2: outside of 2 dimensions"),
    "axis_type": (changed(NODE, 1, dtype="int64"), "int64 axis: only int32"),
    "types": (changed(NODE, -1, dtype="float32"), "int32 in, float32 out: they must be equal"),
    "int8": (cumsum((3,), dtype="int8"), "int8: only int32, int64, float32"),
    "output": (changed(NODE, -1, shape=(5, 3)), "output 5x3: the inputs give 3x5"),
    "long": (cumsum((32769,)), "an axis of 32769 elements: at most 32768"),
}
CASES = {
    "rows": cumsum((3, 5)),
    "columns": cumsum((7, 5, 3), 0),
    "inside": cumsum((2, 5, 7), 1),
    "exclusive": cumsum((3, 5), exclusive=True),
    "reverse": cumsum((3, 5, 2), 1, reverse=True),
    "both": cumsum((3, 5), 0, exclusive=True, reverse=True),
    "float_both": cumsum((9, 65), 0, "float32", exclusive=True, reverse=True),
    "float_long": cumsum((2, 1025), 1, "float32"),
    "int64_both": cumsum((9, 5), 0, "int64", exclusive=True, reverse=True),
    "many_lines": cumsum((3, 4099), 0),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, GROUPS, assert_moved)
test_types = types(lambda dtype: cumsum((3, 4, 5), 1, dtype), TYPES, assert_moved)


@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    dtype=st.sampled_from(TYPES),
    exclusive=st.booleans(),
    reverse=st.booleans(),
    strategy=st.sampled_from(GROUPS),
    seed=SEEDS,
    data=st.data(),
)
def test_drawn(
    device: DeviceInfo,
    shape: list[int],
    dtype: str,
    exclusive: bool,
    reverse: bool,
    strategy: Strategy,
    seed: int,
    data: st.DataObject,
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    node = cumsum(tuple(shape), axis, dtype, exclusive, reverse)
    assert_moved_or_refused(node, device, strategy, seed)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [cumsum((1, size, size, channels), 3, "float32")]


BUILT = [cumsum((3, 5), 1, dtype) for dtype in TYPES]

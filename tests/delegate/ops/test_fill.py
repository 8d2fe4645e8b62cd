# SPDX-License-Identifier: Apache-2.0
"""FILL: what it refuses, and tensors of one value against TFLite's."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo
from delegate.inspect import Node
from tests.support.cases import SEEDS, Way, changed
from tests.support.deal import any_driver
from tests.support.factories import exact, refused, types
from tests.support.model import op
from tests.support.moves import (
    ANY,
    MOVE_WAYS,
    assert_moved,
    assert_moved_or_refused,
    like,
    numbers,
    one_value,
)


def filled(
    shape: tuple[int, ...], dtype: str = "uint8", index: str = "int32", value: Any = None
) -> Node:
    """Return the node; a `value` makes it a constant."""
    one = like((), dtype) if value is None else one_value(value, dtype)
    return op("FILL", [numbers(np.array(shape), index), one], [like(shape, dtype)])


NODE = filled((2, 3))
REFUSALS = {
    "computed": (changed(NODE, 0, data=None), "computed shape: only constant"),
    "values": (changed(NODE, 1, shape=(2,)), "value 2: one number is needed"),
    "types": (changed(NODE, 1, dtype="int8"), "int8 in, uint8 out: they must be equal"),
    "scales": (
        changed(NODE, 1, quantization=None),
        "input and output differ in scale or zero point",
    ),
    "output": (changed(NODE, -1, shape=(3, 2)), "output 3x2: the inputs give 2x3"),
}
CASES = {
    "matrix": filled((3, 5), "int8"),
    "one": filled((1,), "int8"),
    "tile_and_one": filled((4097,), "float32"),
    "int64_shape": filled((2, 3, 4), "int32", "int64"),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_WAYS, assert_moved)
test_types = types(
    lambda dtype: filled((3, 5), dtype),
    ["int8", "int16", "int32", "int64", "float16", "float32", "bool"],
    assert_moved,
)


@any_driver
@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    dtype=st.sampled_from(ANY),
    value=st.none() | st.integers(0, 1),
    way=st.sampled_from(MOVE_WAYS),
    seed=SEEDS,
)
def test_drawn(
    device: DeviceInfo, shape: list[int], dtype: str, value: int | None, way: Way, seed: int
) -> None:
    assert_moved_or_refused(filled(tuple(shape), dtype, value=value), device, way, seed)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [filled((size, channels), dtype, value=5)]

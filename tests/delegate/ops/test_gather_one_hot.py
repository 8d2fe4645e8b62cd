# SPDX-License-Identifier: Apache-2.0
"""ONE_HOT: what it refuses, and indices in and out of range against TFLite's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo
from delegate.inspect import Node
from tests.support.cases import GROUPS, SEEDS, Strategy, assert_exact_strategy, changed, strategy_on
from tests.support.factories import exact, refused, types
from tests.support.model import chain_model, op, t
from tests.support.moves import like, numbers, one_value


def one_hot(
    shape: tuple[int, ...],
    depth: int,
    axis: int = -1,
    dtype: str = "uint8",
    index: str = "int32",
    is_computed: bool = False,
) -> Node:
    """Return the node; `is_computed`: both values are inputs."""
    place = len(shape) if axis == -1 else axis
    values = [like((), dtype) if is_computed else one_value(v, dtype) for v in (1, 0)]
    inputs = [t(shape, index), numbers(depth), *values]
    return op(
        "ONE_HOT", inputs, [like((*shape[:place], depth, *shape[place:]), dtype)], {"axis": axis}
    )


NODE = one_hot((3, 5), 4)
REFUSALS = {
    "computed": (changed(NODE, 1, data=None), "depth: not constant"),
    "depth_type": (changed(NODE, 1, dtype="int64"), "int64 depth: only int32"),
    "axis": (changed(NODE, options={"axis": 3}), "axis 3: outside of 3 dimensions"),
    "indices": (changed(NODE, 0, dtype="uint8"), "uint8 indices: only int32 and int64"),
    "values": (changed(NODE, 2, shape=(2,)), "value 2: one number is needed"),
    "types": (changed(NODE, 3, dtype="int8"), "int8 in, uint8 out: they must be equal"),
    "int16": (
        one_hot((3,), 4, dtype="int16"),
        "int16: only uint8, int8, int32, int64, float32, bool",
    ),
    "output": (changed(NODE, -1, shape=(3, 4, 5)), "output 3x4x5: the inputs give 3x5x4"),
    "empty_indices": (one_hot((0,), 4), "shape 0x4: it is empty"),
}
CASES = {
    "last_axis": one_hot((3, 5), 4),
    "first_axis": one_hot((3, 5), 4, 0),
    "inside": one_hot((3, 5), 4, 1),
    "scalar": one_hot((), 7),
    "int64": one_hot((3, 5), 4, index="int64"),
    "computed_values": one_hot((3, 5), 4, is_computed=True),
    "large": one_hot((17,), 1001),
}


def indices_for(node: Node, seed: int = 0) -> list[list[NDArray[Any]]]:
    """Return inputs: indices around the range; of 64 bits TFLite looks at the low word alone."""
    source = node.inputs[0]
    assert source is not None
    rng = np.random.default_rng(seed)
    depth = math.prod(node.outputs[0].shape) // math.prod(source.shape)
    sets = []
    for high in (0, 1 << 32, -1 << 32) if source.dtype == "int64" else (0,):
        values = rng.integers(-2, depth + 2, source.shape) + high
        others = [
            rng.integers(0, 2, ()).astype(each.dtype)
            for each in node.inputs[2:]
            if each is not None and each.data is None
        ]
        sets.append([np.asarray(values, source.dtype), *others])
    return sets


def assert_same_ones(node: Node, device: DeviceInfo, strategy: Strategy, seed: int = 0) -> None:
    model = chain_model([node])
    assert assert_exact_strategy(model, device, strategy, inputs=indices_for(node, seed)) == {
        "plain"
    }


test_refusal = refused(REFUSALS)
test_exact = exact(CASES, GROUPS, assert_same_ones)
test_types = types(
    lambda dtype: one_hot((3, 5), 4, dtype=dtype),
    ["uint8", "int8", "int32", "int64", "float32", "bool"],
    assert_same_ones,
)


@given(
    shape=st.lists(st.integers(1, 6), max_size=3),
    depth=st.integers(1, 9),
    axis=st.integers(-1, 3),
    dtype=st.sampled_from(["uint8", "int8", "int32", "int64", "float32", "bool"]),
    index=st.sampled_from(["int32", "int64"]),
    is_computed=st.booleans(),
    strategy=st.sampled_from(GROUPS),
    seed=SEEDS,
)
def test_drawn(
    device: DeviceInfo,
    shape: list[int],
    depth: int,
    axis: int,
    dtype: str,
    index: str,
    is_computed: bool,
    strategy: Strategy,
    seed: int,
) -> None:
    node = one_hot(tuple(shape), depth, min(axis, len(shape)), dtype, index, is_computed)
    assert_same_ones(node, device, strategy_on(device, strategy), seed)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [one_hot((3, size), channels, dtype=dtype)]


BUILT = [
    one_hot((3,), 4, dtype=dtype, index=index)
    for dtype in ("uint8", "int32", "int64")
    for index in ("int32", "int64")
]

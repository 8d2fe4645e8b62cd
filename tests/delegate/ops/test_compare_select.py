# SPDX-License-Identifier: Apache-2.0
"""SELECT, SELECT_V2: launches, refusals, and every type and shape against TFLite."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.cases import (
    DRAWN_STRATEGIES,
    GROUPS,
    LANES_8,
    LANES_16,
    SEEDS,
    SIMT,
    Strategy,
    assert_exact_or_refused,
    assert_exact_strategy,
    changed,
    only_launch,
    retyped,
)
from tests.support.factories import refused
from tests.support.model import chain_model, const, op, t
from tests.support.pairs import BROADCASTS, Shape, broadcast_shapes

TYPES = ("uint8", "int8", "int16", "int32", "int64", "float32", "bool")
WHOLE = (1, 7, 5, 3)


def select(
    condition: Shape = WHOLE,
    left: Shape = WHOLE,
    right: Shape = WHOLE,
    dtype: str = "int8",
    name: str = "SELECT_V2",
) -> Node:
    shape = np.broadcast_shapes(left, right)
    if name == "SELECT_V2":
        shape = np.broadcast_shapes(shape, condition)
    numbers = (0.5, 0) if dtype in ("uint8", "int8", "int16") else ()
    return op(
        name,
        [t(condition, "bool"), t(left, dtype, *numbers), t(right, dtype, *numbers)],
        [t(shape, dtype, *numbers)],
        version=1,
    )


@pytest.mark.parametrize(
    ("dtype", "lanes", "elem"),
    [("bool", 16, "uchar"), ("int16", 8, "ushort"), ("float32", 8, "uint"), ("int64", 1, "uint2")],
)
def test_launch(dtype: str, lanes: int, elem: str) -> None:
    found = ops.lower(select(dtype=dtype), LANES_16.target)
    launch = only_launch(found[0])
    assert launch.defines == {"ELEM": elem, "LANES": lanes}
    assert (launch.params["row"], launch.params["rows"]) == (105, 1)
    assert found[-1].name == "plain"


NODE = select()
REFUSALS = {
    "condition": (changed(NODE, 0, dtype="int32"), "int32 condition: only bool"),
    "types": (changed(NODE, 1, dtype="uint8"), "uint8 or int8 -> int8: they must be equal"),
    "string": (retyped(NODE, "string", (1, 2, -1)), "string: only types of a fixed size"),
    "shapes": (
        changed(NODE, 0, shape=(7, 2)),
        "7x2 and 1x7x5x3 and 1x7x5x3 -> 1x7x5x3: not the broadcast shape",
    ),
    "result": (
        changed(NODE, -1, shape=(2, 7, 5, 3)),
        "1x7x5x3 and 1x7x5x3 and 1x7x5x3 -> 2x7x5x3: not the broadcast shape",
    ),
    "empty": (changed(NODE, 0, shape=(0,)), "shape 0: it is empty"),
    "first_is_broadcast": (
        changed(select(name="SELECT"), 1, shape=(3,)),
        "3 or 1x7x5x3 -> 1x7x5x3: they must be equal",
    ),
    "first_condition": (
        changed(select(name="SELECT"), 0, shape=(3,)),
        "condition 3 -> 1x7x5x3: a scalar, the same, or one for each of the first dimension",
    ),
    "two_inputs": (replace(NODE, inputs=NODE.inputs[:2]), "2 inputs: 3 expected"),
}

test_refusal = refused(REFUSALS)


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["SELECT", "SELECT_V2"])
def test_types(name: str, dtype: str, strategy: Strategy, device: DeviceInfo) -> None:
    assert_exact_strategy(chain_model([select(dtype=dtype, name=name)]), device, strategy)


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize(
    ("condition", "left", "right"),
    [
        ((2, 1, 4, 5), (3, 4, 5), (2, 3, 1, 1)),
        ((), (), ()),
        ((1, 5, 4, 1), (1, 5, 4, 19), (1, 5, 4, 19)),
        ((1, 5, 4, 19), (1, 5, 4, 19), ()),
        ((5, 1), (1, 33), (1, 1)),
        (*BROADCASTS["many"], (20,)),
        ((33,), (1, 5, 4, 33), (1, 5, 4, 33)),
    ],
    ids=str,
)
def test_shapes(
    condition: Shape, left: Shape, right: Shape, strategy: Strategy, device: DeviceInfo
) -> None:
    for dtype in ("int8", "float32"):
        assert_exact_strategy(
            chain_model([select(condition, left, right, dtype)]), device, strategy
        )


@pytest.mark.parametrize("condition", [(), (7,), (7, 5, 3)], ids=str)
def test_first_version(condition: Shape, device: DeviceInfo) -> None:
    node = select(condition, (7, 5, 3), (7, 5, 3), name="SELECT")
    assert_exact_strategy(chain_model([node]), device, LANES_8)


def test_constant(device: DeviceInfo) -> None:
    node = select(WHOLE, WHOLE, (3,), "float32")
    node = replace(node, inputs=(*node.inputs[:2], const(np.float32([-1, 0, np.nan]))))
    assert_exact_strategy(chain_model([node]), device, SIMT)


@given(
    shapes=broadcast_shapes(),
    condition=st.integers(0, 2),
    dtype=st.sampled_from(TYPES),
    strategy=DRAWN_STRATEGIES,
    seed=SEEDS,
)
def test_drawn(
    device: DeviceInfo,
    shapes: tuple[Shape, Shape],
    condition: int,
    dtype: str,
    strategy: Strategy,
    seed: int,
) -> None:
    chosen = (*shapes, ())[condition]
    assert_exact_or_refused(chain_model([select(chosen, *shapes, dtype)]), device, strategy, seed)


NODES = {name: select(name=name) for name in ("SELECT", "SELECT_V2")}
BUILT = [select((4, 20), (4, 20), (4, 20), dtype) for dtype in ("int8", "int16", "int32", "int64")]

# SPDX-License-Identifier: Apache-2.0
"""LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT: launches, refusals, and answers against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.cases import (
    DRAWN_WAYS,
    GROUPS,
    LANES_8,
    PLAIN,
    SEEDS,
    SIMT,
    Way,
    assert_exact_or_refused,
    assert_exact_way,
    changed,
    only_launch,
    retyped,
)
from tests.support.factories import refused
from tests.support.model import chain_model, op, t
from tests.support.pairs import BROADCASTS, Case, cases


def inverted(shape: tuple[int, ...]) -> Node:
    return op("LOGICAL_NOT", [t(shape, "bool")], [t(shape, "bool")], version=1)


def pair(op_name: str, shapes: str) -> Node:
    case = Case(op=op_name, dtype="bool", shapes=BROADCASTS[shapes])
    return replace(case.node(), version=1)


@pytest.mark.parametrize(
    ("op_name", "expression"), [("LOGICAL_AND", "MINIMUM"), ("LOGICAL_OR", "MAXIMUM")]
)
def test_launch(op_name: str, expression: str) -> None:
    vector, plain = ops.lower(pair(op_name, "equal"), SIMT.target)
    for alternative in (vector, plain):
        launch = only_launch(alternative)
        assert (launch.kernel, launch.defines["OP"]) == ("binary_quant8", expression)


NODE = pair("LOGICAL_AND", "equal")
REFUSALS = {
    "bytes": (retyped(NODE, "uint8", (0, 1, -1)), "uint8: only bool are implemented"),
    "shapes": (
        changed(NODE, 0, shape=(7, 2)),
        "7x2 and 1x7x5x3 -> 1x7x5x3: not the broadcast shape",
    ),
    "not_bytes": (changed(inverted((3,)), -1, dtype="int8"), "bool -> int8: only bool"),
    "not_shape": (
        changed(inverted((3,)), -1, shape=(4,)),
        "3 -> 4: not the broadcast shape",
    ),
    "not_empty": (changed(inverted((3,)), 0, shape=(0,)), "shape 0: it is empty"),
}

test_refusal = refused(REFUSALS)


@pytest.mark.parametrize("way", [PLAIN, LANES_8], ids=str)
@pytest.mark.parametrize("shapes", ["equal", "one", "channels", "both", "pixels"])
@pytest.mark.parametrize("op_name", ["LOGICAL_AND", "LOGICAL_OR"])
def test_exact(op_name: str, shapes: str, way: Way, device: DeviceInfo) -> None:
    assert_exact_way(chain_model([pair(op_name, shapes)]), device, way)


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (1, 7, 5, 3), (4097,)], ids=str)
def test_not(shape: tuple[int, ...], way: Way, device: DeviceInfo) -> None:
    assert_exact_way(chain_model([inverted(shape)]), device, way)


@given(
    case=cases(("LOGICAL_AND", "LOGICAL_OR"), ("bool",)),
    is_not=st.booleans(),
    way=DRAWN_WAYS,
    seed=SEEDS,
)
def test_drawn(device: DeviceInfo, case: Case, is_not: bool, way: Way, seed: int) -> None:
    node = inverted(case.shapes[0]) if is_not else replace(case.node(), version=1)
    assert_exact_or_refused(chain_model([node]), device, way, seed)


NODES = {
    **{name: pair(name, "equal") for name in ("LOGICAL_AND", "LOGICAL_OR")},
    "LOGICAL_NOT": inverted((4, 5)),
}

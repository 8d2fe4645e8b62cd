# SPDX-License-Identifier: Apache-2.0
"""LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT: launches, refusals, and answers."""

from __future__ import annotations

import pytest

from delegate import ops
from delegate.inspect import Node
from tests.support.cases import SIMT, STRATEGIES, changed, only_launch, retyped
from tests.support.factories import drawn, refused
from tests.support.model import op, t
from tests.support.pairs import pairs
from tests.support.suite_cases import assert_graph_or_refused, from_suite
from tflite_opencl.conformance.cases.binary import pair

OPS = ("LOGICAL_AND", "LOGICAL_OR")

test_logical = from_suite(*OPS)
test_not = from_suite("LOGICAL_NOT")


def inverted(shape: tuple[int, ...]) -> Node:
    return op("LOGICAL_NOT", [t(shape, "bool")], [t(shape, "bool")], version=1)


def node(name: str) -> Node:
    return pair(name, "bool", ((1, 7, 5, 3), (1, 7, 5, 3))).nodes[0]


@pytest.mark.parametrize(
    ("name", "expression"), [("LOGICAL_AND", "MINIMUM"), ("LOGICAL_OR", "MAXIMUM")]
)
def test_launch(name: str, expression: str) -> None:
    for alternative in ops.lower(node(name), SIMT.target):
        launch = only_launch(alternative)
        assert (launch.kernel, launch.defines["OP"]) == ("binary_quant8", expression)


NODE = node("LOGICAL_AND")
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


test_drawn = drawn(pairs(OPS, ("bool",)), STRATEGIES, assert_graph_or_refused)

NODES = {**{name: node(name) for name in OPS}, "LOGICAL_NOT": inverted((4, 5))}

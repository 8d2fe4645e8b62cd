# SPDX-License-Identifier: Apache-2.0
"""ELU: what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

import numpy as np

from delegate import ops
from delegate.inspect import Node
from tests.support.activations import (
    Activation,
    activations,
    assert_drawn,
    assert_every_value,
    common_refusals,
    floats,
    shapes_of_floats,
)
from tests.support.cases import GROUPS, SIMT, changed, only_launch
from tests.support.factories import drawn, exact, refused
from tests.support.floats import Doubles

FLOATS = Activation(op="ELU", dtype="float32")
NODE = Activation(op="ELU").node()
INT8 = Activation(op="ELU", dtype="int8", zeros=(3, -2)).node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "uint8": (NODE, "uint8: only float32, int8"),
    "int8_without_quantisation": (
        changed(INT8, -1, quantization=None),
        "int8 without quantisation: scale and zero point are missing",
    ),
    **{
        name: case
        for name, case in common_refusals(NODE).items()
        if name in ("types_differ", "sparse", "no_input", "no_output")
    },
}

test_refusal = refused(REFUSALS)


def test_launch() -> None:
    (plain,) = ops.lower(FLOATS.node(), SIMT.target)
    assert only_launch(plain).defines == {"IS_ELU": 1}


CASES = [
    Activation(op="ELU", dtype="int8", scales=scales, zeros=zeros)
    for scales in ((0.1, 0.07), (0.02, 0.02), (1.0, 0.3), (0.5, 0.01))
    for zeros in ((0, 0), (-128, 127), (127, -128))
]

test_every_value = exact(CASES, GROUPS, assert_every_value)


def sizes(values: Doubles) -> Doubles:
    return np.where(values < 0, -np.expm1(np.minimum(values, 0)), values)


test_floats = floats(FLOATS, sizes)
test_shapes_of_floats = shapes_of_floats(FLOATS, sizes)

test_drawn_elu = drawn(activations("ELU", ["int8"]), GROUPS, assert_drawn)

NODES = {"ELU": FLOATS.node()}
BUILT = [INT8]

# SPDX-License-Identifier: Apache-2.0
"""HARD_SWISH: what it refuses, and its numbers against TFLite's."""

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
from tests.support.cases import GROUPS, SIMT, changed, only_launch, quantization
from tests.support.factories import drawn, exact, refused
from tests.support.floats import Doubles

FLOATS = Activation(op="HARD_SWISH", dtype="float32")
NODE = Activation(op="HARD_SWISH").node()
REFUSALS: dict[str, tuple[Node, str]] = {
    **common_refusals(NODE),
    "int16": (
        Activation(op="HARD_SWISH", dtype="int16").node(),
        "int16: only float32, uint8, int8",
    ),
    "output_scale": (
        changed(NODE, -1, quantization=quantization(2.0**-13)),
        f"output scale {2.0**-13}: below 1/128 of the input's, {float(np.float32(0.1))}",
    ),
    "input_scale": (
        changed(
            changed(NODE, 0, quantization=quantization(1e10)), -1, quantization=quantization(1e9)
        ),
        "input scale 10000000000.0: too large",
    ),
}

test_refusal = refused(REFUSALS)


def test_launch() -> None:
    (plain,) = ops.lower(FLOATS.node(), SIMT.target)
    assert only_launch(plain).defines == {"IS_HARD_SWISH": 1}


CASES = [
    Activation(op="HARD_SWISH", dtype=dtype, scales=scales, zeros=zeros)
    for dtype, zeros in (("uint8", (0, 255)), ("uint8", (131, 3)), ("int8", (-128, 5)))
    for scales in ((0.1, 0.07), (0.02, 0.02), (1.0, 0.3), (0.004, 1.0), (0.0001, 7.0), (30.0, 1.0))
]

test_every_value = exact(CASES, GROUPS, assert_every_value)


def sizes(values: Doubles) -> Doubles:
    return np.abs(values * np.clip(values + 3, 0, 6) / 6)


# Between -3 and -2 the ramp is a difference: its rounding is that of the 3.
test_floats = floats(FLOATS, lambda v: sizes(v) + np.abs(v) / 2)
test_shapes_of_floats = shapes_of_floats(FLOATS, sizes)

test_drawn_hard_swish = drawn(activations("HARD_SWISH", ["uint8", "int8"]), GROUPS, assert_drawn)

NODES = {"HARD_SWISH": NODE}
BUILT = [FLOATS.node()]

# SPDX-License-Identifier: Apache-2.0
"""HARD_SWISH: what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

import numpy as np
import pytest

from delegate import DeviceInfo, Node, ops
from tests.support.activations import (
    SHAPES,
    Activation,
    activations,
    assert_drawn,
    assert_every_value,
    assert_float_function,
    common_refusals,
    floats_of_all_sizes,
)
from tests.support.cases import GROUPS, SIMT, Way, changed, only_launch, quantization
from tests.support.factories import drawn, exact, refused
from tests.support.floats import Doubles

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
    (plain,) = ops.lower(Activation(op="HARD_SWISH", dtype="float32").node(), SIMT.target)
    assert only_launch(plain).defines == {"IS_HARD_SWISH": 1}


CASES = [
    Activation(op="HARD_SWISH", dtype=dtype, scales=scales, zeros=zeros)
    for dtype, zeros in (("uint8", (0, 255)), ("uint8", (131, 3)), ("int8", (-128, 5)))
    for scales in ((0.1, 0.07), (0.02, 0.02), (1.0, 0.3), (0.004, 1.0), (0.0001, 7.0), (30.0, 1.0))
]

test_every_value = exact(CASES, GROUPS, assert_every_value)


def sizes(values: Doubles) -> Doubles:
    return np.abs(values * np.clip(values + 3, 0, 6) / 6)


@pytest.mark.parametrize("way", GROUPS, ids=str)
def test_floats(way: Way, device: DeviceInfo) -> None:
    # Between -3 and -2 the ramp is a difference: its rounding is that of the 3.
    values = floats_of_all_sizes()
    case = Activation(op="HARD_SWISH", dtype="float32", shape=values.shape)
    assert_float_function(case, device, way, lambda v: sizes(v) + np.abs(v) / 2, inputs=[[values]])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_of_floats(shape: tuple[int, ...], device: DeviceInfo) -> None:
    case = Activation(op="HARD_SWISH", dtype="float32", shape=shape)
    assert_float_function(case, device, SIMT, sizes)


test_drawn_hard_swish = drawn(activations("HARD_SWISH", ["uint8", "int8"]), GROUPS, assert_drawn)


NODES = {"HARD_SWISH": NODE}
BUILT = [Activation(op="HARD_SWISH", dtype="float32").node()]

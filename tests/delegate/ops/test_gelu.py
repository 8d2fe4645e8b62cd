# SPDX-License-Identifier: Apache-2.0
"""GELU: what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
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
from tests.support.cases import GROUPS, SEEDS, SIMT, Way, only_launch, retyped
from tests.support.compare import RUNTIME
from tests.support.deal import any_driver
from tests.support.factories import refused
from tests.support.floats import Doubles

NODE = Activation(op="GELU", options={"approximate": False}).node()
REFUSALS: dict[str, tuple[Node, str]] = {
    **common_refusals(NODE),
    "int32": (retyped(NODE, "int32"), "int32: only float32, uint8, int8, int16"),
}
APPROXIMATE = pytest.mark.parametrize("approximate", [False, True], ids=["exact", "tanh"])

test_refusal = refused(REFUSALS)


@pytest.mark.parametrize(("approximate", "macro"), [(False, "IS_GELU"), (True, "IS_GELU_TANH")])
def test_launch(approximate: bool, macro: str) -> None:
    case = Activation(op="GELU", dtype="float32", options={"approximate": approximate})
    (plain,) = ops.lower(case.node(), SIMT.target)
    assert only_launch(plain).defines == {macro: 1}


CASES = [
    *(
        Activation(op="GELU", dtype=dtype, scales=scales, zeros=zeros)
        for dtype, zeros in (("uint8", (131, 3)), ("int8", (-128, 127)), ("int8", (0, -100)))
        for scales in ((0.1, 0.07), (0.02, 0.02), (1.0, 0.3))
    ),
    *(
        Activation(op="GELU", dtype="int16", scales=scales)
        for scales in ((0.0002, 0.0001), (0.001, 0.001), (0.00005, 0.0003))
    ),
]


@APPROXIMATE
@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_value(case: Activation, way: Way, approximate: bool, device: DeviceInfo) -> None:
    if case.dtype == "int16" and RUNTIME.name == "tflite-runtime":
        pytest.skip("tflite-runtime has no int16")
    assert_every_value(replace(case, options={"approximate": approximate}), device, way)


def sizes(values: Doubles) -> Doubles:
    # Of two terms: half of the value, and that times erf or tanh.
    erf = np.array([math.erf(value / math.sqrt(2)) for value in values.flat])
    return np.abs(values) / 2 * (1 + np.abs(erf.reshape(values.shape)))


@APPROXIMATE
@pytest.mark.parametrize("way", GROUPS, ids=str)
def test_floats(way: Way, approximate: bool, device: DeviceInfo) -> None:
    values = floats_of_all_sizes()
    options = {"approximate": approximate}
    case = Activation(op="GELU", dtype="float32", shape=values.shape, options=options)
    assert_float_function(case, device, way, sizes, terms=2, inputs=[[values]])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_of_floats(shape: tuple[int, ...], device: DeviceInfo) -> None:
    case = Activation(op="GELU", dtype="float32", shape=shape)
    assert_float_function(case, device, SIMT, sizes, terms=2)


@any_driver
@given(
    case=activations("GELU", ["uint8", "int8", "int16"]),
    approximate=st.booleans(),
    way=st.sampled_from(GROUPS),
    seed=SEEDS,
)
def test_drawn_gelu(
    device: DeviceInfo, case: Activation, approximate: bool, way: Way, seed: int
) -> None:
    if case.dtype == "int16" and RUNTIME.name == "tflite-runtime":
        reject()  # which prepares it and then fails
    assert_drawn(replace(case, options={"approximate": approximate}), device, way, seed)


NODES = {"GELU": NODE}
BUILT = [
    Activation(op="GELU", dtype="float32", options={"approximate": approximate}).node()
    for approximate in (False, True)
]

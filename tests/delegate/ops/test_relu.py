# SPDX-License-Identifier: Apache-2.0
"""RELU and its kin: their launches, what they refuse, and their numbers against TFLite's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.activations import (
    SHAPES,
    Activation,
    activations,
    assert_drawn,
    assert_every_value,
    common_refusals,
    floats_of_all_sizes,
)
from tests.support.cases import (
    GROUPS,
    SEEDS,
    SIMT,
    Way,
    assert_exact_way,
    changed,
    forced,
    only_launch,
    quantization,
    retyped,
)
from tests.support.compare import assert_within
from tests.support.deal import any_driver
from tests.support.factories import exact, refused

NAMES = ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")


def test_launches() -> None:
    found = ops.lower(Activation(op="RELU").node(), SIMT.target)
    assert [each.name for each in found] == ["vector 4", "plain"]
    (plain,) = ops.lower(Activation(op="RELU", dtype="float32", shape=(4097,)).node(), SIMT.target)
    launch = only_launch(plain)
    assert (launch.file, launch.kernel, launch.tiles) == ("activation", "activation_float", 65)
    assert launch.defines == {"IS_RELU": 1}


NODE = Activation(op="RELU").node()
REFUSALS: dict[str, tuple[Node, str]] = {
    **common_refusals(NODE),
    "int32": (retyped(NODE, "int32"), "int32: only float32, uint8, int8, int16"),
    "relu_0_to_1_of_int16": (
        Activation(op="RELU_0_TO_1", dtype="int16").node(),
        "int16: only float32, uint8, int8",
    ),
    "scale_ratio": (
        changed(NODE, -1, quantization=quantization(1e-12)),
        "a scale ratio of 2^37: more than 2^30",
    ),
    "bound": (
        changed(
            changed(Activation(op="RELU6").node(), -1, quantization=quantization(1e-10)),
            0,
            quantization=quantization(1e-9),
        ),
        "bound 6.0 at scale 1.000000013351432e-10: beyond 32 bits",
    ),
}

test_refusal = refused(REFUSALS)

CASES = [
    *(
        Activation(op=name, dtype=dtype, scales=scales, zeros=zeros)
        for name in NAMES
        for dtype, zeros in (("uint8", (128, 0)), ("int8", (-128, 5)))
        for scales in ((0.1, 0.07), (0.01, 0.5))
    ),
    *(
        Activation(op=name, dtype="int16", scales=scales)
        for name in NAMES[:2]
        for scales in ((0.001, 0.0007), (0.0005, 0.0005))
    ),
]

test_every_value = exact(CASES, GROUPS, assert_every_value)


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, ...], way: Way, device: DeviceInfo) -> None:
    assert_exact_way(Activation(op="RELU", shape=shape).model(), device, way)


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_floats(name: str, way: Way, device: DeviceInfo) -> None:
    values = floats_of_all_sizes()
    if name == "RELU6":  # of which tflite-runtime makes 0
        values = values[~np.isnan(values)]
    case = Activation(op=name, dtype="float32", shape=values.shape)
    with forced(way):
        assert_within(case.model(), device, lambda given: [np.zeros(1)], inputs=[[values]])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_of_floats(shape: tuple[int, ...], device: DeviceInfo) -> None:
    assert_exact_way(Activation(op="RELU6", dtype="float32", shape=shape).model(), device)


@any_driver
@given(data=st.data(), name=st.sampled_from(NAMES), way=st.sampled_from(GROUPS), seed=SEEDS)
def test_drawn_relu(
    device: DeviceInfo, data: st.DataObject, name: str, way: Way, seed: int
) -> None:
    types = ["uint8", "int8"] + ["int16"] * (name in NAMES[:2])
    assert_drawn(data.draw(activations(name, types)), device, way, seed)


NODES = {name: Activation(op=name).node() for name in NAMES}
BUILT = [Activation(op="RELU", dtype="float32").node()]

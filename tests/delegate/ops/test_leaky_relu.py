# SPDX-License-Identifier: Apache-2.0
"""LEAKY_RELU: what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.activations import (
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
    only_launch,
    quantization,
    retyped,
)
from tests.support.deal import any_driver
from tests.support.factories import exact, refused

LEAKY = Activation(op="LEAKY_RELU", options={"alpha": 0.2})
NODE = LEAKY.node()
REFUSALS: dict[str, tuple[Node, str]] = {
    **common_refusals(NODE),
    "int32": (retyped(NODE, "int32"), "int32: only float32, uint8, int8, int16"),
    "alpha_nan": (
        changed(NODE, options={"alpha": math.nan}),
        "alpha is nan: a finite number is needed",
    ),
    "text_as_alpha": (
        changed(NODE, options={"alpha": "1"}),
        "alpha is '1': a finite number is needed",
    ),
    "scale_ratio": (
        changed(NODE, -1, quantization=quantization(1e-12)),
        "a scale ratio of 2^37: more than 2^30",
    ),
    "alpha_ratio": (
        changed(NODE, options={"alpha": 1e12}),
        "a scale ratio of 2^41: more than 2^30",
    ),
}

test_refusal = refused(REFUSALS)


def test_launch() -> None:
    (plain,) = ops.lower(replace(LEAKY, dtype="float32").node(), SIMT.target)
    assert only_launch(plain).defines == {"IS_LEAKY_RELU": 1}


CASES = [
    Activation(
        op="LEAKY_RELU",
        dtype=dtype,
        scales=scales,
        zeros=zeros,
        options={"alpha": alpha},
        version=2,
    )
    for dtype, zeros in (("uint8", (255, 128)), ("int8", (3, -128)), ("int16", (0, 0)))
    for scales in ((0.1, 0.07), (0.5, 0.5))
    for alpha in (0.2, 0.01, -0.5, -1.7, 3.0)
]

test_every_value = exact(CASES, GROUPS, assert_every_value)


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("alpha", [0.2, 0.0, -1.5])
def test_floats(alpha: float, way: Way, device: DeviceInfo) -> None:
    values = floats_of_all_sizes()
    values = values[(abs(values) > 1e-30) | (values == 0)]  # a device may take less for zero
    case = Activation(
        op="LEAKY_RELU", dtype="float32", shape=values.shape, options={"alpha": alpha}
    )
    assert_exact_way(case.model(), device, way, inputs=[[values]])


@any_driver
@given(
    case=activations("LEAKY_RELU", ["uint8", "int8", "int16"]),
    alpha=st.floats(-2, 2, width=32),
    way=st.sampled_from(GROUPS),
    seed=SEEDS,
)
def test_drawn_leaky_relu(
    device: DeviceInfo, case: Activation, alpha: float, way: Way, seed: int
) -> None:
    assert_drawn(replace(case, options={"alpha": alpha}, version=2), device, way, seed)


NODES = {"LEAKY_RELU": NODE}
BUILT = [replace(LEAKY, dtype="float32").node()]

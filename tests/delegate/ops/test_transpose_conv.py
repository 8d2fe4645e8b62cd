# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV: what it lowers to, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.ops._launches.wide_sums import TWICE, WIDE
from delegate.target import Rules
from tests.support.cases import (
    DRAWN_STRATEGIES,
    FUSED,
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    Strategy,
    assert_constants,
    assert_exact_strategy,
    changed,
    only_launch,
    quantization,
)
from tests.support.factories import assert_seeded_or_refused, drawn, refused
from tests.support.floats import assert_float_or_refused, assert_float_strategies
from tests.support.nodes import CHANNELS, SIZES
from tests.support.refusals import activated, sparse, unquantised
from tests.support.transpose_conv import Transposed, transposed

# What lower() returns.


@pytest.mark.parametrize(
    ("strategy", "case", "names"),
    [
        (SIMT, Transposed(out_c=3), ["phases float4 4x8", "plain"]),
        (SIMT, Transposed(size=(4, 3, 3)), ["phases float4 4x8", "vector 4x1", "plain"]),
        (SIMT, Transposed(dtype="float32"), ["vector 4x4", "plain"]),
        (LANES_8, Transposed(out_c=7), ["phases tiled 8x2", "vector 4x4", "plain"]),
        (
            LANES_16,
            Transposed(dtype="int8", out_c=17),
            ["phases tiled 16x2", "vector 16x4", "plain"],
        ),
        (LANES_16, Transposed(dtype="int16", out_c=17), ["phases tiled 16x2", "plain"]),
        (LANES_16, Transposed(dtype="float32", out_c=33), ["tiled 8x32", "plain"]),
        (LANES_8, Transposed(dtype="float32", out_c=3), ["tiled 8x4", "plain"]),
        (LANES_8, Transposed(dtype="float32", size=(4, 1, 3)), ["tiled 4x8", "plain"]),
    ],
    ids=str,
)
def test_phases_then_vectors_then_plain(
    strategy: Strategy, case: Transposed, names: list[str]
) -> None:
    found = ops.lower(case.node(), strategy.target)
    assert [alternative.name for alternative in found] == names
    for alternative in found:
        if alternative.name.startswith("phases"):  # test_phases.py
            continue
        launch = only_launch(alternative)
        assert (launch.params["in_h"], launch.params["out_h"]) == (4, 8)
        assert_constants(launch)


@pytest.mark.parametrize(
    ("has_bias", "is_int32", "rounding"),
    [(True, True, WIDE), (False, True, TWICE), (False, False, WIDE)],
)
def test_rounding_of_int16(has_bias: bool, is_int32: bool, rounding: str) -> None:
    target = replace(SIMT.target, rules=Rules(int16_sums_of_int32=is_int32))
    node = Transposed(dtype="int16", has_bias=has_bias).node()
    for alternative in ops.lower(node, target):
        assert alternative.launches[0].defines["ROUNDING"] == rounding


# What it refuses.

NODE = Transposed().node()
INT8 = Transposed(dtype="int8").node()
INT16 = Transposed(dtype="int16").node()
FLOAT = Transposed(dtype="float32").node()
SHAPE = "output shape {}: int32 of (4,) is needed"
NHWC = "shapes {}: the output must be 1x8x10x8, the input rank 4 (NHWC)"
REFUSALS: dict[str, tuple[Node, str]] = {
    "computed_shape": (changed(NODE, 0, data=None), "output shapes are not constant"),
    "shape_of_3": (changed(NODE, 0, shape=(3,)), SHAPE.format("int32 of (3,)")),
    "int64_shape": (changed(NODE, 0, dtype="int64"), SHAPE.format("int64 of (4,)")),
    "output": (changed(NODE, -1, shape=(1, 8, 9, 8)), NHWC.format("1x4x5x3 -> 1x8x9x8")),
    "rank_3_input": (changed(NODE, 2, shape=(4, 5, 3)), NHWC.format("4x5x3 -> 1x8x10x8")),
    "input_size": (changed(NODE, 2, shape=(1, 4, 6, 3)), "output 4x6: the window gives 4x5"),
    "batch": (changed(NODE, 2, shape=(2, 4, 5, 3)), "batch 1 in, 2 out: they must be equal"),
    "input_channels": (
        changed(NODE, 2, shape=(1, 4, 5, 6)),
        "6 input and 8 output channels: the weights have 3 and 8",
    ),
    "output_channels": (
        changed(NODE, 1, shape=(7, 3, 3, 3)),
        "3 input and 8 output channels: the weights have 3 and 7",
    ),
    "rank_2_weights": (changed(NODE, 1, shape=(8, 27)), "weights 8x27: rank 4 (OHWI) is needed"),
    "empty_weights": (
        changed(NODE, 1, shape=(8, 0, 3, 3)),
        "weights 8x0x3x3: rank 4 (OHWI) is needed",
    ),
    "computed_weights": (changed(NODE, 1, data=None), "weights are not constant"),
    "sparse_weights": sparse(NODE, 1, data=None),
    "zero_stride": (
        changed(NODE, options={"stride_w": 0}),
        "kernel 3x3, stride 2x0, dilation 1x1: each must be at least 1",
    ),
    "fused_tanh": activated(NODE, "TANH"),
    "signedness": (
        changed(NODE, -1, dtype="int8"),
        "uint8 in, int8 out: only uint8 or int8 in both are implemented",
    ),
    "int32": (
        changed(changed(NODE, 2, dtype="int32"), -1, dtype="int32"),
        "int32 in, int32 out: only uint8 or int8 in both are implemented",
    ),
    "int16_weights": (
        changed(INT16, 1, dtype="int16"),
        "int16 weights with int16 activations: only int8",
    ),
    "int16_zero_point": (
        changed(INT16, 2, quantization=quantization(0.5, 2)),
        "int16 with zero point 2: it must be 0",
    ),
    "without_quantisation": unquantised(NODE, 2),
    "7_scales_for_8_channels": (
        changed(INT8, 1, quantization=quantization([0.5] * 7)),
        "weights have 7 scales on axis 0: 8 on axis 0 are needed",
    ),
    "bias_of_7": (changed(NODE, 3, shape=(7,)), "bias int32 of (7,): int32 of (8,) is needed"),
    "int64_bias": (changed(INT8, 3, dtype="int64"), "bias int64 of (8,): int32 of (8,) is needed"),
    "computed_bias": (changed(FLOAT, 3, data=None), "the bias is not a constant"),
    "two_inputs": (replace(NODE, inputs=NODE.inputs[:2]), "2 inputs: 3 to 4 expected"),
}

test_refusal = refused(REFUSALS)


# Its numbers. As a convolution: test_phases.py.

VECTOR, VECTOR_8, VECTOR_16 = (
    replace(strategy, alternative="vector") for strategy in (SIMT, LANES_8, LANES_16)
)
GEOMETRY: list[dict[str, Any]] = [
    {},
    {"size": (1, 1, 1), "kernel": (1, 1), "stride": (1, 1), "out_c": 1},
    {"size": (5, 3, 4), "kernel": (2, 2), "padding": "VALID", "out_c": 17},
    {"size": (3, 7, 9), "kernel": (4, 3), "stride": (3, 2), "less": (1, 1), "batch": 2},
    {"size": (3, 7, 9), "kernel": (2, 1), "stride": (3, 5), "padding": "VALID", "less": (2, 4)},
    {"size": (2, 13, 3), "kernel": (5, 7), "stride": (1, 1), "out_c": 5},
    {"size": (4, 9, 33), "kernel": (3, 3), "out_c": 33, "has_bias": False},
]
CASES = [
    *(Transposed(dtype=dtype, **case) for case in GEOMETRY for dtype in ("uint8", "int8", "int16")),
    *(Transposed(dtype=dtype, per_channel=True, out_c=19) for dtype in ("int8", "int16")),
    *(Transposed(fused=fused, dtype=dtype) for fused in FUSED[1:] for dtype in ("uint8", "int16")),
    *(Transposed(zeros=(i, w, o)) for i, w, o in [(0, 255, 0), (255, 0, 255), (255, 255, 0)]),
    *(Transposed(zeros=(i, 0, o), dtype="int8") for i, o in [(-128, 127), (127, -128)]),
    *(
        Transposed(multiplier=multiplier, dtype=dtype)
        for multiplier in (1.7, 2.0**-20, 1e-12)
        for dtype in ("uint8", "int8", "int16")
    ),
    Transposed(dtype="int16", size=(2, 2, 601), multiplier=2.0**-14),
]


@pytest.mark.parametrize(
    ("case", "strategy"),
    [
        pytest.param(case, strategy, id=f"{case}-{strategy}")
        for case in CASES
        for strategy in (
            [PLAIN] if case.dtype == "int16" or case.out_c < 4 else [PLAIN, VECTOR, VECTOR_8]
        )
    ],
)
def test_transpose_conv(case: Transposed, strategy: Strategy, device: DeviceInfo) -> None:
    assert_exact_strategy(case.model(), device, strategy)


@pytest.mark.parametrize("strategy", [SIMT, LANES_4, LANES_16], ids=str)
@pytest.mark.parametrize(
    "case",
    [
        *(Transposed(dtype="float32", **case) for case in GEOMETRY),
        *(Transposed(dtype="float32", fused=fused) for fused in FUSED[1:]),
    ],
    ids=str,
)
def test_floats(case: Transposed, strategy: Strategy, device: DeviceInfo) -> None:
    assert_float_strategies(case.node(), device, strategy, case.bounds)


def test_bound_of_a_float_is_that_of_its_terms() -> None:
    case = Transposed(size=(1, 1, 1), kernel=(2, 2), out_c=1, padding="VALID", dtype="float32")
    weights = case.node().inputs[1]
    assert weights is not None
    assert weights.data is not None
    (bound,) = case.bounds([np.full((1, 1, 1, 1), 3, np.float32)])
    assert (bound[0, :2, :2, 0] > 1e-7 * np.abs(weights.data[0, :, :, 0])).all()


test_drawn = drawn(transposed(("uint8", "int8", "int16")), (PLAIN,), assert_seeded_or_refused)
test_drawn_vectors = drawn(
    transposed(("uint8", "int8"), least_c=4),
    (VECTOR, VECTOR_8, VECTOR_16),
    assert_seeded_or_refused,
)


@given(case=transposed(("float32",)), strategy=DRAWN_STRATEGIES)
def test_drawn_floats(device: DeviceInfo, case: Transposed, strategy: Strategy) -> None:
    assert_float_or_refused(case.node(), device, strategy, case.bounds)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [Transposed(size=(size, size, channels), out_c=channels, dtype=dtype).node()]


NODES = {"TRANSPOSE_CONV_float": FLOAT, "TRANSPOSE_CONV_int16": Transposed(dtype="int16").node()}
BUILT = [
    Transposed(size=(size, size, channels), out_c=channels, dtype=dtype, has_bias=has_bias).node()
    for size in SIZES
    for channels in CHANNELS
    for dtype, has_bias in (("float32", True), ("int16", False), ("int16", True))
]

# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D on floats: what it lowers to, what it refuses, and its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, OpenCLDelegate, ops
from tests.support.cases import (
    DRAWN_STRATEGIES,
    FEW_REGISTERS,
    FUSED,
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    REGISTERS,
    SIMT,
    SOME_REGISTERS,
    STRATEGIES,
    Strategy,
    assert_constants,
    changed,
    only_launch,
)
from tests.support.compare import assert_close, interpreter, invoke, refusals
from tests.support.convolution import (
    Convolution,
    float_convolution,
    float_convolutions,
    of_geometry,
)
from tests.support.factories import refused
from tests.support.floats import assert_float_or_refused, assert_float_strategies, exact_doubles
from tests.support.model import chain_model
from tests.support.nodes import CHANNELS, SIZES
from tests.support.refusals import activated


def depthwise(size: tuple[int, int, int] = (7, 5, 8), **fields: Any) -> Convolution:
    """Return a depthwise convolution by its parameters."""
    return float_convolution(**{"size": size, "depth_multiplier": 1} | fields)


# What lower() returns.

AS_CONV = depthwise(size=(7, 8, 1), depth_multiplier=8)  # of one input channel: a convolution


@pytest.mark.parametrize(
    ("strategy", "case", "names"),
    [
        (SIMT, depthwise(size=(7, 5, 3)), ["plain"]),
        (SIMT, depthwise(), ["3x3 4x4", "vector 4x4", "plain"]),
        (SOME_REGISTERS, depthwise(), ["3x3 4x4", "vector 4x4", "plain"]),
        (SOME_REGISTERS, depthwise((9, 9, 8), stride=(2, 2)), ["3x3 2x4", "vector 4x4", "plain"]),
        (FEW_REGISTERS, depthwise(), ["3x3 2x4", "vector 4x4", "plain"]),
        (LANES_4, depthwise(), ["columns 3x4", "plain"]),
        (LANES_16, depthwise(), ["columns 5x8", "plain"]),
        (LANES_16, depthwise(size=(9, 2, 33)), ["columns 2x16", "plain"]),
        (LANES_16, depthwise(size=(9, 14, 33)), ["columns 7x16", "plain"]),
        (LANES_16, depthwise(size=(9, 32, 33)), ["columns 4x16", "plain"]),
        (LANES_8, depthwise(size=(9, 32, 33)), ["columns 2x8", "columns 4x8", "plain"]),
        (LANES_8, depthwise(size=(9, 32, 32)), ["columns 4x8", "plain"]),  # rows of 4096 bytes
        (LANES_8, depthwise(size=(9, 2, 33)), ["columns 2x8", "plain"]),
        (LANES_16, depthwise((9, 32, 33), stride=(2, 2)), ["3x3 16x16", "plain"]),
        (LANES_8, depthwise(stride=(3, 2)), ["3x3 2x8", "plain"]),
        (LANES_8, depthwise(stride=(1, 3)), ["vector 2x8", "plain"]),
        (LANES_8, depthwise(dilation=(2, 1)), ["3x3 4x8", "plain"]),
        (LANES_8, depthwise(dilation=(1, 2)), ["vector 4x8", "plain"]),
        (LANES_8, depthwise(kernel=(3, 5)), ["vector 4x8", "plain"]),
        (LANES_8, depthwise(depth_multiplier=2), ["plain"]),
        (LANES_8, AS_CONV, ["tiled 8x8", "tiled 8x4", "plain"]),
    ],
    ids=str,
)
def test_alternatives(strategy: Strategy, case: Convolution, names: list[str]) -> None:
    found = ops.lower(case.node(), strategy.target)
    assert [alternative.name for alternative in found] == names


def test_plain_launch() -> None:
    node = depthwise(size=(7, 5, 3), stride=(2, 1), depth_multiplier=2, fused="RELU_N1_TO_1").node()
    launch = only_launch(ops.lower(node, SIMT.target)[-1])
    assert (launch.file, launch.kernel) == ("depthwise_conv_2d_float", "depthwise_conv_2d_float")
    assert (launch.tiles, launch.group_items, launch.defines) == (2, 64, {})  # 4 x 5 x 6 elements
    assert {n: v for n, v in launch.params.items() if isinstance(v, int)} == {
        "in_h": 7, "in_w": 5, "out_h": 4, "out_w": 5, "kernel_h": 3, "kernel_w": 3,
        "stride_h": 2, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "pad_top": 1,
        "pad_left": 1, "in_c": 3, "out_c": 6, "output_min": 0xBF800000 - 2**32,
        "output_max": 0x3F800000, "depth_multiplier": 2, "elements": 120, "tile_items": 64,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("size", "batch", "bands"),
    [
        # Two cores: rows of all channels, and channels where there are few rows.
        ((112, 112, 32), 1, {"bands": 16, "band_rows": 7, "parts": 1, "part_blocks": 4}),
        ((30, 28, 192), 1, {"bands": 4, "band_rows": 8, "parts": 2, "part_blocks": 12}),
        ((7, 7, 960), 1, {"bands": 1, "band_rows": 7, "parts": 8, "part_blocks": 15}),
        ((7, 7, 960), 8, {"bands": 1, "band_rows": 7, "parts": 1, "part_blocks": 120}),
        ((9, 5, 24), 1, {"bands": 1, "band_rows": 9, "parts": 2, "part_blocks": 2}),
        ((28, 28, 8), 1, {"bands": 2, "band_rows": 14, "parts": 1, "part_blocks": 1}),
    ],
    ids=str,
)
def test_bands(size: tuple[int, int, int], batch: int, bands: dict[str, int]) -> None:
    target = replace(LANES_8.target, compute_units=2)
    launch = only_launch(ops.lower(depthwise(size=size, batch=batch).node(), target)[0])
    assert {name: launch.params[name] for name in bands} == bands
    assert launch.tiles == batch * bands["bands"] * bands["parts"]


@pytest.mark.parametrize("strategy", [*STRATEGIES, *REGISTERS], ids=str)
def test_constants_are_as_long_as_they_say(strategy: Strategy) -> None:
    for case in (depthwise(), depthwise(size=(7, 5, 1), depth_multiplier=5)):
        for alternative in ops.lower(case.node(), strategy.target):
            assert_constants(only_launch(alternative))


# What it refuses.

NODE = depthwise().node()
REFUSALS = {
    "hybrid": (changed(NODE, 1, dtype="uint8"), "hybrid: uint8 weights with float32 activations"),
    "infinite_weight": (
        changed(NODE, 1, data=np.full((1, 3, 3, 8), np.inf, np.float32)),
        "a weight is not finite: times a padding zero it is not zero",
    ),
    "computed_weights": (changed(NODE, 1, data=None), "weights are not constant"),
    "computed_bias": (changed(NODE, 2, data=None), "the bias is not a constant"),
    "to_uint8": (
        changed(NODE, -1, dtype="uint8"),
        "float32 in, uint8 out: only uint8 or int8 in both are implemented",
    ),
    "fused_sign": activated(NODE, "SIGN_BIT"),
    "2_rows_of_weights": (changed(NODE, 1, shape=(2, 3, 3, 4)), "weights 2x3x3x4: 1HWO is needed"),
    "no_multiple": (
        changed(NODE, 0, shape=(1, 7, 5, 3)),
        "3 input, 8 weight and 8 output channels: "
        "the last two must be equal and a multiple of the first",
    ),
}

test_refusal = refused(REFUSALS)


# Its numbers.

CASES = [
    *of_geometry(
        [
            ((7, 5, 8), (3, 3), (1, 1), (1, 1), "SAME"),
            ((7, 5, 8), (3, 3), (1, 1), (1, 1), "VALID"),
            ((7, 8, 8), (3, 3), (2, 2), (1, 1), "SAME"),
            ((7, 9, 8), (3, 3), (2, 2), (1, 1), "SAME"),
            ((7, 10, 8), (3, 3), (1, 2), (1, 1), "VALID"),
            ((9, 37, 19), (3, 3), (1, 1), (1, 1), "SAME"),
            ((9, 37, 17), (3, 3), (2, 2), (1, 1), "SAME"),
            ((9, 5, 33), (3, 3), (1, 1), (3, 1), "SAME"),
            ((1, 1, 16), (3, 3), (1, 1), (1, 1), "SAME"),
            ((29, 37, 19), (3, 3), (1, 1), (1, 1), "SAME"),
            ((30, 23, 19), (3, 3), (1, 1), (1, 1), "VALID"),
            ((7, 7, 333), (3, 3), (1, 1), (1, 1), "SAME"),
            ((2, 2, 16), (3, 3), (2, 2), (1, 1), "SAME"),
            ((5, 2, 9), (3, 3), (1, 1), (1, 1), "SAME"),
            ((13, 11, 8), (3, 3), (1, 1), (2, 3), "SAME"),
            ((11, 13, 5), (5, 2), (1, 3), (1, 1), "SAME"),
            ((3, 2, 5), (7, 7), (1, 1), (1, 1), "SAME"),
            ((5, 7, 16), (5, 7), (1, 1), (1, 1), "VALID"),
        ],
        depthwise,
    ),
    *(depthwise(size=(3, 9, channels)) for channels in (1, 3, 4, 15, 16, 17)),
    *(depthwise(fused=fused, batch=2) for fused in FUSED[1:]),
    *(depthwise(size=(5, 7, c), depth_multiplier=m, batch=2) for c, m in ((3, 2), (1, 5), (1, 19))),
]


@pytest.mark.parametrize(
    "strategy", [strategy for strategy in STRATEGIES if strategy is not PLAIN], ids=str
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_numbers(case: Convolution, strategy: Strategy, device: DeviceInfo) -> None:
    assert_float_strategies(case.node(), device, strategy)


@given(
    case=float_convolutions(is_depthwise=True), strategy=DRAWN_STRATEGIES, seed=st.integers(0, 99)
)
def test_drawn(device: DeviceInfo, case: Convolution, strategy: Strategy, seed: int) -> None:
    assert_float_or_refused(case.node(seed), device, strategy)


def test_what_is_out_of_bounds_counts_nothing(device: DeviceInfo) -> None:
    # Not even as infinity times a weight: the border is no part of the sum.
    values = np.full((1, 7, 5, 8), np.inf, np.float32)
    values[:, 2:5, 1:4] = 1
    node = depthwise().node()
    model = chain_model([node])
    delegate = OpenCLDelegate(model, device.index, tune="off")
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    got, expected = invoke(ours, [values])[0], invoke(reference, [values])[0]
    bound = exact_doubles(node, np.ones_like(values))[1]
    assert_close(got[:, 3, 2], expected[:, 3, 2], bound[:, 3, 2], "inside")
    # Where infinities of both signs meet, TFLite's clamp decides what becomes of NaN.
    assert (np.isnan(got) == np.isnan(expected)).all()


NODES = {"DEPTHWISE_CONV_2D_float": NODE}
BUILT = [
    depthwise(size=(size, size, channels), kernel=kernel).node()
    for size in SIZES
    for channels in CHANNELS
    for kernel in ((1, 1), (3, 3))
]

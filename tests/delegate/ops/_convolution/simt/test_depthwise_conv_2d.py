# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D in floats, a window sliding along rows: what is offered, and its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.launch import Launch
from tests.support.cases import (
    FLOAT4,
    FUSED,
    LANES_8,
    NEAREST,
    REGISTERS,
    SEEDS,
    SOME_REGISTERS,
    Strategy,
    assert_constants,
    assert_exact_or_refused,
    assert_exact_strategy,
    only_launch,
)
from tests.support.convolution import Convolution, convolutions

# One core: a run is all of a row. Sixteen: it is four pixels.
LONG = Strategy("long", {**FLOAT4.facts, "compute_units": 1}, "float4")
SHORT = Strategy("short", {**FLOAT4.facts, "compute_units": 16}, "float4")
STRATEGIES = (LONG, SHORT, NEAREST)
# Bytes by their places, and as they are.
PLACED_OR_NOT = (
    *(replace(strategy, alternative="placed") for strategy in REGISTERS),
    replace(SOME_REGISTERS, name="bytes", alternative="float4"),
)


def _case(**fields: Any) -> Convolution:
    return replace(Convolution(size=(9, 14, 8), depth_multiplier=1), **fields)


def _launch(case: Convolution, strategy: Strategy = LONG) -> Launch:
    launch = only_launch(ops.lower(case.node(), strategy.target)[0])
    assert_constants(launch)
    return launch


# What lower() returns.


@pytest.mark.parametrize(
    "fields",
    [
        {"size": (9, 14, 3)},
        {"depth_multiplier": 2},
        {"dilation": (1, 2)},
        {"kernel": (2, 13)},
        {"stride": (1, 4)},
    ],
    ids=str,
)
def test_is_not_offered(fields: dict[str, Any]) -> None:
    names = [a.name for a in ops.lower(_case(**fields).node(), LONG.target)]
    assert names[-1] == "plain"
    assert not any(name.startswith("float4") for name in names)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "float4 3x3 step 1"),
        ({"kernel": (5, 5), "stride": (1, 2)}, "float4 5x5 step 2"),
        ({"kernel": (2, 4), "stride": (3, 4)}, "float4 2x4 step 4"),
        ({"dilation": (3, 1)}, "float4 3x3 step 1"),
    ],
    ids=str,
)
def test_is_offered_first(fields: dict[str, Any], name: str) -> None:
    assert ops.lower(_case(**fields).node(), LONG.target)[0].name == name
    assert not ops.lower(_case(**fields).node(), LANES_8.target)[0].name.startswith("float4")


@pytest.mark.parametrize(
    ("fields", "shapes"),
    [
        ({}, {24: "2x4", 48: "2x4", 96: "3x3 step 1", 256: "3x3 step 1"}),
        ({"kernel": (1, 1)}, {24: "1x1 step 1"}),
        ({"kernel": (1, 3)}, {24: "2x4", 48: "1x3 step 1"}),
        ({"kernel": (2, 2)}, {48: "2x4", 96: "2x2 step 1"}),
        ({"kernel": (12, 1)}, {96: "2x4"}),
        ({"kernel": (5, 5)}, {48: "2x4", 96: "2x4", 256: "5x5 step 1"}),
        ({"dilation": (1, 2)}, {24: "2x4", 96: "2x4", 256: "2x4"}),
        ({"kernel": (2, 13)}, {96: "2x4"}),
        ({"stride": (1, 4)}, {96: "2x4"}),
        ({"kernel": (17, 17)}, {96: ""}),
    ],
    ids=str,
)
def test_registers_decide(fields: dict[str, Any], shapes: dict[int, str]) -> None:
    for count, shape in shapes.items():
        target = replace(LONG.target, registers=count)
        found = [a.name for a in ops.lower(_case(**fields).node(), target)]
        strategies = [f"placed {shape}", f"float4 {shape}"][:: -1 if count == 48 else 1]
        assert found[:2] == strategies if shape else found == ["plain"]
        assert found[-1] == "plain"
        # Where few are known to be kept, the vectors' loops would keep values in memory.
        assert any(each.startswith("vector") for each in found) == (count == 256)


def test_rows_are_cut_until_there_are_enough_runs() -> None:
    small = _launch(_case())  # no run is shorter than 4 pixels but for the division
    assert (small.params["run"], small.params["row_blocks"]) == (5, 3)
    large = _launch(_case(size=(64, 64, 64)))  # 1024 lines
    assert (large.params["run"], large.params["row_blocks"]) == (64, 1)
    assert (large.params["items"], large.tiles) == (1024, 16)
    large = _launch(_case(size=(64, 64, 64)), SHORT)
    assert (large.params["run"], large.params["row_blocks"]) == (16, 4)


# Its numbers.

CASES = [
    *(_case(size=(3, w, 8)) for w in (1, 2, 3, 4, 5, 7, 8, 9, 17)),
    *(_case(size=(5, 6, c)) for c in (4, 5, 6, 7, 9, 12, 61)),
    *(
        _case(kernel=k, stride=s, dilation=d, padding=p, batch=2)
        for k, s, d, p in [
            ((3, 3), (2, 2), (1, 1), "SAME"),
            ((3, 3), (2, 2), (1, 1), "VALID"),
            ((3, 3), (1, 1), (1, 1), "VALID"),
            ((5, 5), (1, 2), (1, 1), "SAME"),
            ((5, 5), (3, 5), (1, 1), "SAME"),
            ((1, 1), (1, 1), (1, 1), "SAME"),
            ((2, 7), (1, 3), (1, 1), "SAME"),
            ((3, 2), (2, 2), (4, 1), "SAME"),
            ((7, 1), (1, 1), (1, 1), "SAME"),
        ]
    ),
    *(_case(zeros=(i, w, o)) for i in (0, 255) for w in (0, 255) for o in (0, 255)),
    *(_case(fused=fused, multiplier=2.0**-11) for fused in FUSED[1:]),
    *(_case(multiplier=m) for m in (1.0, 1.7, 300.0, 2.0**-20, 1e-12)),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_depthwise_conv_2d(case: Convolution, strategy: Strategy, device: DeviceInfo) -> None:
    (name,) = assert_exact_strategy(case.model(), device, strategy)
    assert name.startswith("float4")


@pytest.mark.parametrize("case", CASES[::2], ids=str)
@pytest.mark.parametrize(
    ("per_channel", "strategy"),
    [
        (per_channel, strategy)
        for per_channel in (False, True)
        for strategy in (NEAREST if per_channel else SHORT, *PLACED_OR_NOT[::2])
    ],
    ids=str,
)
def test_int8(case: Convolution, per_channel: bool, strategy: Strategy, device: DeviceInfo) -> None:
    if case.zeros is not None:
        case = replace(case, zeros=(case.zeros[0] - 128, 0, case.zeros[2] - 128))
    case = replace(case, dtype="int8", per_channel=per_channel)
    assert assert_exact_strategy(case.model(), device, strategy)


@pytest.mark.parametrize("strategy", PLACED_OR_NOT, ids=str)
@pytest.mark.parametrize(
    "case",
    [
        *CASES,
        *(
            _case(kernel=k, stride=s, dilation=d, padding=p, batch=2)
            for k, s, d, p in [
                ((3, 3), (1, 1), (2, 3), "SAME"),
                ((3, 3), (2, 1), (1, 2), "VALID"),
                ((2, 2), (4, 3), (1, 1), "VALID"),
                ((4, 9), (1, 1), (1, 1), "SAME"),
            ]
        ),
        _case(size=(18, 17, 4), kernel=(16, 16), zeros=(0, 255, 3)),
    ],
    ids=str,
)
def test_tap_after_tap(case: Convolution, strategy: Strategy, device: DeviceInfo) -> None:
    (name,) = assert_exact_strategy(case.model(), device, strategy)
    assert name.startswith(strategy.alternative)


@given(case=convolutions(is_depthwise=True), strategy=st.sampled_from(STRATEGIES), seed=SEEDS)
def test_drawn(device: DeviceInfo, case: Convolution, strategy: Strategy, seed: int) -> None:
    case = replace(case, depth_multiplier=1, dilation=(case.dilation[0], 1))
    if case.size[2] >= 4 and case.stride[1] <= case.kernel[1] and min(case.out_size()) > 0:
        assert_exact_or_refused(case.model(seed), device, strategy, seed)

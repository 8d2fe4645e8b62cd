# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D by dot products of bytes: its launches, packed weights and numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.launch import Alternative, Constant
from delegate.ops._convolution import variants
from delegate.ops._convolution.nvidia import depthwise_conv_2d
from delegate.ops._convolution.records import Quant8Convolution
from delegate.target import Target
from tests.support.cases import (
    FUSED,
    NATIVE,
    NVIDIA,
    SEEDS,
    SIMT,
    Strategy,
    assert_exact_or_refused,
    assert_exact_strategy,
    only_launch,
)
from tests.support.convolution import Convolution, convolutions


def depthwise(height: int, width: int, channels: int) -> Convolution:
    """A 3x3 convolution of each channel."""
    return Convolution(size=(height, width, channels), depth_multiplier=1)


def names(node: Node) -> list[str]:
    """Return the names of the alternatives with dot products."""
    found = [alternative.name for alternative in ops.lower(node, NATIVE.target)]
    return [name for name in found if name.startswith("dp4a")]


# What lower() returns.


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        # Mobilenet V1's: few pixels an item for one picture, tall columns for many.
        (depthwise(112, 112, 32), ["dp4a 4x1", "dp4a 4x14"]),
        (replace(depthwise(112, 112, 64), stride=(2, 2)), ["dp4a 2x1", "dp4a 4x14"]),
        (depthwise(14, 14, 512), ["dp4a 1x1", "dp4a 4x14"]),
        (depthwise(7, 7, 1024), ["dp4a 1x1", "dp4a 4x7"]),
        (depthwise(20, 3, 4), ["dp4a 1x1", "dp4a 2x10"]),
        (depthwise(1, 1, 4), ["dp4a 1x1"]),
        (replace(depthwise(14, 14, 4), dilation=(2, 1)), ["dp4a 1x1", "dp4a 4x1"]),
        (replace(depthwise(14, 14, 4), kernel=(5, 5)), ["dp4a 1x1", "dp4a 1x14"]),
        (replace(depthwise(14, 14, 4), dilation=(1, 2)), []),
        (replace(depthwise(14, 14, 4), kernel=(7, 8)), []),
        (replace(depthwise(14, 14, 2), depth_multiplier=2), []),
        (depthwise(14, 14, 6), []),
    ],
    ids=str,
)
def test_names_and_order(case: Convolution, expected: list[str]) -> None:
    assert names(case.node()) == expected


def test_without_proof_there_is_none() -> None:
    found = ops.lower(depthwise(4, 4, 4).node(), SIMT.target)
    assert not any(alternative.name.startswith("dp4a") for alternative in found)


def test_launch() -> None:
    case = replace(depthwise(9, 7, 8), stride=(1, 2), dtype="int8")
    launch = only_launch(ops.lower(case.node(), NATIVE.target)[1])  # 4x9 pixels
    assert launch.kernel == "depthwise_conv_2d_dp4a_quant8"
    assert (launch.tiles, launch.group_items) == (1, 256)
    assert launch.defines == {
        "ELEM": "char", "IS_SIGNED": 1, "TAPS_H": 3, "TAPS_W": 3, "STEP_H": 1, "STEP_W": 2,
        "TILE_W": 4, "SINGLE_ROUNDING": 0, "SATURATES": 1, "FROM_ZERO": 0,
    }  # fmt: skip
    fields = ("items", "tile_items", "tile_h", "channel_blocks", "row_blocks", "column_blocks")
    assert [launch.params[name] for name in fields] == [2, 256, 9, 2, 1, 1]
    # One picture's items are spread over more groups.
    first = only_launch(ops.lower(case.node(), NATIVE.target)[0])
    assert [first.params[name] for name in fields[:3]] == [72, 64, 1]
    weights = case.node().inputs[1]
    assert weights is not None
    assert weights.data is not None
    packed = launch.params["weights"]
    assert isinstance(packed, Constant)
    assert packed.pack().nbytes == packed.size_bytes
    rows = weights.data[0].astype(np.int16)
    # Rows 0 and 1 side by side, then row 2 beside zeros.
    assert (packed.pack()[0] == np.stack([rows[0], rows[1]], 2)).all()
    assert (packed.pack()[1] == np.stack([rows[2], 0 * rows[2]], 2)).all()


# Its numbers.

CASES = [
    *(depthwise(h, w, 4) for h, w in [(1, 1), (1, 5), (3, 3), (4, 4), (5, 8), (13, 11)]),
    *(depthwise(5, 6, channels) for channels in (8, 12, 60, 64)),
    *(
        replace(depthwise(9, 8, 4), kernel=kernel, stride=stride, padding=padding)
        for kernel, stride, padding in [
            ((1, 1), (1, 1), "SAME"),
            ((2, 3), (1, 1), "VALID"),
            ((4, 2), (1, 3), "SAME"),
            ((5, 5), (1, 1), "SAME"),
            ((3, 3), (2, 2), "SAME"),
            ((3, 3), (2, 1), "VALID"),
            ((2, 2), (3, 3), "VALID"),
        ]
    ),
    replace(depthwise(9, 8, 4), dilation=(2, 1)),
    replace(depthwise(5, 4, 4), batch=3),
    replace(depthwise(5, 4, 8), dtype="int8"),
    replace(depthwise(5, 4, 8), dtype="int8", per_channel=True),
    *(replace(depthwise(5, 4, 8), fused=fused, multiplier=2.0**-11) for fused in FUSED[1:]),
    *(replace(depthwise(5, 4, 8), zeros=zeros) for zeros in [(0, 0, 0), (255, 255, 255), (0, 255, 9)]),  # noqa: E501
    *(replace(depthwise(5, 4, 8), multiplier=multiplier) for multiplier in (1.7, 300.0, 1e-12)),
]  # fmt: skip


def _take(tile_w: int, tile_h: int, patch: pytest.MonkeyPatch) -> None:
    def only(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
        area = conv.area
        height = min(tile_h, area.out_h) if area.dilation_h == 1 else 1
        launch = depthwise_conv_2d._launch(conv, min(tile_w, area.out_w), height, target)
        return (Alternative("dp4a", (launch,)),)

    patch.setattr(variants, "DEPTHWISE_CONV_2D_VARIANTS", (only,))


def _skip_long_builds(strategy: Strategy, device: DeviceInfo) -> None:
    if strategy.is_emulated and "Portable Computing Language" in device.platform:
        pytest.skip("its compiler takes seconds for each of many kernels: some are enough there")


@pytest.mark.parametrize("strategy", NVIDIA, ids=str)
@pytest.mark.parametrize(("tile_w", "tile_h"), [(4, 3), (1, 1)])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cases(
    case: Convolution, tile_w: int, tile_h: int, strategy: Strategy, device: DeviceInfo
) -> None:
    _skip_long_builds(strategy, device)
    with pytest.MonkeyPatch.context() as patch:
        _take(tile_w, tile_h, patch)
        assert_exact_strategy(case.model(), device, replace(strategy, alternative="dp4a"))


@pytest.mark.parametrize("strategy", NVIDIA, ids=str)
@pytest.mark.parametrize("tall", [1, 2, 5, 14])
def test_heights(tall: int, strategy: Strategy, device: DeviceInfo) -> None:
    with pytest.MonkeyPatch.context() as patch:
        _take(2, tall, patch)
        assert_exact_strategy(
            depthwise(13, 11, 8).model(), device, replace(strategy, alternative="dp4a")
        )


@st.composite
def fitting(draw: st.DrawFn) -> Convolution:
    """Draw a convolution that dot products can do."""
    case = draw(convolutions(is_depthwise=True))
    height, width, channels = case.size
    return replace(
        case,
        size=(height, width, 4 * channels),
        depth_multiplier=1,
        dilation=(case.dilation[0], 1),
        padding="SAME",
    )


@pytest.mark.parametrize("strategy", NVIDIA, ids=str)
@given(case=fitting(), seed=SEEDS)
def test_drawn(device: DeviceInfo, strategy: Strategy, case: Convolution, seed: int) -> None:
    _skip_long_builds(strategy, device)
    with pytest.MonkeyPatch.context() as patch:
        _take(2, 3, patch)
        assert_exact_or_refused(
            case.model(seed), device, replace(strategy, alternative="dp4a"), seed
        )

# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and FULLY_CONNECTED on floats: what they lower to and refuse, and their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Node
from delegate.launch import Constant
from tests.support.cases import (
    DRAWN_STRATEGIES,
    FUSED,
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    REGISTERS,
    SIMT,
    STRATEGIES,
    Strategy,
    assert_constants,
    changed,
    only_launch,
)
from tests.support.compare import assert_close, interpreter, invoke, refusals
from tests.support.convolution import (
    Convolution,
    channel_refusals,
    float_convolution,
    float_convolutions,
    of_geometry,
)
from tests.support.factories import refused
from tests.support.floats import (
    LIMITS,
    assert_float_or_refused,
    assert_float_strategies,
    exact_doubles,
)
from tests.support.model import chain_model, const, op, t
from tests.support.nodes import CHANNELS, SIZES
from tests.support.refusals import activated


def product(
    shape: tuple[int, ...] = (3, 11), out_c: int = 8, fused: str = "NONE", has_bias: bool = True
) -> Node:
    """Return a FULLY_CONNECTED node."""
    rng = np.random.default_rng(1)
    rows = int(np.prod(shape[:-1]))
    weights = const(rng.standard_normal((out_c, shape[-1])).astype(np.float32))
    bias = const(rng.standard_normal(out_c).astype(np.float32)) if has_bias else None
    return op(
        "FULLY_CONNECTED",
        [t(shape), weights, bias],
        [t((rows, out_c))],
        {"fused_activation_function": fused, "weights_format": "DEFAULT"},
    )


# What lower() returns.


DEEP = float_convolution(size=(1, 1, 9), kernel=(1, 1), out_c=99)
SMALL = float_convolution(size=(7, 7, 64), kernel=(1, 1), out_c=960)
WIDE = float_convolution(size=(9, 32, 3), out_c=33)
STRIDED = float_convolution(kernel=(1, 1), stride=(2, 2))


@pytest.mark.parametrize(
    ("strategy", "case", "names"),
    [
        (SIMT, float_convolution(out_c=3), ["plain"]),
        (SIMT, float_convolution(out_c=61), ["tiled 4x4", "plain"]),
        (SIMT, float_convolution(kernel=(1, 1)), ["1x1 4x4", "plain"]),
        (LANES_4, float_convolution(), ["tiled 4x8", "tiled 4x4", "plain"]),
        (LANES_8, float_convolution(size=(8, 8, 3)), ["tiled 8x8", "tiled 8x4", "plain"]),
        (LANES_16, float_convolution(size=(8, 8, 3)), ["tiled 8x8", "tiled 8x4", "plain"]),
        (LANES_16, WIDE, ["tiled 8x48", "tiled 16x16", "plain"]),
        (LANES_16, replace(WIDE, kernel=(1, 1)), ["1x1 8x48", "1x1 16x16", "plain"]),
        (LANES_16, replace(WIDE, out_c=96), ["tiled 8x48", "tiled 4x96", "plain"]),
        (LANES_8, replace(WIDE, out_c=96), ["tiled 4x24", "tiled 4x16", "plain"]),
        (LANES_8, SMALL, ["1x1 5x16", "1x1 4x24", "plain"]),  # 50 pixels for 49
        (LANES_16, SMALL, ["1x1 7x48", "1x1 7x32", "plain"]),
        (LANES_16, DEEP, ["1x1 1x64", "1x1 1x32", "plain"]),
        (LANES_16, STRIDED, ["tiled 2x8", "tiled 2x4", "plain"]),
    ],
    ids=str,
)
def test_tiles_that_waste_least_then_plain(
    strategy: Strategy, case: Convolution, names: list[str]
) -> None:
    assert [alternative.name for alternative in ops.lower(case.node(), strategy.target)] == names


def test_plain_launch() -> None:
    node = float_convolution(out_c=3, stride=(2, 1), fused="RELU6").node()
    launch = only_launch(ops.lower(node, SIMT.target)[-1])
    assert (launch.file, launch.kernel) == ("conv_2d_float", "conv_2d_float")
    assert (launch.tiles, launch.group_items, launch.defines) == (1, 64, {})  # 4 x 5 x 3 elements
    assert {n: v for n, v in launch.params.items() if isinstance(v, int)} == {
        "in_h": 7, "in_w": 5, "out_h": 4, "out_w": 5, "kernel_h": 3, "kernel_w": 3,
        "stride_h": 2, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "pad_top": 1,
        "pad_left": 1, "in_c": 3, "out_c": 3, "output_min": 0, "output_max": 0x40C00000,
        "elements": 60, "tile_items": 64,
    }  # fmt: skip


@pytest.mark.parametrize(("strategy", "keeps"), [(LANES_8, 1), (LANES_16, 0), (SIMT, 0)], ids=str)
def test_short_sums_are_not_unrolled_where_they_fill_16_registers(
    strategy: Strategy, keeps: int
) -> None:
    case = float_convolution(size=(4, 112, 3), out_c=32, stride=(2, 2))
    launch = only_launch(ops.lower(case.node(), strategy.target)[0])
    assert launch.defines["IS_LITERAL"] == 1
    assert launch.defines.get("KEEPS_LOOPS", 0) == keeps


def test_short_sums_have_literal_sizes() -> None:
    short, long = (
        only_launch(ops.lower(float_convolution(size=(7, 5, c)).node(), LANES_8.target)[0])
        for c in (5, 6)  # 45 and 54 terms
    )
    assert short.defines["IS_LITERAL"] == 1
    assert short.defines["IN_C"] == 5
    assert "in_c" not in short.params
    assert long.defines["IS_LITERAL"] == 0
    assert long.params["in_c"] == 6


@pytest.mark.parametrize(
    ("size", "kernel", "few", "some", "many"),
    [
        ((7, 9, 4), (3, 3), 1, 1, 1),
        ((7, 9, 5), (3, 3), 0, 1, 0),  # 15 terms of a window's row
        ((7, 15, 1), (1, 11), 0, 1, 1),
    ],
)
def test_rows_that_registers_keep_are_unrolled(
    size: tuple[int, int, int], kernel: tuple[int, int], few: int, some: int, many: int
) -> None:
    node = float_convolution(size=size, kernel=kernel, out_c=8).node()
    for registers, is_literal in ((0, 1), (24, few), (48, some), (96, many)):
        target = replace(SIMT.target, registers=registers)
        assert only_launch(ops.lower(node, target)[0]).defines["IS_LITERAL"] == is_literal


# Cores, what each takes some of, the parts that all pixels are cut into, the blocks of channels.
@pytest.mark.parametrize(
    ("case", "units", "order", "parts", "blocks"),
    [
        # Many weights: cores share the channels, and tiles are small where these do not divide.
        (float_convolution(size=(7, 7, 160), kernel=(1, 1), out_c=960), 2, "ASKS_AHEAD", 1, 20),
        (float_convolution(size=(7, 7, 960), kernel=(1, 1), out_c=160), 2, "ASKS_AHEAD", 7, 5),
        # Many pixels: each core has the same share of them.
        (float_convolution(size=(8, 8, 128), kernel=(1, 1), out_c=128), 2, "BY_PIXELS", 2, 4),
        (float_convolution(size=(28, 28, 160), kernel=(1, 1), out_c=96), 4, "BY_PIXELS", 4, 2),
        (float_convolution(size=(56, 56, 8), kernel=(1, 1), out_c=16), 2, "BY_PIXELS", 4, 1),
    ],
    ids=str,
)
def test_tiles_of_cores(case: Convolution, units: int, order: str, parts: int, blocks: int) -> None:
    strategy = replace(LANES_16, facts={**LANES_16.facts, "compute_units": units})
    launch = only_launch(ops.lower(case.node(), strategy.target)[0])
    assert [name for name in ("BY_PIXELS", "ASKS_AHEAD") if name in launch.defines] == [order]
    assert (launch.params["block_tiles"], launch.params["blocks"]) == (parts, blocks)
    assert launch.tiles == parts * blocks


def test_groups_of_many_items_go_by_channels_and_ask_for_nothing() -> None:
    launch = only_launch(ops.lower(float_convolution(kernel=(1, 1)).node(), SIMT.target)[0])
    assert not {"BY_PIXELS", "ASKS_AHEAD"} & {*launch.defines}


@pytest.mark.parametrize("strategy", [*STRATEGIES, *REGISTERS], ids=str)
def test_constants_are_as_long_as_they_say(strategy: Strategy) -> None:
    for case in (float_convolution(out_c=37), float_convolution(kernel=(1, 1), out_c=37)):
        for alternative in ops.lower(case.node(), strategy.target):
            assert_constants(only_launch(alternative))


def test_no_bias_is_zeros() -> None:
    node = float_convolution().node()
    without = replace(node, inputs=(*node.inputs[:2], None))
    bias = only_launch(ops.lower(without, SIMT.target)[0]).params["bias"]
    assert isinstance(bias, Constant)
    assert not bias.pack().any()


# What it refuses.

CONV = float_convolution().node()
PRODUCT = product()
REFUSALS = {
    "hybrid": (changed(CONV, 1, dtype="uint8"), "hybrid: uint8 weights with float32 activations"),
    "infinite_weight": (
        changed(CONV, 1, data=np.full((8, 3, 3, 3), np.inf, np.float32)),
        "a weight is not finite: times a padding zero it is not zero",
    ),
    "nan_weight": (
        changed(CONV, 1, data=np.full((8, 3, 3, 3), np.nan, np.float32)),
        "a weight is not finite: times a padding zero it is not zero",
    ),
    "computed_weights": (changed(CONV, 1, data=None), "weights are not constant"),
    "computed_bias": (changed(CONV, 2, data=None), "the bias is not a constant"),
    "bias_of_7": (changed(CONV, 2, shape=(7,)), "bias float32 of (7,): float32 of (8,) is needed"),
    "int32_bias": (
        changed(CONV, 2, dtype="int32"),
        "bias int32 of (8,): float32 of (8,) is needed",
    ),
    "to_uint8": (
        changed(CONV, -1, dtype="uint8"),
        "float32 in, uint8 out: only uint8 or int8 in both are implemented",
    ),
    "fused_tanh": activated(CONV, "TANH"),
    **channel_refusals(CONV),
    "product_hybrid": (
        changed(PRODUCT, 1, dtype="int8"),
        "weights without quantisation: scale and zero point are missing",
    ),
    "product_shuffled": (
        changed(PRODUCT, options={"weights_format": "SHUFFLED4x16INT8"}),
        "weights format SHUFFLED4x16INT8: only DEFAULT",
    ),
    "product_rank_4": (
        changed(PRODUCT, 1, shape=(8, 1, 1, 11)),
        "weights 8x1x1x11: rank 2 (OI) is needed",
    ),
    "product_rows": (changed(PRODUCT, 0, shape=(1, 10)), "input 1x10: rows of 11 are needed"),
    "product_output": (changed(PRODUCT, -1, shape=(3, 9)), "output 3x9: 3 rows of 8 are needed"),
}

test_refusal = refused(REFUSALS)


# Its numbers.

CASES = [
    *of_geometry(
        [
            ((7, 5, 3), (3, 3), (1, 1), (1, 1), "SAME"),
            ((7, 19, 3), (3, 3), (2, 2), (1, 1), "SAME"),
            ((7, 5, 3), (3, 3), (2, 2), (1, 1), "VALID"),
            ((7, 5, 11), (3, 3), (1, 1), (1, 1), "SAME"),
            ((7, 37, 8), (3, 3), (1, 1), (1, 1), "SAME"),
            ((7, 5, 2), (1, 1), (3, 2), (1, 1), "SAME"),
            ((11, 13, 1), (5, 2), (1, 3), (1, 1), "SAME"),
            ((13, 11, 2), (3, 3), (1, 1), (2, 3), "SAME"),
            ((13, 11, 17), (2, 3), (1, 1), (1, 2), "VALID"),
            ((3, 2, 5), (7, 7), (1, 1), (1, 1), "SAME"),
            ((1, 1, 1), (1, 1), (1, 1), (1, 1), "SAME"),
            ((5, 7, 9), (5, 7), (1, 1), (1, 1), "VALID"),
        ],
        float_convolution,
    ),
    *(
        float_convolution(size=(height, 1, 13), kernel=(1, 1), out_c=out_c)
        for height, out_c in [(1, 1), (1, 17), (1, 64), (3, 4), (3, 65), (7, 17), (7, 64), (16, 33)]
    ),
    *(float_convolution(out_c=out_c) for out_c in (3, 5, 16, 33)),
    float_convolution(size=(29, 1, 13), kernel=(1, 1), out_c=16),
    # Six vectors of 16 lanes; a second one that begins inside the first.
    float_convolution(size=(8, 1, 13), kernel=(1, 1), out_c=96),
    float_convolution(size=(24, 1, 13), kernel=(1, 1), out_c=24),
    *(float_convolution(fused=fused, batch=2) for fused in FUSED[1:]),
    float_convolution(batch=3, kernel=(1, 1), size=(5, 3, 7)),
    float_convolution(size=(4, 4, 61), out_c=19),
]


@pytest.mark.parametrize(
    "strategy", [strategy for strategy in STRATEGIES if strategy is not PLAIN], ids=str
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv_2d_float(case: Convolution, strategy: Strategy, device: DeviceInfo) -> None:
    names = assert_float_strategies(case.node(), device, strategy)
    kind = "1x1" if case.kernel == case.stride == (1, 1) else "tiled"
    assert {name.split()[0] for name in names} == {"plain"} | ({kind} if case.out_c >= 4 else set())


PRODUCTS = [
    product(),
    product(out_c=1),
    product(shape=(1, 256), out_c=67, fused="RELU"),
    product(shape=(2, 3, 7), out_c=33, has_bias=False),
    product(shape=(19, 5), out_c=16, fused="RELU_N1_TO_1"),
]


@pytest.mark.parametrize(
    "strategy", [strategy for strategy in STRATEGIES if strategy is not PLAIN], ids=str
)
@pytest.mark.parametrize("number", range(len(PRODUCTS)))
def test_fully_connected_float(number: int, strategy: Strategy, device: DeviceInfo) -> None:
    assert_float_strategies(PRODUCTS[number], device, strategy)


@given(case=float_convolutions(), strategy=DRAWN_STRATEGIES, seed=st.integers(0, 99))
def test_drawn_conv_2d_float(
    device: DeviceInfo, case: Convolution, strategy: Strategy, seed: int
) -> None:
    assert_float_or_refused(case.node(seed), device, strategy)


@given(
    rows=st.integers(1, 20),
    in_c=st.integers(1, 70),
    out_c=st.integers(1, 70),
    fused=st.sampled_from(FUSED),
    strategy=DRAWN_STRATEGIES,
)
def test_drawn_fully_connected_float(
    device: DeviceInfo, rows: int, in_c: int, out_c: int, fused: str, strategy: Strategy
) -> None:
    assert_float_or_refused(product((rows, in_c), out_c, fused), device, strategy)


def _outputs(node: Node, device: DeviceInfo, values: NDArray[Any]) -> list[NDArray[Any]]:
    """Return ours and the reference's output."""
    model = chain_model([node])
    delegate = OpenCLDelegate(model, device.index, tune="off")
    made = [interpreter(model, delegate), interpreter(model)]
    assert refusals(delegate) == {}
    return [invoke(each, [values])[0] for each in made]


def _huge(fused: str, kernel: tuple[int, int]) -> Node:
    """Return a node whose weights are nearly the largest float, of either sign."""
    node = float_convolution(fused=fused, kernel=kernel).node()
    weights = node.inputs[1]
    assert weights is not None
    assert weights.data is not None
    return changed(node, 1, data=np.where(weights.data > 0, 3e38, -3e38).astype(np.float32))


def _rows(values: list[int]) -> NDArray[np.float32]:
    rows = np.array(values, np.float32)[None, :, None, None]
    return np.broadcast_to(rows, (1, 7, 5, 3)).copy()


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)], ids=str)
@pytest.mark.parametrize("fused", FUSED)
def test_infinite_sums(fused: str, kernel: tuple[int, int], device: DeviceInfo) -> None:
    # TFLite clamps to the largest float where there is no activation.
    got, expected = _outputs(_huge(fused, kernel), device, _rows([-1, -1, -1, 0, 1, 1, 1]))
    assert np.isfinite(got).all()
    assert_close(got, expected, 0.0 if kernel == (1, 1) else np.inf, fused)


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)], ids=str)
@pytest.mark.parametrize("fused", FUSED)
def test_infinite_products(fused: str, kernel: tuple[int, int], device: DeviceInfo) -> None:
    # Where those of both signs meet, TFLite's sum is NaN. A device that rounds a product and its
    # addition once has no infinite product, and stays at a bound.
    got, expected = _outputs(_huge(fused, kernel), device, _rows([-9, -6, -3, 0, 3, 6, 9]))
    is_nan = np.isnan(expected)
    assert is_nan.any()
    largest = float(np.finfo(np.float32).max)
    bounds = [min(max(limit, -largest), largest) for limit in LIMITS[fused]]
    assert (np.isnan(got) | np.isin(got, bounds))[is_nan].all()
    assert np.isfinite(got[~is_nan]).all()
    allowed = 0.0 if kernel == (1, 1) else np.inf
    assert_close(np.where(is_nan, 0, got), np.where(is_nan, 0, expected), allowed, fused)


@pytest.mark.parametrize("fused", FUSED)
def test_nan_stays_nan(fused: str, device: DeviceInfo) -> None:
    values = np.ones((1, 7, 5, 3), np.float32)
    values[0, 3, 2, 1] = np.nan
    node = float_convolution(fused=fused).node()
    got, expected = _outputs(node, device, values)
    assert np.isnan(expected).sum() == 9 * 8
    assert_close(got, expected, exact_doubles(node, np.nan_to_num(values))[1], fused)


# The comparison itself.


def test_a_wrong_sum_is_seen() -> None:
    node = float_convolution().node()
    values = np.random.default_rng(0).standard_normal((1, 7, 5, 3)).astype(np.float32)
    result, bound = exact_doubles(node, values)
    rounded = result.astype(np.float32)
    assert_close(rounded, rounded, 0.0, "itself")
    assert_close(rounded, result, bound, "rounded")
    off = rounded.copy()
    off[0, 3, 2, 1] += 2 * bound[0, 3, 2, 1]
    with pytest.raises(AssertionError, match=r"1 of 280 differ .* first at \(0, 3, 2, 1\)"):
        assert_close(off, rounded, bound, "off")
    off[0, 3, 2, 1] = np.nan
    with pytest.raises(AssertionError, match="1 of 280 differ"):
        assert_close(off, rounded, bound, "off")


NODES = {
    "CONV_2D_float": float_convolution(size=(5, 5, 8)).node(),
    "FULLY_CONNECTED_float": PRODUCT,
}
BUILT = [
    float_convolution(size=(size, size, channels), kernel=kernel, out_c=channels).node()
    for size in SIZES
    for channels in CHANNELS
    for kernel in ((1, 1), (3, 3))
]

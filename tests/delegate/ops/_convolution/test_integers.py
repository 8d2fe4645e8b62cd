# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and DEPTHWISE_CONV_2D of int16: what they lower to and refuse, and their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.launch import Constant
from delegate.ops._launches.wide_sums import TWICE, WIDE
from delegate.target import Rules
from tests.support.cases import (
    DRAWN_STRATEGIES,
    FUSED,
    LANES_8,
    LANES_16,
    PLAIN,
    REGISTERS,
    SEEDS,
    SIMT,
    STRATEGIES,
    Strategy,
    assert_constants,
    assert_exact_or_refused,
    assert_exact_strategy,
    changed,
    only_launch,
    quantization,
)
from tests.support.convolution import (
    IN_SCALE,
    RULES,
    Convolution,
    channel_refusals,
    convolutions16,
    of_geometry,
)
from tests.support.factories import refused
from tests.support.model import chain_model
from tests.support.nodes import CHANNELS, SIZES
from tests.support.refusals import activated, unquantised

CONV = Convolution(dtype="int16")
DEPTHWISE = Convolution(dtype="int16", size=(7, 5, 11), depth_multiplier=1)
OLDER = Rules(int16_sums_of_int32=True)

# What lower() returns.


@pytest.mark.parametrize(
    ("strategy", "case", "names"),
    [
        (SIMT, CONV, ["tiled 4x1", "plain"]),
        (SIMT, replace(CONV, out_c=3), ["plain"]),
        (LANES_8, CONV, ["tiled 8x1", "plain"]),
        (LANES_16, replace(CONV, out_c=64), ["tiled 16x2", "plain"]),
        (SIMT, DEPTHWISE, ["vector 4x4", "plain"]),
        (LANES_8, DEPTHWISE, ["vector 8x4", "plain"]),
        (LANES_8, replace(DEPTHWISE, size=(7, 3, 9)), ["vector 8x1", "plain"]),
        (LANES_8, replace(DEPTHWISE, depth_multiplier=2), ["plain"]),
        (LANES_8, replace(DEPTHWISE, kernel=(23, 23), size=(23, 23, 8)), ["plain"]),
    ],
    ids=str,
)
def test_vectors_then_plain(strategy: Strategy, case: Convolution, names: list[str]) -> None:
    found = ops.lower(case.node(), strategy.target)
    assert [alternative.name for alternative in found] == names
    for alternative in found:
        assert_constants(only_launch(alternative))


@pytest.mark.parametrize(
    ("bias_dtype", "rules", "rounding"),
    [("int64", Rules(), WIDE), ("int64", OLDER, WIDE), ("int32", OLDER, TWICE)],
)
def test_rounding_of_the_bias_and_the_runtime(bias_dtype: str, rules: Rules, rounding: str) -> None:
    node = replace(CONV, bias_dtype=bias_dtype).node()
    launch = only_launch(ops.lower(node, replace(SIMT.target, rules=rules))[-1])
    assert launch.defines["ROUNDING"] == rounding


def test_rows_of_a_channel() -> None:
    node = changed(CONV.node(), 2, data=np.arange(8, dtype=np.int64) - (5 << 32))
    rows = only_launch(ops.lower(node, SIMT.target)[-1]).params["channels"]
    assert isinstance(rows, Constant)
    low, high, multiplier, shift, rest = rows.pack()
    assert (low == np.arange(8)).all()
    assert (high == -5).all()
    # 2^-9 is 2^14 * 2^(-8 - 15)
    assert (set(multiplier), set(shift), set(rest)) == ({1 << 14}, {-8}, {0})


# What it refuses.

NODE = CONV.node()
DEEP = DEPTHWISE.node()
REFUSALS = {
    "int8_output": (
        changed(NODE, -1, dtype="int8"),
        "int16 in, int8 out: only uint8 or int8 in both are implemented",
    ),
    "int16_weights": (
        changed(NODE, 1, dtype="int16"),
        "int16 weights with int16 activations: only int8",
    ),
    "zero_point": (
        changed(NODE, 0, quantization=quantization(0.5, 3)),
        "int16 with zero point 3: it must be 0",
    ),
    "weight_zero_point": (
        changed(NODE, 1, quantization=quantization(0.5, 3)),
        "int8 weights with zero point 3: it must be 0",
    ),
    "without_quantisation": unquantised(NODE, 0),
    "7_scales_for_8_channels": (
        changed(NODE, 1, quantization=quantization([0.5] * 7)),
        "weights have 7 scales on axis 0: 8 on axis 0 are needed",
    ),
    **channel_refusals(NODE),
    "computed_weights": (changed(NODE, 1, data=None), "weights are not constant"),
    "groups_of_outputs": (
        changed(NODE, 0, shape=(1, 7, 5, 9)),
        "groups: 3 input channels in the weights, 9 in the input, 8 in the output",
    ),
    "computed_bias": (changed(NODE, 2, data=None), "the bias is not a constant"),
    "int32_bias": (
        replace(CONV, bias_dtype="int32").node(),
        "an int32 bias with int16 activations: this TFLite reads it as int64",
    ),
    "bias_of_7": (changed(NODE, 2, shape=(7,)), "bias int64 of (7,): int64 of (8,) is needed"),
    "float_bias": (
        changed(NODE, 2, dtype="float32"),
        "bias float32 of (8,): int64 of (8,) is needed",
    ),
    "huge_bias": (changed(NODE, 2, data=np.full(8, 1 << 50)), "the bias is beyond 46 bits"),
    "scale_ratio": (
        changed(NODE, -1, quantization=quantization(1e-6)),
        "a scale ratio of 2^11: more than 2^7",
    ),
    "fused_tanh": activated(NODE, "TANH"),
    "window_too_large": (
        changed(changed(NODE, 0, shape=(1, 2, 5, 3)), options={"padding": "VALID"}),
        "output 7x5: the window gives 0x3",
    ),
    "depthwise_weights": (
        changed(DEEP, 1, shape=(2, 3, 3, 11)),
        "weights 2x3x3x11: 1HWO is needed",
    ),
    "depthwise_channels": (
        changed(DEEP, 0, shape=(1, 7, 5, 7)),
        "7 input, 11 weight and 11 output channels: "
        "the last two must be equal and a multiple of the first",
    ),
    "depthwise_int32_bias": (
        replace(DEPTHWISE, bias_dtype="int32").node(),
        "bias int32 with int16 activations: TFLite requires int64 here",
    ),
}

test_refusal = refused(REFUSALS)


# Their numbers.

CASES = [
    *of_geometry(
        [
            ((7, 5, 3), (3, 3), (2, 2), (1, 1), "VALID"),
            ((7, 5, 4), (1, 1), (1, 1), (1, 1), "VALID"),
            ((11, 13, 1), (10, 4), (2, 1), (1, 1), "SAME"),
            ((11, 13, 5), (3, 2), (1, 3), (2, 3), "SAME"),
            ((1, 3, 2), (1, 1), (1, 1), (1, 1), "SAME"),
            ((1, 1, 1), (1, 1), (1, 1), (1, 1), "SAME"),
        ],
        dtype="int16",
    ),
    *(replace(CONV, out_c=out_c, per_channel=True) for out_c in (1, 3, 7, 17, 33)),
    *(replace(CONV, fused=fused, batch=2) for fused in FUSED[1:]),
    *(replace(CONV, multiplier=m) for m in (1.7, 100.0, 2.0**-20, 1e-9, 1e-12)),
    # Around what a sum of 32 bits holds, within a tap and over taps.
    *(
        replace(CONV, size=(3, 5, c), kernel=kernel, multiplier=2.0**-15)
        for c, kernel in [(510, (1, 1)), (511, (1, 1)), (1025, (2, 1)), (61, (3, 3)), (171, (1, 4))]
    ),
]
DEEP_CASES = [
    *(
        replace(DEPTHWISE, size=size, kernel=kernel, stride=stride, padding=padding)
        for size, kernel, stride, padding in [
            ((7, 5, 16), (3, 3), (2, 2), "VALID"),
            ((7, 13, 17), (3, 2), (1, 3), "SAME"),
            ((1, 3, 8), (1, 1), (1, 1), "SAME"),
            ((23, 23, 4), (23, 23), (3, 3), "SAME"),
        ]
    ),
    replace(DEPTHWISE, dilation=(2, 3), per_channel=True),
    replace(DEPTHWISE, depth_multiplier=3, batch=2),
    *(replace(DEPTHWISE, fused=fused) for fused in FUSED[1:]),
    *(replace(DEPTHWISE, multiplier=m) for m in (1.7, 2.0**-20, 1e-9)),
]


@pytest.mark.parametrize("strategy", [PLAIN, SIMT, *REGISTERS, LANES_8], ids=str)
@pytest.mark.parametrize("case", [*CASES, *DEEP_CASES], ids=str)
def test_int16(case: Convolution, strategy: Strategy, device: DeviceInfo) -> None:
    assert_exact_strategy(chain_model([case.node()]), device, strategy)


@pytest.mark.parametrize("strategy", [*STRATEGIES, *REGISTERS], ids=str)
@pytest.mark.parametrize("kernel", [(1, 1), (9, 7)], ids=["one_tap", "63_taps"])
def test_sums_at_the_ends(kernel: tuple[int, int], strategy: Strategy, device: DeviceInfo) -> None:
    case = replace(CONV, size=(9, 7, 600), kernel=kernel, padding="VALID", multiplier=2.0**-18)
    node = case.node()
    weights = node.inputs[1]
    assert weights is not None
    node = changed(node, 1, data=np.full(weights.shape, -127, np.int8))
    inputs = [[np.full((1, 9, 7, 600), value, np.int16)] for value in (-32768, 32767)]
    assert_exact_strategy(chain_model([node]), device, strategy, inputs=inputs)


@pytest.mark.parametrize("strategy", [PLAIN, LANES_8], ids=str)
def test_sums_beside_ties(strategy: Strategy, device: DeviceInfo) -> None:
    # The bias alone is the sum: beside those where a result steps to the next.
    rng = np.random.default_rng(1)
    case = replace(CONV, size=(1, 1, 1), kernel=(1, 1), out_c=1000, per_channel=True)
    scales = (2.0 ** rng.uniform(-20, 6, 1000)).astype(np.float32)
    scales[:100] = np.float32(2.0) ** rng.integers(-20, 6, 100)
    node = changed(case.node(), 1, quantization=quantization(scales, [0] * 1000))
    reals = IN_SCALE * scales.astype(np.float64)
    node = changed(node, -1, quantization=quantization(1.0))
    steps = (rng.integers(0, 32767, 1000) + 0.5) / reals
    bias = np.floor(steps).astype(np.int64) + rng.integers(-1, 3, 1000)
    bias[::2] *= -1
    node = changed(node, 2, data=bias, quantization=None)
    inputs = [[np.zeros((1, 1, 1, 1), np.int16)]]
    assert_exact_strategy(chain_model([node]), device, strategy, inputs=inputs)


@pytest.mark.parametrize("strategy", [PLAIN, SIMT, *REGISTERS, LANES_8], ids=str)
def test_groups(strategy: Strategy, device: DeviceInfo) -> None:
    case = replace(CONV, size=(7, 5, 6), out_c=9, per_channel=True)
    model = chain_model([replace(case, groups=3).node()])
    assert assert_exact_strategy(model, device, strategy) == {"plain"}


@pytest.mark.skipif(not RULES.int16_sums_of_int32, reason="this TFLite misreads int32 biases")
@pytest.mark.parametrize("strategy", [PLAIN, SIMT, *REGISTERS, LANES_8], ids=str)
@pytest.mark.parametrize("multiplier", [2.0**-9, 1.7, 2.0**-20])
def test_int32_bias(multiplier: float, strategy: Strategy, device: DeviceInfo) -> None:
    case = replace(CONV, multiplier=multiplier)
    assert_exact_strategy(chain_model([replace(case, bias_dtype="int32").node()]), device, strategy)


# CONV_2D must have one.
@pytest.mark.parametrize("strategy", [PLAIN, LANES_8], ids=str)
@pytest.mark.parametrize("multiplier", [2.0**-9, 2.0**-9 * 0.71])
def test_depthwise_without_a_bias(
    multiplier: float, strategy: Strategy, device: DeviceInfo
) -> None:
    case = replace(DEPTHWISE, size=(23, 19, 11), multiplier=multiplier)
    assert_exact_strategy(chain_model([replace(case, has_bias=False).node()]), device, strategy)


@given(case=convolutions16(), strategy=DRAWN_STRATEGIES, seed=SEEDS)
def test_drawn_conv_2d(
    device: DeviceInfo, case: Convolution, strategy: Strategy, seed: int
) -> None:
    assert_exact_or_refused(chain_model([case.node(seed)]), device, strategy, seed)


@given(
    case=convolutions16(is_depthwise=True),
    has_bias=st.booleans(),
    strategy=DRAWN_STRATEGIES,
    seed=SEEDS,
)
def test_drawn_depthwise(
    device: DeviceInfo, case: Convolution, has_bias: bool, strategy: Strategy, seed: int
) -> None:
    model = chain_model([replace(case, has_bias=has_bias).node(seed)])
    assert_exact_or_refused(model, device, strategy, seed)


NODES = {"CONV_2D_int16": NODE, "DEPTHWISE_CONV_2D_int16": DEEP}


def _built() -> Iterator[Node]:
    for size, channels in product(SIZES, CHANNELS):
        conv = replace(CONV, size=(size, size, channels), out_c=channels)
        for node in (conv.node(), replace(conv, depth_multiplier=1).node()):
            yield node
            yield replace(node, inputs=(*node.inputs[:2], None))


BUILT = list(_built())

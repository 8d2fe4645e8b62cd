# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED: what it lowers to, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node, Tensor
from delegate.target import Rules, Target
from tests.support.cases import (
    DTYPES,
    FUSED,
    LANES_8,
    PLAIN,
    SIMT,
    STRATEGIES,
    Strategy,
    assert_exact_strategy,
    changed,
    integers,
    multipliers,
    only_launch,
    quantization,
    refusal,
    retyped,
    zero_points,
)
from tests.support.convolution import IN_SCALE, RULES, WEIGHT_SCALE, scales_and_bias
from tests.support.factories import assert_seeded_or_refused, drawn, refused
from tests.support.model import chain_model, const, op, t
from tests.support.nodes import CHANNELS
from tests.support.refusals import activated, sparse, unquantised


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One FULLY_CONNECTED by its parameters."""

    shape: tuple[int, ...] = (3, 11)
    out_c: int = 8
    in_c: int = 0  # 0: the last size of the shape
    fused: str = "NONE"
    dtype: str = "uint8"
    has_bias: bool = True
    keeps_dims: bool = False
    zeros: tuple[int, int, int] | None = None  # of input, weights, output
    multiplier: float = 2.0**-9  # real: input scale * weight scale / output scale
    per_channel: bool = False

    def __str__(self) -> str:
        parts = {
            "in" + "x".join(map(str, self.shape)): True,
            f"rows_of_{self.in_c}": self.in_c > 0,
            f"out{self.out_c}": True,
            self.fused.lower(): self.fused != "NONE",
            "no_bias": not self.has_bias,
            "keep_num_dims": self.keeps_dims,
            "zeros{}_{}_{}".format(*self.zeros or "---"): self.zeros is not None,
            f"multiplier{self.multiplier:g}": self.multiplier != 2.0**-9,
            self.dtype + ("_per_channel" if self.per_channel else ""): True,
        }
        return "-".join(part for part, is_said in parts.items() if is_said)

    def node(self, seed: int = 0) -> Node:
        in_c = self.in_c or self.shape[-1]
        rows = int(np.prod(self.shape)) // in_c
        out_shape = (*self.shape[:-1], self.out_c) if self.keeps_dims else (rows, self.out_c)
        in_zero, weight_zero, out_zero = self.zeros or (
            (131, 135, 123) if self.dtype == "uint8" else (3, 0, -5)
        )
        rng = np.random.default_rng(seed)
        weights = integers((self.out_c, in_c), self.dtype, seed)
        if self.dtype == "int16":
            scales, bias, out_scale = scales_and_bias(
                self.out_c, self.multiplier, self.per_channel, seed
            )
            in_zero, weight_zero, out_zero = 0, 0, 0
            weights = np.maximum(integers((self.out_c, in_c), "int8", seed), -127)
        else:
            scales = WEIGHT_SCALE
            if self.per_channel:
                scales = (WEIGHT_SCALE * rng.uniform(0.01, 1, self.out_c)).astype(np.float32)
            bias = const(
                rng.integers(-(2**12), 2**12, self.out_c).astype(np.int32),
                np.float32(IN_SCALE) * np.float32(scales),
            )
            out_scale = IN_SCALE * WEIGHT_SCALE / self.multiplier
        return op(
            "FULLY_CONNECTED",
            [
                t(self.shape, self.dtype, IN_SCALE, in_zero),
                const(weights, scales, weight_zero),
                bias if self.has_bias else None,
            ],
            [t(out_shape, self.dtype, out_scale, out_zero)],
            {"fused_activation_function": self.fused, "keep_num_dims": self.keeps_dims},
            version=7 if self.dtype == "int16" else 4,
        )

    def model(self, seed: int = 0) -> bytes:
        return chain_model([self.node(seed)])


# What lower() returns.


@pytest.mark.parametrize(
    ("strategy", "out_c", "names"),
    [
        (SIMT, 3, ["plain"]),
        (SIMT, 11, ["float4 1x8", "plain"]),
        (LANES_8, 8, ["tiled 8x1", "plain"]),
        (LANES_8, 16, ["tiled 8x2", "plain"]),
    ],
    ids=str,
)
def test_alternatives_of_the_convolution(strategy: Strategy, out_c: int, names: list[str]) -> None:
    found = ops.lower(Product(out_c=out_c).node(), strategy.target)
    assert [alternative.name for alternative in found] == names
    assert all(only_launch(alternative).file.startswith("conv_2d") for alternative in found)


@pytest.mark.parametrize("twice", [False, True], ids=["ai-edge-litert", "tflite-runtime"])
def test_rounding_of_the_runtime(twice: bool) -> None:
    target = Target(rules=Rules(fully_connected_double_rounding=twice))
    for alternative in ops.lower(Product().node(), target):
        assert only_launch(alternative).defines["SINGLE_ROUNDING"] == int(not twice)


def test_rows_that_a_runtime_mixes_up() -> None:
    target = Target(rules=Rules(fully_connected_double_rounding=True))
    case = Product(shape=(2, 3, 7), dtype="int8", keeps_dims=True, per_channel=True)
    reason = "per-channel weights with keep_num_dims: this TFLite mixes up the rows"
    assert refusal(case.node(), target) == reason
    assert ops.lower(case.node(), SIMT.target)
    assert ops.lower(replace(case, per_channel=False).node(), target)


def test_plain_launch() -> None:
    node = Product(shape=(5, 2, 11), out_c=17).node()
    launch = only_launch(ops.lower(node, SIMT.target)[-1])
    assert (launch.tiles, launch.group_items) == (3, 64)  # 10 rows of 17
    assert launch.params["elements"] == 170
    assert (launch.params["in_c"], launch.params["out_c"]) == (11, 17)
    assert (launch.reads, launch.writes) == (node.inputs[:1], node.outputs)


# What it refuses.

NODE = Product().node()
INT8 = Product(dtype="int8").node()
INT16 = Product(dtype="int16").node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "rank_4_weights": (
        changed(NODE, 1, shape=(8, 1, 1, 11)),
        "weights 8x1x1x11: rank 2 (OI) is needed",
    ),
    "empty_weights": (changed(NODE, 1, shape=(8, 0)), "weights 8x0: rank 2 (OI) is needed"),
    "input_no_rows": (changed(NODE, 0, shape=(1, 10)), "input 1x10: rows of 11 are needed"),
    "scalar_input": (changed(NODE, 0, shape=()), "input scalar: rows of 11 are needed"),
    "empty_input": (changed(NODE, 0, shape=(0, 11)), "input 0x11: rows of 11 are needed"),
    "output_size": (changed(NODE, -1, shape=(3, 9)), "output 3x9: 3 rows of 8 are needed"),
    "shuffled_weights": (
        changed(NODE, options={"weights_format": "SHUFFLED4x16INT8"}),
        "weights format SHUFFLED4x16INT8: only DEFAULT",
    ),
    "computed_weights_of_int16": (changed(INT16, 1, data=None), "weights are not constant"),
    "computed_weights_per_channel": (
        changed(Product(dtype="int8", per_channel=True).node(), 1, data=None),
        "8 scales: only one per tensor here",
    ),
    "computed_weights_of_many_terms": (
        changed(Product(shape=(1, 66_000), out_c=1, dtype="int8").node(), 1, data=None),
        "shapes 1x66000 x 1x66000 -> 1x1: 66000 terms a sum, at most 65000 are implemented",
    ),
    "sparse_weights": sparse(NODE, 1, data=None),
    "7_scales_for_8_channels": (
        changed(INT8, 1, quantization=quantization([0.5] * 7)),
        "weights have 7 scales on axis 0: 8 on axis 0 are needed",
    ),
    "uint8_per_channel": (
        changed(NODE, 1, quantization=quantization([0.5] * 8)),
        "uint8 weights with 8 scales: per channel is int8 only",
    ),
    "uint8_weights_with_int16": (
        retyped(NODE, "int16"),
        "uint8 weights with int16 activations: only int8",
    ),
    "int16_zero_point": (
        changed(INT16, 0, quantization=quantization(0.5, 1)),
        "int16 with zero point 1: it must be 0",
    ),
    "int16_weight_zero_point": (
        changed(INT16, 1, quantization=quantization(0.5, 1)),
        "int8 weights with zero point 1: it must be 0",
    ),
    "int16_with_int32_bias": (
        changed(INT16, 2, dtype="int32"),
        "an int32 bias with int16 activations: this TFLite reads it as int64",
    ),
    "int16_scale_ratio": (
        changed(INT16, -1, quantization=quantization(1e-9)),
        "sums up to 62359984 at a scale ratio of 1.95313e+06: beyond 32 bits",
    ),
    "scale_ratio": (
        changed(INT8, -1, quantization=quantization(1e-9)),
        "sums up to 188409 at a scale ratio of 1.95313e+06: beyond 32 bits",
    ),
    "last_size_not_kept": (
        changed(Product(shape=(2, 3, 4), in_c=12).node(), options={"keep_num_dims": True}),
        "input 2x3x4: its last size is kept, so it must be 12",
    ),
    "float32_output": (
        changed(NODE, -1, dtype="float32"),
        "uint8 in, float32 out: only uint8 or int8 in both are implemented",
    ),
    "hybrid": (changed(NODE, 1, dtype="int8"), "int8 weights with uint8 activations"),
    "without_quantisation": unquantised(NODE, 0),
    "weight_zero_point_outside": (
        changed(INT8, 1, quantization=quantization(0.5, 255)),
        "zero point 255: outside int8",
    ),
    "bias_int64": (changed(NODE, 2, dtype="int64"), "bias int64 of (8,): int32 of (8,) is needed"),
    "computed_bias": (changed(NODE, 2, data=None), "the bias is not a constant"),
    "fused_tanh": activated(NODE, "TANH"),
    # With weights of another format TFLite has a second output for scratch.
    "two_outputs": (replace(NODE, outputs=NODE.outputs * 2), "2 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)


@pytest.mark.parametrize("inputs", [(), (0,), (None, 1), (0, 1, 2, 2)], ids=str)
def test_wrong_inputs(inputs: tuple[int | None, ...]) -> None:
    tensors: tuple[Tensor | None, ...] = tuple(
        None if i is None else NODE.inputs[i] for i in inputs
    )
    assert refusal(replace(NODE, inputs=tensors)) == f"{len(inputs)} inputs: 2 to 3 expected"


# Its numbers.

SHAPES = [
    Product(shape=shape, out_c=out_c)
    for shape, out_c in [
        ((1, 1), 1),
        ((1, 2), 3),
        ((1, 61), 16),
        ((3, 11), 4),
        ((4, 11), 5),
        ((5, 7), 8),
        ((8, 16), 15),
        ((2, 64), 17),
        ((1, 33), 31),
        ((1, 5), 32),
        ((1, 7), 33),
        ((2, 3, 5, 7), 9),
        ((7,), 9),
    ]
] + [
    Product(shape=(2, 3, 7), out_c=9, keeps_dims=True),
    Product(shape=(2, 3, 4), in_c=12, out_c=5),
    Product(shape=(2, 3, 4), in_c=6, out_c=9),
]
CASES = [
    *SHAPES,
    *(replace(case, dtype="int8") for case in SHAPES),
    *(Product(fused=fused, dtype=dtype) for fused in FUSED[1:] for dtype in ("uint8", "int8")),
    *(Product(has_bias=False, dtype=dtype) for dtype in ("uint8", "int8")),
    *(Product(zeros=(i, w, o)) for i in (0, 255) for w in (0, 255) for o in (0, 255)),
    *(Product(zeros=(i, 0, o), dtype="int8") for i in (-128, 127) for o in (-128, 127)),
    *(
        Product(multiplier=multiplier, dtype=dtype)
        for multiplier in (1 / 6, 0.1, 1 / 14, 0.99, 1.0, 1.7, 300.0, 2.0**-20, 1e-9, 1e-12)
        for dtype in ("uint8", "int8")
    ),
    *(replace(case, dtype="int8", per_channel=True) for case in SHAPES[3:9]),
    Product(dtype="int8", per_channel=True, multiplier=1 / 6, has_bias=False),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_fully_connected(case: Product, strategy: Strategy, device: DeviceInfo) -> None:
    taken = assert_exact_strategy(case.model(), device, strategy)
    blocked = "float4" if strategy is SIMT else "tiled"
    assert {name.split()[0] for name in taken} == {
        blocked if strategy is not PLAIN and case.out_c >= 4 else "plain"
    }


@pytest.mark.parametrize("strategy", [PLAIN, SIMT, LANES_8], ids=str)
def test_what_fills_no_row_is_left_out(strategy: Strategy, device: DeviceInfo) -> None:
    weights = np.random.default_rng(5).integers(-127, 128, (8, 16)).astype(np.int8)
    x, result = t((37, 3, 2), "int8", 0.1, 3), t((13, 8), "int8", 0.9, -5)  # 13 rows and 14 values
    node = op("FULLY_CONNECTED", [x, const(weights, 0.02)], [result])
    assert_exact_strategy(chain_model([node]), device, strategy)


@pytest.mark.parametrize("strategy", [PLAIN, SIMT, LANES_8], ids=str)
def test_more_terms_than_a_driver_counts(strategy: Strategy, device: DeviceInfo) -> None:
    # llvmpipe leaves a loop after 65535 rounds; 2048 channels of 7 x 7 pixels are more terms.
    case = Product(shape=(1, 7 * 7 * 2048), out_c=8, multiplier=2.0**-14)
    assert assert_exact_strategy(case.model(), device, strategy)


# Sums so large beside their scale that no 31-bit multiplier rounds as TFLite's doubles do.
STEEP = [
    Product(shape=(2, 61), out_c=1, dtype="int8", multiplier=2.0**-21 / 49),
    Product(shape=(2, 61), out_c=19, multiplier=2.0**-21 / 49),
    Product(shape=(3, 7), out_c=200, dtype="int8", multiplier=3.1e-06),
    Product(shape=(3, 7), out_c=33, multiplier=3.1e-06, fused="RELU"),
    Product(shape=(3, 8), out_c=33, dtype="int8", multiplier=3.1e-06, per_channel=True),
]


@pytest.mark.skipif(RULES.int16_sums_of_int32, reason="this TFLite has no product of doubles")
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("case", STEEP, ids=str)
def test_double_products(case: Product, strategy: Strategy, device: DeviceInfo) -> None:
    node = case.node()
    rng = np.random.default_rng(1)
    # The bias is most of the sum: beside those where a result steps to the next, and a large one.
    steps = rng.integers(-100, 100, case.out_c) + 0.5
    limit = 2**30
    bias = np.clip(np.floor(steps / case.multiplier), -limit, limit).astype(np.int64)
    bias += rng.integers(-2, 3, case.out_c)
    bias[0] = limit
    node = changed(node, 2, data=bias.astype(np.int32))
    for alternative in ops.lower(node, SIMT.target):
        assert only_launch(alternative).file == "fully_connected"
    assert assert_exact_strategy(chain_model([node]), device, strategy)


@pytest.mark.parametrize("strategy", [PLAIN, SIMT, LANES_8], ids=str)
@pytest.mark.parametrize(
    "case",
    [
        Product(dtype="int16"),
        Product(dtype="int16", shape=(2, 3, 7), out_c=9, keeps_dims=True),
        Product(dtype="int16", shape=(5, 7), out_c=9, per_channel=True),
        Product(dtype="int16", shape=(4, 601), out_c=33, multiplier=2.0**-14),
        Product(dtype="int16", out_c=3, has_bias=False, multiplier=1 / 6),
        *(Product(dtype="int16", multiplier=m) for m in (1 / 14, 0.1, 1.7, 2.0**-20, 1e-12)),
        *(Product(dtype="int16", fused=fused) for fused in FUSED[1:]),
    ],
    ids=str,
)
def test_int16(case: Product, strategy: Strategy, device: DeviceInfo) -> None:
    assert assert_exact_strategy(case.model(), device, strategy)


@pytest.mark.parametrize("strategy", [PLAIN, LANES_8], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_sums_of_int16_beside_ties(seed: int, strategy: Strategy, device: DeviceInfo) -> None:
    # The bias alone is the sum: beside those where the double product rounds to a half.
    rng = np.random.default_rng(seed)
    count = 1000
    node = Product(shape=(1, 2), out_c=count, dtype="int16").node()
    scales = (2.0 ** rng.uniform(-16, 4, count)).astype(np.float32)
    scales[:100] = np.float32(2.0) ** rng.integers(-16, 4, 100)
    node = changed(node, 0, quantization=quantization(0.125))
    node = changed(node, -1, quantization=quantization(0.125 * [6, 10, 2**12 + 2][seed]))
    node = changed(node, 1, quantization=quantization(scales, np.zeros(count, int).tolist()))
    reals = 0.125 * scales.astype(np.float64) / (0.125 * [6, 10, 2**12 + 2][seed])
    answers = rng.integers(0, 32767, count) + 0.5
    bias = np.floor(answers / reals).astype(np.int64) + rng.integers(-1, 3, count)
    bias[::2] *= -1
    node = changed(node, 2, data=bias, quantization=None)
    inputs = [[np.zeros((1, 2), np.int16)]]
    assert_exact_strategy(chain_model([node]), device, strategy, inputs=inputs)


@st.composite
def products(draw: st.DrawFn) -> Product:
    dtype = draw(DTYPES | st.just("int16"))
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    per_channel = dtype != "uint8" and draw(st.booleans())
    weight_zero = 0 if per_channel else draw(zero_points(dtype))
    return Product(
        shape=(*shape[:-1], draw(st.integers(1, 70))),
        out_c=draw(st.integers(1, 40)),
        fused=draw(st.sampled_from(FUSED)),
        dtype=dtype,
        has_bias=draw(st.booleans()),
        # tflite-runtime's kernel for weights per channel reads beyond them then.
        keeps_dims=draw(st.booleans()) and not (per_channel and RULES.int16_sums_of_int32),
        zeros=(draw(zero_points(dtype)), weight_zero, draw(zero_points(dtype))),
        multiplier=draw(multipliers(-14, 1 if dtype == "int16" else 3)),
        per_channel=per_channel,
    )


test_drawn_fully_connected = drawn(products(), STRATEGIES, assert_seeded_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    case = Product(shape=(size, channels), out_c=channels, dtype=dtype, zeros=(3, 0, 3))
    weights = np.ones((channels, channels), dtype)
    return [changed(replace(case, multiplier=0.5).node(), 1, data=weights)]


def _double(channels: int, dtype: str) -> Node:
    """Return a node that only a product of doubles rounds as TFLite does."""
    weights = const(np.ones((channels, channels), dtype), 0.5)
    bias = const(np.full(channels, 2**30, np.int32), 0.25)
    result = t((5, channels), dtype, 49.0 * 2**19)
    return op("FULLY_CONNECTED", [t((5, channels), dtype, 0.5), weights, bias], [result])


NODES = {"FULLY_CONNECTED_int16": INT16, "FULLY_CONNECTED_double": _double(8, "int8")}
BUILT = [
    *(_double(channels, dtype) for channels in CHANNELS for dtype in ("uint8", "int8")),
    *(
        Product(shape=(rows, channels), out_c=channels, dtype="int16", has_bias=has_bias).node()
        for rows in (1, 25)
        for channels in CHANNELS
        for has_bias in (False, True)
    ),
]

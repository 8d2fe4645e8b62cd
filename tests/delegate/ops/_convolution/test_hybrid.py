# SPDX-License-Identifier: Apache-2.0
"""Hybrid products: float rows that become int8 at each run, against TFLite's, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Node, packed
from delegate.ops._convolution.hybrid_rounding import depends_on_dot_products, rounds_once
from delegate.target import Rules, Target
from tests.support.cases import (
    ARM_OR_OTHER,
    DOTS,
    FUSED,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    X86,
    Strategy,
    assert_exact_strategy,
    changed,
    forced,
    quantization,
    refusal,
    require_isa,
)
from tests.support.compare import RUNTIME, interpreter, invoke
from tests.support.factories import assert_seeded_or_refused, drawn, refused
from tests.support.model import chain_model, const, op, t
from tests.support.tiers import where_rows_are_known

# tflite-runtime is wrong about a scale a channel, which test_refused_here shows.
HAS_CHANNELS = RUNTIME.name != "tflite-runtime"
READS_INT2 = RUNTIME.name != "tflite-runtime"  # which has no such type
pytestmark = where_rows_are_known

STRATEGIES = (PLAIN, SIMT, LANES_8, LANES_16, *X86, *ARM_OR_OTHER, replace(DOTS[0], alternative=""))
Floats = NDArray[np.float32]
ODD = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 0.5], np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One hybrid FULLY_CONNECTED by its parameters."""

    shape: tuple[int, ...] = (5, 37)
    out_c: int = 35
    asymmetric: bool = False
    per_channel: bool = False
    fused: str = "NONE"
    has_bias: bool = True
    has_odd_bias: bool = False  # infinite numbers and NaN are in it
    keeps_dims: bool = False
    bits: int = 8  # of weights

    def __str__(self) -> str:
        parts = {
            "in" + "x".join(map(str, self.shape)): True,
            f"out{self.out_c}": True,
            "asymmetric": self.asymmetric,
            "per_channel": self.per_channel,
            self.fused.lower(): self.fused != "NONE",
            "no_bias": not self.has_bias,
            "odd_bias": self.has_odd_bias,
            "keep_num_dims": self.keeps_dims,
            f"int{self.bits}": self.bits < 8,
        }
        return "-".join(part for part, is_said in parts.items() if is_said)

    def node(self, seed: int = 0) -> Node:
        rng = np.random.default_rng(seed)
        in_c = self.shape[-1]
        rows = int(np.prod(self.shape)) // in_c
        most = 2 ** (self.bits - 1) - 1
        weights = rng.integers(-most, most, (self.out_c, in_c), endpoint=True).astype(np.int8)
        scales = rng.uniform(1e-3, 0.1, self.out_c if self.per_channel else 1).astype(np.float32)
        bias = const(rng.standard_normal(self.out_c).astype(np.float32))
        if self.has_odd_bias:
            bias = const(rng.choice(ODD, self.out_c))
        stored = const(weights, scales)
        if self.bits < 8:
            kind = f"int{self.bits}"
            stored = replace(stored, dtype=kind, data=packed(weights, kind))
        inputs = [t(self.shape), stored, bias if self.has_bias else None]
        out = (*self.shape[:-1], self.out_c) if self.keeps_dims else (rows, self.out_c)
        options = {
            "fused_activation_function": self.fused,
            "keep_num_dims": self.keeps_dims,
            "asymmetric_quantize_inputs": self.asymmetric,
        }
        return op("FULLY_CONNECTED", inputs, [t(out)], options, version=9)


def hard_rows(depth: int, seed: int = 0) -> Floats:
    """Return rows whose scale, zero point or values lie between two, or nearly."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(60):
        x = rng.standard_normal(depth).astype(np.float32)
        reach = np.float32(np.abs(x).max())
        symmetric = np.concatenate([x[:-2], [reach, -reach]])
        # a zero point between two: -low / (high - low) is (k + 1/2) / 255
        k = rng.integers(0, 255) + 0.5
        size = np.float32(10 ** rng.uniform(-20, 20))
        ends = [np.float32(-k * size), np.float32((255 - k) * size)]
        between = np.concatenate([rng.uniform(*ends, depth - 2), ends])
        # whole and half steps of a scale of 1, and what lies just beside them
        halves = rng.integers(-127, 127, depth) + rng.choice([0.0, 0.5], depth)
        halves[0] = rng.choice([127.0, -127.0])
        beside = np.nextafter(halves.astype(np.float32), np.float32(rng.choice([-200, 200])))
        wide = x * 10.0 ** rng.uniform(-12, 12, depth)
        rows += [symmetric, between, halves, beside, wide, np.abs(x), -np.abs(x), 0 * x]
    return np.stack(rows).astype(np.float32)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("asymmetric", [False, True], ids=["symmetric", "asymmetric"])
def test_quantised_rows(device: DeviceInfo, strategy: Strategy, asymmetric: bool) -> None:
    """The weights are a unit matrix of a scale of 1, so the outputs are what the rows became."""
    depth = 37  # some values more than whole vectors
    rows = hard_rows(depth)
    unit = const(np.eye(depth, dtype=np.int8), 1.0)
    options = {"asymmetric_quantize_inputs": asymmetric}
    out = t((len(rows), depth))
    node = op("FULLY_CONNECTED", [t(rows.shape), unit], [out], options, version=9)
    assert_exact_strategy(chain_model([node]), device, strategy, inputs=[[rows]])


CASES = [
    Product(),
    Product(asymmetric=True),
    Product(shape=(1, 64), out_c=48),
    Product(shape=(1, 3), out_c=2, asymmetric=True),
    Product(shape=(2, 3, 20), out_c=17, keeps_dims=True, fused="RELU6"),
    Product(shape=(9, 130), out_c=33, has_bias=False, fused="RELU", asymmetric=True),
    Product(shape=(3, 31), out_c=17, asymmetric=True, bits=4),
    *(Product(has_odd_bias=True, fused=fused) for fused in FUSED),
]
PER_CHANNEL = [
    Product(per_channel=True),
    Product(shape=(2, 40), out_c=19, per_channel=True, bits=4),
    *(
        Product(shape=(3, 35), out_c=19, per_channel=True, asymmetric=asymmetric, bits=2)
        for asymmetric in (False, True)
        if READS_INT2
    ),
    Product(shape=(7, 96), out_c=64, per_channel=True, asymmetric=True, fused="RELU_N1_TO_1"),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("case", [*CASES, *(PER_CHANNEL if HAS_CHANNELS else [])], ids=str)
def test_equals_the_reference(device: DeviceInfo, strategy: Strategy, case: Product) -> None:
    assert_exact_strategy(chain_model([case.node()]), device, strategy)


@st.composite
def products_of(draw: st.DrawFn, rows: tuple[int, int], out_c: tuple[int, int]) -> Product:
    """Draw a product of so many rows and channels, from the first number to the last."""
    return Product(
        shape=(draw(st.integers(*rows)), draw(st.integers(1, 300))),
        out_c=draw(st.integers(*out_c)),
        asymmetric=draw(st.booleans()),
        per_channel=HAS_CHANNELS and draw(st.booleans()),
        fused=draw(st.sampled_from(FUSED)),
        has_bias=draw(st.booleans()),
    )


@st.composite
def products(draw: st.DrawFn) -> Product:
    """Draw a product; a scale a channel where the runtime has that."""
    rows = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    return Product(
        shape=(*rows, draw(st.integers(1, 140))),
        out_c=draw(st.integers(1, 70)),
        asymmetric=draw(st.booleans()),
        per_channel=HAS_CHANNELS and draw(st.booleans()),
        fused=draw(st.sampled_from(FUSED)),
        has_bias=draw(st.booleans()),
        has_odd_bias=draw(st.integers(0, 4)) == 0,
        keeps_dims=draw(st.booleans()),
        bits=draw(st.sampled_from((8, 8, 4))),
    )


test_drawn_products = drawn(products(), STRATEGIES, assert_seeded_or_refused)

NODE = Product(asymmetric=True).node()


def with_weights(values: object, **keywords: object) -> Node:
    """Return NODE on other weights of 35 x 37."""
    data = np.broadcast_to(np.asarray(values, np.int8), (35, 37))
    return changed(NODE, 1, data=np.ascontiguousarray(data), **keywords)


test_refusal = refused(
    {
        "computed": (changed(NODE, 1, data=None), "weights are not constant"),
        "zero_point": (
            with_weights(1, quantization=quantization(0.1, 3)),
            "int8 weights with zero point 3: it must be 0",
        ),
        "least": (
            with_weights([-128] + [1] * 36),
            "a weight of -128: this TFLite flips its sign where an input is negative",
        ),
        "int4_bytes": (
            changed(NODE, 1, dtype="int4", data=np.zeros(9, np.uint8)),
            "9 bytes for int4 35x37",
        ),
        "shuffled": (
            changed(NODE, options={"weights_format": "SHUFFLED4x16INT8"}),
            "weights format SHUFFLED4x16INT8: only DEFAULT",
        ),
        "int32_bias": (
            changed(NODE, 2, data=np.zeros(35, np.int32), dtype="int32"),
            "bias int32 of (35,): float32 of (35,) is needed",
        ),
    }
)


def test_sums_of_weights_in_16_bits() -> None:
    """130 times 2 neighbours of 127 pass 32767; symmetric rows need no such sums."""

    def node(depth: int, asymmetric: bool) -> Node:
        weights = const(np.full((4, depth), 127, np.int8), 1.0)
        options = {"asymmetric_quantize_inputs": asymmetric}
        return op("FULLY_CONNECTED", [t((1, depth)), weights], [t((1, 4))], options, version=9)

    assert ops.lower(node(2079, True), Target())
    assert ops.lower(node(2080, False), Target())
    assert "adds them in 16 bits" in refusal(node(2080, True))
    assert ops.lower(node(2080, True), Target(rules=Rules(rows_round_by_adding=False)))


def test_channels_that_a_runtime_loses() -> None:
    target = Target(rules=Rules(hybrid_loses_channels=True))
    reason = "hybrid with per-channel scales: this TFLite returns only the bias"
    assert refusal(PER_CHANNEL[0].node(), target) == reason
    assert ops.lower(NODE, target)


def test_processors_that_were_not_compared() -> None:
    for runtime, processor in (("ai-edge-litert", "riscv64"), ("tflite-runtime", "aarch64")):
        reason = f"hybrid: how {runtime} quantises rows of floats on {processor} is not known"
        rules = Rules(runtime=runtime, processor=processor)
        assert refusal(NODE, Target(rules=rules)) == reason
    assert ops.lower(NODE, Target(rules=AARCH64))


AARCH64 = Rules(processor="aarch64", rows_round_by_adding=False)


@pytest.mark.parametrize("strategy", [PLAIN, SIMT, LANES_8, LANES_16, *ARM_OR_OTHER], ids=str)
@pytest.mark.parametrize("rows", [1, 9])
def test_sums_with_a_bias_that_are_rounded_once(
    device: DeviceInfo, strategy: Strategy, rows: int
) -> None:
    """As on aarch64. The rows are whole numbers with a scale of 1, so that they stay what they are.

    Biases are about as large as products, or halves of their last places from a tie.
    """
    rng = np.random.default_rng(rows)
    depth, out_c = 31, 133
    require_isa(strategy, device)
    values = rng.integers(-126, 127, (rows, depth)).astype(np.float32)
    values[:, 0] = 127
    weights = rng.integers(-127, 127, (out_c, depth), endpoint=True).astype(np.int8)
    scale = np.float32(rng.uniform(0.01, 0.1))
    products = (values @ weights.T.astype(np.float32)).astype(np.float64) * np.float64(scale)
    bias = (-products[0] * 2.0 ** rng.integers(-26, 26, out_c)).astype(np.float32)
    bias[::3] = -products[0, ::3].astype(np.float32)
    bias[1], bias[2] = np.inf, 0
    node = op(
        "FULLY_CONNECTED",
        [t(values.shape), const(weights, float(scale)), const(bias)],
        [t((rows, out_c))],
        {"asymmetric_quantize_inputs": False, "keep_num_dims": False},
        version=9,
    )
    model = chain_model([node])
    with forced(replace(strategy, facts={**strategy.facts, "rules": AARCH64})):
        delegate = OpenCLDelegate(model, device.index, tune="off")
        (found,) = invoke(interpreter(model, delegate), [values])
    once = (products.astype(np.longdouble) + bias).astype(np.float32)
    twice = products.astype(np.float32) + bias
    assert np.sum(once != twice) > out_c // 8, "nothing was compared"
    np.testing.assert_array_equal(found, once)


@pytest.mark.parametrize(
    ("sizes", "depends"),
    [
        ((1, 256, 128), False),
        ((4, 16, 16), True),
        ((4, 40, 32), False),
        ((4, 64, 63), False),
        ((2, 64, 64), False),
        ((2, 256, 130), True),
        ((12, 64, 64), True),
        ((16, 64, 64), False),
        ((64, 64, 66), True),
        ((20, 64, 16), False),
        ((28, 16, 64), True),
        ((32, 16, 64), False),
        ((60, 16, 240), True),
        ((64, 16, 240), False),
        ((124, 16, 256), True),
        ((128, 16, 256), False),
        ((60, 512, 64), True),
        ((64, 512, 64), False),
    ],
)
def test_sizes_for_which_dot_products_round_otherwise(
    sizes: tuple[int, int, int], depends: bool
) -> None:
    """Rows, depth and units, as ai-edge-litert 2.3.0 was seen on aarch64 with and without them."""
    assert depends_on_dot_products(*sizes) == depends
    for twice in (False, True):
        rules = replace(AARCH64, rounds_rows_twice=twice)
        assert rounds_once(rules, *sizes) == (not depends or not twice)
    assert not rounds_once(Rules(), *sizes)


def test_rows_whose_rounding_is_not_known() -> None:
    reason = "hybrid: how this TFLite rounds sums of 4 rows is not known"
    rows, target = Product(shape=(4, 48), out_c=8), Target(rules=AARCH64)
    assert refusal(rows.node(), target) == reason
    assert ops.lower(replace(rows, has_bias=False).node(), target)  # which is added to nothing


NODES = {"fully_connected_hybrid": NODE, "fully_connected_symmetric": Product().node()}
BUILT = [case.node() for case in CASES]

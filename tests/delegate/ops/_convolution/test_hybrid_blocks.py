# SPDX-License-Identifier: Apache-2.0
"""Float rows and int4 weights in blocks, against TFLite's built-in kernels, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Blocks, Node
from delegate.target import Rules, Target
from tests.delegate.ops._convolution.test_hybrid import AARCH64
from tests.support.cases import (
    ARM_OR_OTHER,
    DOTS,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    X86,
    Strategy,
    assert_exact_strategy,
    changed,
    forced,
    require_isa,
)
from tests.support.cases import refusal as refusal_of
from tests.support.compare import RUNTIME, interpreter, invoke
from tests.support.factories import assert_seeded_or_refused, drawn, exact, refused
from tests.support.model import chain_model, const, op, t
from tests.support.tiers import where_rows_are_known
from tflite_opencl.models.build import as_int4, in_blocks

pytestmark = [
    where_rows_are_known,
    pytest.mark.skipif(RUNTIME.name == "tflite-runtime", reason="it knows no blocks"),
]
STRATEGIES = (PLAIN, SIMT, LANES_8, LANES_16, *X86, *ARM_OR_OTHER, replace(DOTS[0], alternative=""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One FULLY_CONNECTED with weights in blocks."""

    shape: tuple[int, ...] = (5, 64)
    out_c: int = 19
    size: int = 32  # of a block
    has_bias: bool = True
    asymmetric: bool = True
    keeps_dims: bool = False

    def __str__(self) -> str:
        parts = {
            "in" + "x".join(map(str, self.shape)): True,
            f"out{self.out_c}-of{self.size}": True,
            "no_bias": not self.has_bias,
            "symmetric": not self.asymmetric,
            "keep_num_dims": self.keeps_dims,
        }
        return "-".join(part for part, is_said in parts.items() if is_said)

    def node(self, seed: int = 0) -> Node:
        rng = np.random.default_rng(seed)
        in_c = self.shape[-1]
        rows = int(np.prod(self.shape)) // in_c
        values = as_int4(const(rng.integers(-128, 128, (self.out_c, in_c)).astype(np.int8)))
        weights = in_blocks(values, rng.normal(0, 0.1, (self.out_c, in_c // self.size)))
        bias = const(rng.standard_normal(self.out_c).astype(np.float32))
        options = {
            "fused_activation_function": "NONE",
            "keep_num_dims": self.keeps_dims,
            "asymmetric_quantize_inputs": self.asymmetric,
        }
        out = (*self.shape[:-1], self.out_c) if self.keeps_dims else (rows, self.out_c)
        inputs = [t(self.shape), weights, bias if self.has_bias else None]
        return op("FULLY_CONNECTED", inputs, [t(out)], options, version=12)


CASES = [
    Product(),
    Product(shape=(1, 96), out_c=33, asymmetric=False),
    Product(shape=(9, 32), out_c=4, has_bias=False),
    Product(shape=(3, 320), out_c=8, size=64),
    Product(shape=(4, 48), out_c=17, size=2),
    Product(shape=(2, 3, 128), out_c=18, size=128, keeps_dims=True),
    Product(shape=(2, 2, 160), out_c=16, size=10),
    Product(shape=(7, 96), out_c=50),
    Product(shape=(2, 256), out_c=70, size=128),
]
test_exact = exact(CASES, STRATEGIES)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_rows_of_zeros_and_scales_of_zero(device: DeviceInfo, strategy: Strategy) -> None:
    """What is 0 keeps TFLite's sign: (0 - zero * offset) * scale + bias."""
    node = Product(shape=(3, 64), out_c=16, has_bias=False).node()
    scales = np.zeros((16, 2), np.float16)
    scales[8:] = -0.25
    node = changed(node, 1, blocks=Blocks(scales, 32))
    rows = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    rows[1] = 0
    sets = [[rows], [-np.abs(rows)], [0 * rows]]
    assert_exact_strategy(chain_model([node]), device, strategy, inputs=sets)


def rounded(values: NDArray[np.longdouble]) -> NDArray[np.float32]:
    return values.astype(np.float32)


@pytest.mark.parametrize("strategy", [PLAIN, SIMT, LANES_8, LANES_16, *ARM_OR_OTHER], ids=str)
@pytest.mark.parametrize("rows", [1, 5])
def test_sums_that_are_rounded_once(device: DeviceInfo, strategy: Strategy, rows: int) -> None:
    """As on aarch64. The rows are whole numbers with a scale of 1, and -28 for 0.

    Each block's product is added to the sum by one fused operation, and the zero point's, but the
    bias is not.
    """
    require_isa(strategy, device)
    case = Product(shape=(rows, 1024), out_c=160, size=256)
    node = case.node()
    values = np.random.default_rng(rows).integers(-100, 155, case.shape, endpoint=True)
    values[:, :2] = -100, 155
    _, weights, bias = node.inputs
    assert weights is not None
    assert weights.data is not None
    assert weights.blocks is not None
    assert bias is not None
    assert bias.data is not None
    pairs = weights.data.view(np.uint8).reshape(case.out_c, 4, -1)
    of_blocks = np.stack([pairs & 15, pairs >> 4], -1).reshape(case.out_c, 4, -1)
    signed = (of_blocks.astype(np.int64) ^ 8) - 8
    sums = np.einsum("rbi,obi->bro", (values - 28).reshape(rows, 4, -1), signed)
    scales = weights.blocks.scales.astype(np.longdouble).T
    once = twice = np.zeros(sums.shape[1:], np.float32)
    offset = np.zeros(case.out_c, np.float32)
    for of_block, scale, weight_sums in zip(sums, scales, signed.sum(2).T, strict=True):
        offset = rounded(offset + weight_sums * scale)
        once = rounded(once + of_block * scale)
        twice = twice + rounded(of_block * scale)
    expected = rounded(once + 28 * offset.astype(np.longdouble)) + bias.data
    assert np.sum(expected != twice + np.float32(28) * offset + bias.data) > case.out_c // 16
    with forced(replace(strategy, facts={**strategy.facts, "rules": AARCH64})):
        delegate = OpenCLDelegate(chain_model([node]), device.index, tune="off")
        (found,) = invoke(interpreter(chain_model([node]), delegate), [values.astype(np.float32)])
    np.testing.assert_array_equal(found, expected)


@st.composite
def products(draw: st.DrawFn) -> Product:
    rows = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    size = draw(st.sampled_from([32, 32, 64, 96, *range(2, 82, 2)]))
    least = -(-32 // size)
    return Product(
        shape=(*rows, size * draw(st.integers(least, least + 6))),
        out_c=draw(st.integers(4, 70)),
        size=size,
        has_bias=draw(st.booleans()),
        asymmetric=draw(st.booleans()),
        keeps_dims=draw(st.booleans()),
    )


test_drawn = drawn(products(), STRATEGIES, assert_seeded_or_refused)

NODE = Product().node()


def with_blocks(size: int, *shape: int, dtype: str = "float16") -> Node:
    return changed(NODE, 1, blocks=Blocks(np.ones(shape, dtype), size))


def with_weights(rows: int, depth: int) -> Node:
    return Product(shape=(2, depth), out_c=rows, size=2).node()


test_refusal = refused(
    {
        "activation": (
            changed(NODE, options={"fused_activation_function": "RELU"}),
            "an activation after weights in blocks: this TFLite ignores it",
        ),
        "computed": (changed(NODE, 1, data=None), "weights are not constant"),
        "bytes": (
            changed(NODE, 1, data=np.zeros(9, np.uint8)),
            "9 bytes for int4 19x64: one for two values is needed",
        ),
        "few_rows": (
            with_weights(3, 64),
            "weights 3x64 in blocks: TFLite takes no scales of fewer than 4 rows of 32",
        ),
        "short_rows": (
            with_weights(4, 30),
            "weights 4x30 in blocks: TFLite takes no scales of fewer than 4 rows of 32",
        ),
        "a_rest": (
            with_blocks(24, 19, 3),
            "rows of 64 in blocks of 24: whole blocks of pairs are needed",
        ),
        "odd": (
            changed(
                Product(shape=(2, 66)).node(), 1, blocks=Blocks(np.ones((19, 2), np.float16), 33)
            ),
            "rows of 66 in blocks of 33: whole blocks of pairs are needed",
        ),
        "float32_scales": (
            with_blocks(32, 19, 2, dtype="float32"),
            "scales of blocks float32 of (19, 2): float16 of (19, 2) is needed",
        ),
        "other_scales": (
            with_blocks(32, 38),
            "scales of blocks float16 of (38,): float16 of (19, 2) is needed",
        ),
        "infinite": (
            changed(NODE, 1, blocks=Blocks(np.full((19, 2), np.inf, np.float16), 32)),
            "a scale of a block is not finite",
        ),
        "int8": (
            changed(NODE, 1, dtype="int8", data=np.ones((19, 64), np.int8)),
            "int8 weights in blocks: only int4",
        ),
        "int8_activations": (
            replace(
                changed(NODE, 0, dtype="int8"), outputs=(replace(NODE.outputs[0], dtype="int8"),)
            ),
            "weights in blocks with int8 activations: only float32",
        ),
        "shuffled": (
            changed(NODE, options={"weights_format": "SHUFFLED4x16INT8"}),
            "weights format SHUFFLED4x16INT8: only DEFAULT",
        ),
    }
)


def test_a_runtime_without_blocks() -> None:
    reason = "int4 weights in blocks: this TFLite does not know them"
    assert refusal_of(NODE, Target(rules=Rules(knows_blocks=False))) == reason
    assert ops.lower(NODE, Target())


@pytest.mark.parametrize("strategy", [PLAIN, SIMT, LANES_8, LANES_16], ids=str)
@pytest.mark.parametrize("rows", [1, 9])
def test_sums_of_long_blocks_that_are_rounded_once(
    device: DeviceInfo, strategy: Strategy, rows: int
) -> None:
    """As on aarch64. Rows of whole numbers from -100 to 155 have a scale of 1 and a zero of -28.

    Blocks are so long, and weights so large, that products with scales have more than 24 bits.
    """
    rng = np.random.default_rng(rows)
    blocks, size, out_c = 5, 512, 36
    values = rng.integers(-100, 155, (rows, blocks * size), endpoint=True).astype(np.float32)
    values[:, :2] = -100, 155
    weights = rng.integers(3, 8, (out_c, blocks * size)).astype(np.int8)
    scales = rng.uniform(1e-3, 0.1, (out_c, blocks)).astype(np.float16)
    bias = rng.standard_normal(out_c).astype(np.float32)
    stored = in_blocks(as_int4(const(weights << 4)), scales)
    options = {"asymmetric_quantize_inputs": True}
    given = [t(values.shape), stored, const(bias)]
    node = op("FULLY_CONNECTED", given, [t((rows, out_c))], options, version=12)
    model = chain_model([node])
    with forced(replace(strategy, facts={**strategy.facts, "rules": AARCH64})):
        delegate = OpenCLDelegate(model, device.index, tune="off")
        (found,) = invoke(interpreter(model, delegate, "builtin"), [values])
    zero = np.longdouble(-28)
    cut = (values.astype(np.int64) - 28).reshape(rows, 1, blocks, size)
    sums = (cut * weights.reshape(out_c, blocks, size)).sum(-1)
    offsets = weights.reshape(out_c, blocks, size).sum(-1, dtype=np.int64)

    def added(of_blocks: NDArray[np.int64], rounded: type[np.floating[Any]]) -> NDArray[Any]:
        total = np.zeros(of_blocks.shape[:-1], np.float32)
        for block in range(blocks):
            product = of_blocks[..., block] * scales[:, block].astype(np.longdouble)
            total = (total + product.astype(rounded)).astype(np.float32)
        return total

    def expected(rounded: type[np.floating[Any]]) -> NDArray[Any]:
        less = (zero * added(offsets, rounded)).astype(rounded)
        return (added(sums, rounded) - less).astype(np.float32) + bias

    once = expected(np.longdouble)
    assert np.sum(once != expected(np.float32)) > rows * out_c // 8, "nothing was compared"
    np.testing.assert_array_equal(found, once)


NODES = {"fully_connected_blocks_hybrid": NODE}
BUILT = [case.node() for case in CASES]

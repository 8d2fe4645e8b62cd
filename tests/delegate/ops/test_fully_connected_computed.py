# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED with computed weights: what it lowers to, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node, sum_bound
from tests.delegate.ops.test_fully_connected import STEEP, Product, products
from tests.support.cases import (
    FUSED,
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    Strategy,
    assert_exact_strategy,
    changed,
    only_launch,
)
from tests.support.compare import Arrays, Bounds
from tests.support.convolution import RULES
from tests.support.factories import assert_case_or_refused, drawn
from tests.support.floats import assert_float_strategies
from tests.support.model import chain_model, const, op, t

STRATEGIES = (PLAIN, SIMT, LANES_4, LANES_8, LANES_16)


def computed(node: Node) -> Node:
    """Return a node with the same tensors whose weights are an input."""
    return changed(node, 1, data=None)


def floats(rows: int, depth: int, units: int, fused: str = "NONE", has_bias: bool = True) -> Node:
    bias = const(np.random.default_rng(3).normal(size=units).astype(np.float32))
    return op(
        "FULLY_CONNECTED",
        [t((rows, depth)), t((units, depth)), bias if has_bias else None],
        [t((rows, units))],
        {"fused_activation_function": fused, "keep_num_dims": False},
    )


@pytest.mark.parametrize(
    ("strategy", "rows", "names"),
    [
        (SIMT, 3, ["row 4x4", "plain"]),
        (LANES_8, 3, ["row 8x4", "plain"]),
        (LANES_8, 16, ["turned vector 8x8", "row 8x4", "plain"]),
    ],
    ids=str,
)
def test_alternatives_of_batch_matmul(strategy: Strategy, rows: int, names: list[str]) -> None:
    node = computed(Product(shape=(rows, 11), dtype="int8").node())
    found = ops.lower(node, strategy.target)
    assert [each.name for each in found] == names
    kernels = {launch.file for each in found for launch in each.launches}
    assert kernels <= {"batch_matmul", "copy"}


CASES = [
    Product(shape=(1, 1), out_c=1),
    Product(shape=(1, 61), out_c=16),
    Product(shape=(5, 7), out_c=8, has_bias=False),
    Product(shape=(2, 3, 4), in_c=6, out_c=9),
    Product(shape=(2, 3, 7), out_c=9, keeps_dims=True, fused="RELU6"),
    Product(shape=(33, 40), out_c=37),
    Product(shape=(17, 64), out_c=33, multiplier=1 / 14, fused="RELU"),
    Product(shape=(3, 11), out_c=5, multiplier=1.7),
    Product(shape=(1, 7 * 7 * 640), out_c=3, multiplier=2.0**-14),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_computed_weights(
    case: Product, dtype: str, strategy: Strategy, device: DeviceInfo
) -> None:
    node = computed(replace(case, dtype=dtype).node())
    assert assert_exact_strategy(chain_model([node]), device, strategy)


@pytest.mark.parametrize("strategy", [PLAIN, SIMT, LANES_8], ids=str)
@pytest.mark.parametrize("weight", [-128, 17, 127])
def test_zero_points_at_both_ends(weight: int, strategy: Strategy, device: DeviceInfo) -> None:
    for ends in ((-128, 127), (127, -128)):
        case = Product(shape=(19, 24), dtype="int8", zeros=(ends[0], weight, ends[1]))
        assert_exact_strategy(chain_model([computed(case.node())]), device, strategy)


@pytest.mark.skipif(RULES.int16_sums_of_int32, reason="this TFLite has no product of doubles")
@pytest.mark.parametrize("strategy", [PLAIN, LANES_8], ids=str)
@pytest.mark.parametrize("case", [c for c in STEEP if not c.per_channel], ids=str)
def test_double_products(case: Product, strategy: Strategy, device: DeviceInfo) -> None:
    """A bias of 2^30 beside them: no 31-bit multiplier stands for such scales."""
    bias = np.linspace(-(2**30), 2**30, case.out_c).astype(np.int32)
    bias[0] = 2**30
    node = computed(changed(case.node(), 2, data=bias))
    assert only_launch(ops.lower(node, strategy.target)[-1]).file == "fully_connected"
    assert assert_exact_strategy(chain_model([node]), device, strategy) == {"plain"}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize(
    "node",
    [
        floats(1, 1, 1),
        floats(3, 11, 9),
        floats(5, 33, 8, has_bias=False),
        *(floats(18, 21, 23, fused) for fused in FUSED[1:]),
    ],
    ids=["one", "few", "without_bias", *FUSED[1:]],
)
def test_floats(node: Node, strategy: Strategy, device: DeviceInfo) -> None:
    bias = node.inputs[2]
    beside = 0 if bias is None or bias.data is None else np.abs(bias.data)

    def bounds(inputs: Arrays) -> Bounds:
        rows, weights = (np.abs(values.astype(np.float64)) for values in inputs)
        return [sum_bound(rows @ weights.T + beside, rows.shape[1] + 1)]

    assert_float_strategies(node, device, strategy, bounds)


def test_a_matrix_of_the_same_graph(device: DeviceInfo) -> None:
    """Weights that the node before makes, read by two rows' products: one partition."""
    made, x, y = t((6, 10), "int8", 0.02, 3), t((4, 10), "int8", 0.05, -7), t((4, 6), "int8", 1, 5)
    before = op("RELU", [t((6, 10), "int8", 0.02, 3)], [made])
    node = op("FULLY_CONNECTED", [x, made, None], [y], {"keep_num_dims": False}, version=4)
    assert assert_exact_strategy(chain_model([before, node]), device, LANES_8)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    case = draw(products().filter(lambda each: each.dtype != "int16"))
    return computed(replace(case, per_channel=False).node())


test_drawn = drawn(nodes(), STRATEGIES, assert_case_or_refused)

BUILT = [
    *(
        computed(Product(shape=(rows, channels), out_c=channels, dtype=dtype).node())
        for rows in (1, 25)
        for channels in (8, 33)
        for dtype in ("uint8", "int8")
    ),
    *(floats(rows, 33, 33) for rows in (1, 25)),
    computed(STEEP[2].node()),
]

# SPDX-License-Identifier: Apache-2.0
"""Hybrid FULLY_CONNECTED and CONV_2D by Arm's instructions: what is offered, and its numbers.

Where there is no such processor, stand-ins for them run. `.ci/aarch64` runs a share of the cases
in an emulator.
"""

from __future__ import annotations

import pytest
from hypothesis import given

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.delegate.ops._convolution.test_hybrid import HAS_CHANNELS, Product, products_of
from tests.support.cases import (
    ARM,
    DOTPROD,
    I8MM,
    SEEDS,
    Strategy,
    assert_exact_or_refused,
    assert_exact_strategy,
)
from tests.support.hybrid import assert_packed_once
from tests.support.model import chain_model
from tests.support.tiers import where_rows_are_known
from tflite_opencl.conformance.cases._convolution import HYBRID, ConvCase

pytestmark = where_rows_are_known
strategies = pytest.mark.parametrize("strategy", ARM, ids=str)

# What lower() returns.


def _names(node: Node, strategy: Strategy) -> list[str]:
    return [each.name for each in ops.lower(node, strategy.target)]


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (1, ["i8mm 1x16", "dotprod 1x16"]),
        (2, ["i8mm 2x16", "dotprod 2x16"]),
        (3, ["i8mm 2x16", "dotprod 2x16"]),
        (4, ["i8mm 4x16", "dotprod 4x16"]),
        (8, ["i8mm 4x16", "dotprod 4x16"]),
        (128, ["i8mm 4x16", "dotprod 4x16", "dotprod 5x16"]),
    ],
)
def test_blocks_of_rows(rows: int, names: list[str]) -> None:
    found = _names(Product(shape=(rows, 64)).node(), I8MM)
    assert found[: len(names)] == names
    assert not any(name.startswith(("i8mm", "dotprod")) for name in found[len(names) :])
    assert found[-1] == "plain"


@pytest.mark.parametrize("strategy", [DOTPROD, I8MM], ids=str)
def test_weights_are_packed_once_for_any_rows(strategy: Strategy) -> None:
    """A language model's prefill and decode share them."""
    cases = [Product(shape=(rows, 37)).node() for rows in (1, 3, 128)]
    launches = [ops.lower(node, strategy.target)[0].launches[-1] for node in cases]
    assert_packed_once(launches, "weights")


def test_not_of_few_channels() -> None:
    names = _names(Product(out_c=15).node(), I8MM)
    assert not any(name.startswith(("i8mm", "dotprod")) for name in names)


# Its numbers.


def _assert_exact(node: Node, device: DeviceInfo, strategy: Strategy) -> None:
    taken = assert_exact_strategy(chain_model([node]), device, strategy)
    assert {name.split()[0] for name in taken} == {strategy.alternative}


PRODUCTS = [
    # Around a block of rows, and of channels; rows that end within a product.
    *(
        Product(shape=(rows, depth), out_c=out_c, asymmetric=rows % 2 == 0)
        for rows, depth, out_c in (
            *((1, 64, 16), (1, 37, 35), (2, 5, 33), (3, 16, 17), (4, 20, 31), (5, 130, 48)),
            *((6, 1, 16), (7, 31, 40), (9, 8, 16), (11, 44, 19)),
        )
    ),
    Product(shape=(1, 1100), out_c=70, asymmetric=True, fused="RELU6"),
    Product(shape=(1, 3, 96), out_c=24, asymmetric=True, bits=4, has_bias=False),
    Product(shape=(2, 40), out_c=19, has_odd_bias=True),
]
PER_CHANNEL = [
    Product(shape=(1, 72), out_c=50, per_channel=True, fused="RELU"),
    Product(shape=(13, 33), out_c=32, per_channel=True, asymmetric=True),
]
CONVOLUTIONS = [
    ConvCase(size=(6, 19, 5), out_c=45, fused="RELU"),
    ConvCase(size=(5, 21, 16), kernel=(3, 2), out_c=32, padding="VALID"),
    ConvCase(size=(3, 2, 70), kernel=(2, 2), out_c=33),
    ConvCase(size=(3, 5, 9), kernel=(1, 1), out_c=20, batch=3),
    ConvCase(size=(6, 9, 4), out_c=17, stride=(2, 1), dilation=(1, 2)),
    ConvCase(size=(1, 1, 24), kernel=(1, 1), out_c=40),
]
BUILT = [case.node() for case in PRODUCTS] + [case.node(HYBRID[1], None) for case in CONVOLUTIONS]


@strategies
@pytest.mark.parametrize("case", [*PRODUCTS, *(PER_CHANNEL if HAS_CHANNELS else [])], ids=str)
def test_fully_connected(case: Product, device: DeviceInfo, strategy: Strategy) -> None:
    _assert_exact(case.node(), device, strategy)


@strategies
@pytest.mark.parametrize("kind", HYBRID)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_conv_2d(case: ConvCase, kind: str, device: DeviceInfo, strategy: Strategy) -> None:
    _assert_exact(case.node(kind, None), device, strategy)


@pytest.mark.parametrize("strategy", [DOTPROD, I8MM], ids=str)
@given(case=products_of((1, 12), (16, 70)), seed=SEEDS)
def test_drawn_products(device: DeviceInfo, case: Product, seed: int, strategy: Strategy) -> None:
    assert_exact_or_refused(chain_model([case.node(seed)]), device, strategy, seed)

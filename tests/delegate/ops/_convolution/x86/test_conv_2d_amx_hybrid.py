# SPDX-License-Identifier: Apache-2.0
"""Hybrid FULLY_CONNECTED and CONV_2D by AMX's tiles: what is offered, and its numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.ops._convolution.x86 import tiles
from tests.delegate.ops._convolution.test_hybrid import HAS_CHANNELS, Product, products_of
from tests.support.cases import (
    AMX,
    FUSED,
    SEEDS,
    Strategy,
    assert_exact_or_refused,
    assert_exact_strategy,
    changed,
)
from tests.support.hybrid import assert_packed_once
from tests.support.model import chain_model
from tests.support.tiers import where_rows_are_known
from tflite_opencl.conformance.cases._convolution import HYBRID, ConvCase

pytestmark = where_rows_are_known

WIDE = Product(shape=(64, 128), out_c=64, asymmetric=True)
BUILT = [WIDE.node(), ConvCase(size=(9, 9, 64), out_c=64).node(HYBRID[1], None)]

# What lower() returns.


def _names(node: Node, strategy: Strategy = AMX) -> list[str]:
    return [each.name for each in ops.lower(node, strategy.target)]


@pytest.mark.parametrize(
    ("rows", "depth", "names"),
    [
        (1, 576, ["vnni 1x32"]),
        (5, 576, ["vnni 4x32"]),
        (6, 576, ["amx 6x32", "vnni 4x32"]),
        (64, 576, ["amx 32x32", "vnni 7x32"]),
        (128, 128, ["amx 32x32", "vnni 7x32"]),
        (1500, 384, ["amx 32x32", "vnni 7x32"]),
    ],
)
def test_rows_that_are_expected_to_be_faster(rows: int, depth: int, names: list[str]) -> None:
    case = Product(shape=(rows, depth), out_c=96)
    assert _names(case.node())[: len(names)] == names


def test_convolutions() -> None:
    node = ConvCase(size=(9, 40, 64), out_c=64).node(HYBRID[1], None)
    assert _names(node)[:2] == ["amx 30x32", "vnni 7x32"]


@pytest.mark.parametrize(
    "facts", [{"isa": frozenset({"amx"})}, {"device_type": "gpu"}], ids=["without_vnni", "gpu"]
)
def test_not_without_instructions_and_of_few_channels(facts: dict[str, object]) -> None:
    few = replace(WIDE, out_c=31)
    for case, strategy in ((WIDE, Strategy("other", {**AMX.facts, **facts})), (few, AMX)):
        assert not any("amx" in name for name in _names(case.node(), strategy))


def test_weights_are_packed_once_for_many_rows_and_for_one() -> None:
    """Of whole loads of a register: a language model's prefill and decode share them."""
    cases = [Product(shape=(rows, 576), out_c=70).node() for rows in (64, 1)]
    launches = [ops.lower(node, AMX.target)[0].launches[-1] for node in cases]
    assert_packed_once(launches, "weights")


# Its numbers.


@pytest.fixture
def _is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_is_faster", lambda *arguments: True)


def _assert_exact(node: Node, device: DeviceInfo) -> None:
    taken = assert_exact_strategy(chain_model([node]), device, AMX)
    assert all(name.startswith("amx") for name in taken), taken


PRODUCTS = [
    # Around a block of rows and of channels, and around a load of a register.
    *(
        Product(shape=(rows, depth), out_c=out_c, asymmetric=rows % 2 == 0)
        for rows, depth, out_c in (
            *((6, 64, 32), (7, 37, 35), (16, 1, 33), (31, 63, 63), (32, 65, 64), (33, 128, 65)),
            *((49, 20, 96), (64, 130, 70), (150, 8, 40), (9, 200, 45)),
        )
    ),
    Product(shape=(3, 40, 96), out_c=34, keeps_dims=True, fused="RELU6", asymmetric=True),
    Product(shape=(35, 72), out_c=40, asymmetric=True, bits=4, has_bias=False),
    Product(shape=(34, 40), out_c=39, has_odd_bias=True),
]
PER_CHANNEL = [
    Product(shape=(40, 72), out_c=50, per_channel=True, fused="RELU"),
    Product(shape=(33, 33), out_c=32, per_channel=True, asymmetric=True),
]
CONVOLUTIONS = [
    ConvCase(size=(6, 19, 5), out_c=45, fused="RELU"),
    ConvCase(size=(5, 51, 64), kernel=(3, 2), out_c=32, padding="VALID"),
    ConvCase(size=(3, 2, 70), kernel=(2, 2), out_c=33),
    ConvCase(size=(3, 15, 9), kernel=(1, 1), out_c=40, batch=3),
    ConvCase(size=(6, 9, 4), out_c=37, stride=(2, 1), dilation=(1, 2)),
    ConvCase(size=(1, 70, 24), kernel=(1, 3), out_c=40, stride=(1, 2)),
]


@pytest.mark.usefixtures("_is_offered")
@pytest.mark.parametrize("case", [*PRODUCTS, *(PER_CHANNEL if HAS_CHANNELS else [])], ids=str)
def test_fully_connected(case: Product, device: DeviceInfo) -> None:
    _assert_exact(case.node(), device)


@pytest.mark.usefixtures("_is_offered")
@pytest.mark.parametrize("kind", HYBRID)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_conv_2d(case: ConvCase, kind: str, device: DeviceInfo) -> None:
    _assert_exact(case.node(kind, None), device)


@pytest.mark.usefixtures("_is_offered")
@pytest.mark.parametrize("asymmetric", [False, True], ids=["symmetric", "asymmetric"])
def test_weights_at_the_ends_of_their_range(device: DeviceInfo, asymmetric: bool) -> None:
    """The sums of neighbouring products pass 16 bits."""
    node = replace(WIDE, asymmetric=asymmetric).node()
    weights = np.resize(np.array([-127, 127], np.int8), (64, 128))
    weights[32:] = 127
    _assert_exact(changed(node, 1, data=weights), device)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Draw a product, or a convolution of either kind, for which a block has enough channels."""
    if draw(st.booleans()):
        size = draw(st.integers(1, 9)), draw(st.integers(1, 40)), draw(st.integers(1, 140))
        case = ConvCase(
            size=size,
            kernel=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
            out_c=draw(st.integers(32, 80)),
            stride=(draw(st.integers(1, 2)), draw(st.integers(1, 2))),
            dilation=(draw(st.integers(1, 2)), 1),
            padding=draw(st.sampled_from(("SAME", "VALID"))),
            fused=draw(st.sampled_from(FUSED)),
        )
        if case.fits:
            return case.node(draw(st.sampled_from(HYBRID)), None)
    return draw(products_of((6, 80), (32, 100))).node(draw(SEEDS))


@pytest.mark.usefixtures("_is_offered")
@given(node=nodes(), seed=SEEDS)
def test_drawn(device: DeviceInfo, node: Node, seed: int) -> None:
    assert_exact_or_refused(chain_model([node]), device, AMX, seed)

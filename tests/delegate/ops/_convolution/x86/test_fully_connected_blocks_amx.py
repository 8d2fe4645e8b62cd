# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED with int4 weights in blocks by AMX's tiles: what is offered, and its numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from tests.delegate.ops._convolution.test_hybrid_blocks import Product
from tests.support.cases import AMX, SEEDS, assert_exact_or_refused, assert_exact_strategy
from tests.support.compare import RUNTIME
from tests.support.hybrid import assert_packed_once
from tests.support.model import chain_model
from tests.support.tiers import where_rows_are_known

pytestmark = [
    where_rows_are_known,
    pytest.mark.skipif(RUNTIME.name == "tflite-runtime", reason="it knows no blocks"),
]
CASES = [
    Product(shape=(rows, depth), out_c=out_c, size=size, has_bias=rows % 2 == 0)
    for rows, depth, out_c, size in (
        *((16, 32, 32, 32), (17, 576, 70, 32), (31, 256, 35, 128), (32, 96, 63, 32)),
        *((33, 320, 96, 64), (50, 192, 40, 96), (64, 512, 33, 256)),
    )
]
BUILT = [case.node() for case in CASES]


def _names(case: Product) -> list[str]:
    return [each.name for each in ops.lower(case.node(), AMX.target)]


def test_blocks_of_rows() -> None:
    for rows, name in ((1, "vnni 1x32"), (16, "amx 16x32"), (64, "amx 32x32")):
        assert _names(Product(shape=(rows, 64), out_c=40))[0] == name
    for other in (Product(shape=(64, 64), out_c=31), Product(shape=(64, 64), out_c=40, size=16)):
        assert not any(name.startswith("amx") for name in _names(other))


def test_weights_are_packed_once_for_any_rows() -> None:
    """A language model's prefill and decode share them."""
    cases = [Product(shape=(rows, 96), out_c=40).node() for rows in (64, 1)]
    launches = [ops.lower(node, AMX.target)[0].launches[-1] for node in cases]
    assert_packed_once(launches, "weights", "scales")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact(case: Product, device: DeviceInfo) -> None:
    taken = assert_exact_strategy(chain_model([case.node()]), device, AMX)
    assert {name.split()[0] for name in taken} == {"amx"}


@st.composite
def products(draw: st.DrawFn) -> Product:
    size = 32 * draw(st.integers(1, 3))
    return Product(
        shape=(draw(st.integers(16, 80)), size * draw(st.integers(1, 6))),
        out_c=draw(st.integers(32, 100)),
        size=size,
        has_bias=draw(st.booleans()),
        asymmetric=draw(st.booleans()),
        keeps_dims=draw(st.booleans()),
    )


@given(case=products(), seed=SEEDS)
def test_drawn(device: DeviceInfo, case: Product, seed: int) -> None:
    assert_exact_or_refused(chain_model([case.node(seed)]), device, AMX, seed)

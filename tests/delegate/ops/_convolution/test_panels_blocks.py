# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED with int4 weights in blocks by Arm's SDOT: what is offered, and its numbers.

Where there is no such processor, stand-ins for it run. `.ci/aarch64` runs a share of the cases in
an emulator. test_hybrid_blocks.py has x86's cases.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, ops
from tests.delegate.ops._convolution.test_hybrid_blocks import Product
from tests.support.cases import DOTPROD, EMULATED_DOTPROD, Strategy, assert_exact_strategy, changed
from tests.support.compare import RUNTIME
from tests.support.hybrid import assert_packed_once
from tests.support.model import chain_model
from tests.support.tiers import where_rows_are_known

pytestmark = [
    where_rows_are_known,
    pytest.mark.skipif(RUNTIME.name == "tflite-runtime", reason="it knows no blocks"),
]
CASES = [
    Product(shape=(rows, depth), out_c=out_c, size=size, has_bias=rows != 2)
    for rows, depth, out_c, size in (
        *((1, 32, 16, 32), (1, 576, 70, 32), (1, 256, 35, 128), (2, 96, 17, 32)),
        *((3, 320, 31, 64), (4, 64, 48, 32), (5, 192, 40, 96), (8, 1024, 33, 256)),
    )
]
BUILT = [case.node() for case in CASES]


def test_blocks_of_rows() -> None:
    for rows, name in ((1, "dotprod 1x16"), (2, "dotprod 2x16"), (9, "dotprod 2x16")):
        node = Product(shape=(rows, 64)).node()
        assert ops.lower(node, DOTPROD.target)[0].name == name
    for other in (Product(out_c=15), Product(size=16)):
        assert not ops.lower(other.node(), DOTPROD.target)[0].name.startswith("dotprod")


def test_weights_are_packed_once_for_any_rows() -> None:
    cases = [Product(shape=(rows, 64)).node() for rows in (1, 5)]
    launches = [ops.lower(node, DOTPROD.target)[0].launches[-1] for node in cases]
    assert_packed_once(launches, "weights", "scales")


strategies = pytest.mark.parametrize("strategy", [DOTPROD, EMULATED_DOTPROD], ids=str)


@strategies
@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact(case: Product, device: DeviceInfo, strategy: Strategy) -> None:
    taken = assert_exact_strategy(chain_model([case.node()]), device, strategy)
    assert {name.split()[0] for name in taken} == {"dotprod"}


@strategies
def test_scales_of_every_size(device: DeviceInfo, strategy: Strategy) -> None:
    """Halves of either sign, 0 and those without a leading 1 among them."""
    node = Product(shape=(2, 256), out_c=40).node()
    blocks = node.inputs[1].blocks if node.inputs[1] is not None else None
    assert blocks is not None
    bits = np.random.default_rng(2).integers(0, 2**16, blocks.scales.shape).astype(np.uint16)
    bits[(bits & 0x7C00) == 0x7C00] &= 0x83FF  # neither infinite nor NaN
    bits[0] = 0x8000, 0, 1, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF
    node = changed(node, 1, blocks=replace(blocks, scales=bits.view(np.float16)))
    assert_exact_strategy(chain_model([node]), device, strategy)

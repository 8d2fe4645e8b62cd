# SPDX-License-Identifier: Apache-2.0
"""Hybrid FULLY_CONNECTED and CONV_2D on tensor cores: what is offered, and their numbers.

Devices without them compute kernels/ptx.clh's stand-ins; PoCL's compiler takes too long for those.
"""

from __future__ import annotations

import pytest
from hypothesis import given

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.ops._convolution.nvidia import conv_2d
from delegate.ops._convolution.nvidia.conv_2d import _Shape
from tests.delegate.ops._convolution.nvidia.test_conv_2d import FOR_MANY, FOR_ONE, skip_long_builds
from tests.delegate.ops._convolution.test_hybrid import HAS_CHANNELS, Product, products_of
from tests.support.cases import (
    NATIVE,
    NVIDIA,
    SEEDS,
    SIMT,
    Strategy,
    assert_constants,
    assert_exact_or_refused,
    assert_exact_strategy,
)
from tests.support.model import chain_model
from tests.support.tiers import where_rows_are_known
from tflite_opencl.conformance.cases._convolution import HYBRID, ConvCase

pytestmark = where_rows_are_known

PRODUCTS = [
    Product(shape=(rows, depth), out_c=out_c, asymmetric=rows % 2 == 0)
    for rows, depth, out_c in ((5, 64, 32), (8, 37, 35), (33, 80, 70), (40, 576, 48), (64, 16, 4))
]
PRODUCTS += [
    Product(shape=(3, 4, 96), out_c=34, keeps_dims=True, fused="RELU6", asymmetric=True),
    Product(shape=(9, 48), out_c=20, has_odd_bias=True, bits=4),
]
PER_CHANNEL = [Product(shape=(18, 72), out_c=50, per_channel=True, asymmetric=True, fused="RELU")]
CONVOLUTIONS = [
    ConvCase(size=(6, 9, 5), out_c=21, fused="RELU"),
    ConvCase(size=(5, 7, 16), kernel=(3, 2), out_c=32, padding="VALID"),
    ConvCase(size=(3, 5, 16), kernel=(1, 1), out_c=20, batch=3),
    ConvCase(size=(6, 9, 4), out_c=17, stride=(2, 1), dilation=(1, 2)),
]
BUILT = [case.node() for case in PRODUCTS] + [case.node(HYBRID[1], None) for case in CONVOLUTIONS]


def _names(node: Node, strategy: Strategy = NATIVE) -> list[str]:
    return [each.name for each in ops.lower(node, strategy.target)]


# What lower() returns.


def test_which_rows() -> None:
    for rows, first in ((1, "row"), (4, "row"), (5, "mma"), (64, "mma")):
        assert _names(Product(shape=(rows, 64)).node())[0].split("_")[0].split()[0] == first
    assert not any("mma" in name for name in _names(Product(shape=(64, 64)).node(), SIMT))


def test_pictures_that_are_alone() -> None:
    def are_offered(case: ConvCase) -> bool:
        return any("mma" in name for name in _names(case.node(HYBRID[1], None)))

    assert are_offered(ConvCase(size=(9, 8, 3), out_c=32))
    assert are_offered(ConvCase(size=(9, 8, 3), kernel=(1, 1), out_c=32, batch=2))
    assert not are_offered(ConvCase(size=(9, 8, 3), out_c=32, batch=2))
    assert not are_offered(ConvCase(size=(9, 8, 4), out_c=32, groups=2))


def test_constants_are_as_long_as_they_say() -> None:
    for node in (PRODUCTS[1].node(), CONVOLUTIONS[0].node(HYBRID[1], None)):
        for alternative in ops.lower(node, NATIVE.target):
            assert_constants(alternative.launches[-1])


# Its numbers.


def _assert_exact(node: Node, device: DeviceInfo, strategy: Strategy) -> None:
    skip_long_builds(strategy, device)
    taken = assert_exact_strategy(chain_model([node]), device, strategy)
    assert all(name.startswith("mma") for name in taken), taken


strategies = pytest.mark.parametrize("strategy", NVIDIA, ids=str)


@strategies
@pytest.mark.parametrize("case", [*PRODUCTS, *(PER_CHANNEL if HAS_CHANNELS else [])], ids=str)
def test_fully_connected(case: Product, device: DeviceInfo, strategy: Strategy) -> None:
    _assert_exact(case.node(), device, strategy)


@strategies
@pytest.mark.parametrize("kind", HYBRID)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_conv_2d(case: ConvCase, kind: str, device: DeviceInfo, strategy: Strategy) -> None:
    _assert_exact(case.node(kind, None), device, strategy)


@pytest.fixture(params=[*FOR_ONE, *FOR_MANY], ids=conv_2d._name)
def _shape(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> _Shape:
    monkeypatch.setattr(conv_2d, "_for_one_picture", lambda conv, target: request.param)
    return request.param  # type: ignore[no-any-return]


@pytest.mark.usefixtures("_shape")
@pytest.mark.parametrize("case", [PRODUCTS[2], PRODUCTS[1]], ids=str)
def test_every_shape(case: Product, device: DeviceInfo) -> None:
    _assert_exact(case.node(), device, NATIVE)


@given(case=products_of((5, 80), (1, 100)), seed=SEEDS)
def test_drawn(device: DeviceInfo, case: Product, seed: int) -> None:
    assert_exact_or_refused(chain_model([case.node(seed)]), device, NATIVE, seed)

# SPDX-License-Identifier: Apache-2.0
"""Weights with zero points at both ends of their type: every product, by every variant of it.

TFLite's CONV_2D takes none of int8, and DEPTHWISE_CONV_2D and TRANSPOSE_CONV pass over them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.target import Target
from tests.delegate.ops.test_fully_connected import Product
from tests.support.cases import (
    EVERY_STRATEGY,
    NO_FACTS,
    Strategy,
    assert_exact_strategy,
    changed,
    refusal,
)
from tests.support.convolution import Convolution
from tests.support.model import chain_model
from tests.support.transpose_conv import Transposed

WIDE = Convolution(size=(5, 6, 19), out_c=33)
POINTWISE = replace(WIDE, kernel=(1, 1))
DEEP = Convolution(size=(5, 6, 36), depth_multiplier=1)
TWICE = replace(DEEP, depth_multiplier=2, size=(5, 6, 18))
SPREAD = Transposed(size=(4, 5, 19), out_c=17)
GROUPS = Convolution(size=(5, 6, 18), out_c=36, groups=3)
ROWS = Product(shape=(20, 70), out_c=40)
# Sums so large beside their scale that no fixed point rounds them as a double does.
STEEP = Product(shape=(3, 7), out_c=33, multiplier=3.1e-06)
LARGE = np.full(33, 2**30, np.int32)
Case = Convolution | Product


def with_zeros(case: Case, dtype: str) -> list[Node]:
    """Return nodes of this type whose weights have the least and the greatest zero point."""
    limits = np.iinfo("uint8" if dtype == "uint8" else "int8")
    (source, result) = (0, 0) if dtype == "int16" else (100, 3)
    return [
        replace(case, dtype=dtype, zeros=(source, int(zero), result)).node()
        for zero in (limits.min, limits.max)
    ]


CASES: dict[str, list[Node]] = {
    **{f"rows_{dtype}": with_zeros(ROWS, dtype) for dtype in ("uint8", "int8")},
    "row_int8": with_zeros(replace(ROWS, shape=(1, 70)), "int8"),
    "doubles_int8": [changed(node, 2, data=LARGE) for node in with_zeros(STEEP, "int8")],
    "wide_uint8": with_zeros(WIDE, "uint8"),
    "pointwise_uint8": with_zeros(POINTWISE, "uint8"),
    "groups_uint8": with_zeros(GROUPS, "uint8"),
    **{f"deep_{dtype}": with_zeros(DEEP, dtype) for dtype in ("uint8", "int8", "int16")},
    **{f"twice_{dtype}": with_zeros(TWICE, dtype) for dtype in ("uint8", "int8")},
    **{f"spread_{dtype}": with_zeros(SPREAD, dtype) for dtype in ("uint8", "int8", "int16")},
}


def variants() -> Iterator[tuple[str, Strategy]]:
    """Yield a case and a strategy for each variant of a kernel that any device may be given."""
    for name, nodes in CASES.items():
        seen = set()
        for strategy in EVERY_STRATEGY:
            found = ops.lower(nodes[0], replace(Target(), **{**NO_FACTS, **strategy.facts}))
            for each in found:
                if strategy.alternative not in ("", each.name, each.name.split()[0]):
                    continue
                key = repr([(launch.kernel, launch.defines) for launch in each.launches])
                if (key, strategy.is_emulated) not in seen:
                    seen.add((key, strategy.is_emulated))
                    yield name, replace(strategy, alternative=each.name)


@pytest.mark.parametrize(("name", "strategy"), [*variants()], ids=str)
def test_zero_points_at_both_ends(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    assert_exact_strategy(chain_model(CASES[name]), device, strategy)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("case", [WIDE, GROUPS], ids=str)
def test_a_conv_2d_of_int8_weights_has_none(case: Convolution, dtype: str) -> None:
    for node, zero in zip(with_zeros(case, dtype), (-128, 127), strict=True):
        assert refusal(node) == f"int8 weights with zero point {zero}: it must be 0"

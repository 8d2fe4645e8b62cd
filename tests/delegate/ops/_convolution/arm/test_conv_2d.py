# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and FULLY_CONNECTED by Arm's instructions: what is offered, and its numbers.

Where there is no such processor, stand-ins for them run. `.ci/aarch64` runs a share of the cases
in an emulator.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from delegate import DeviceInfo, ops
from tests.delegate.ops.test_conv_2d_add import ResidualEnd, assert_fused_exact
from tests.support.cases import (
    ARM,
    DOTPROD,
    I8MM,
    SEEDS,
    Strategy,
    assert_constants,
    assert_exact_or_refused,
    assert_exact_strategy,
    changed,
    only_launch,
    require_isa,
)
from tests.support.convolution import Convolution, deep_convolutions, fully_connected
from tests.support.model import chain_model

WIDE = Convolution(size=(9, 9, 24), kernel=(1, 1), out_c=40)
RESIDUAL = [
    ResidualEnd(conv=replace(WIDE, dtype=dtype, out_c=out_c), fused="RELU", zeros=(3, 9))
    for dtype, out_c in (("uint8", 40), ("int8", 21))
]
BUILT = [
    WIDE.node(),
    replace(WIDE, dtype="int8", out_c=40).node(),
    *(case.node() for case in RESIDUAL),
]
strategies = pytest.mark.parametrize("strategy", ARM, ids=str)

# What lower() returns.


def _names(case: Convolution, strategy: Strategy) -> list[str]:
    return [each.name for each in ops.lower(case.node(), strategy.target)]


@pytest.mark.parametrize(
    ("size", "out_c", "names"),
    [
        ((28, 28, 32), 64, ["i8mm 4x16", "i8mm 8x8", "dotprod 5x16", "dotprod 8x8"]),
        ((28, 28, 32), 24, ["i8mm 8x8", "dotprod 8x8"]),  # 16 channels would be a third empty
        ((7, 7, 32), 64, ["i8mm 4x16", "dotprod 5x16"]),  # 8 pixels would be computed twice
        ((1, 6, 32), 64, ["i8mm 4x16", "dotprod 5x16"]),
        ((1, 3, 32), 64, ["i8mm 2x16", "dotprod 1x32"]),
        ((1, 1, 32), 64, ["dotprod 1x32"]),
    ],
)
def test_least_wasteful_first(size: tuple[int, int, int], out_c: int, names: list[str]) -> None:
    case = Convolution(size=size, kernel=(1, 1), out_c=out_c)
    found = _names(case, I8MM)
    assert found[: len(names)] == names
    assert not any(name.startswith(("i8mm", "dotprod")) for name in found[len(names) :])
    assert found[-1] == "plain"
    assert _names(case, DOTPROD)[0].startswith("dotprod")


@pytest.mark.parametrize(
    "facts", [{"isa": frozenset({"i8mm"})}, {"device_type": "gpu"}], ids=["without_dots", "no_cpu"]
)
def test_not_without_instructions_and_a_cpu(facts: dict[str, object]) -> None:
    names = _names(WIDE, Strategy("other", {**I8MM.facts, **facts}))
    assert not any(name.startswith(("i8mm", "dotprod")) for name in names)


def test_also_where_a_driver_tells_of_no_vectors() -> None:
    assert _names(WIDE, Strategy("other", {**I8MM.facts, "vector_width": 1}))[0].startswith("i8mm")


def test_not_where_no_block_fits_the_panel() -> None:
    names = _names(Convolution(size=(4, 4, 9000), kernel=(3, 3), out_c=8), I8MM)
    assert not any(name.startswith(("i8mm", "dotprod")) for name in names)


@pytest.mark.parametrize("strategy", [DOTPROD, I8MM], ids=str)
@pytest.mark.parametrize(
    "case", [WIDE, Convolution(size=(9, 9, 7), out_c=21, dilation=(2, 3))], ids=str
)
def test_constants_are_as_long_as_planned(case: Convolution, strategy: Strategy) -> None:
    first = ops.lower(case.node(), strategy.target)[0]
    assert first.name.split()[0] == strategy.alternative
    assert_constants(only_launch(first))


# Its numbers.


def _assert_exact(model: bytes, device: DeviceInfo, strategy: Strategy) -> None:
    taken = assert_exact_strategy(model, device, strategy)
    assert {name.split()[0] for name in taken} == {strategy.alternative}


CASES = [
    replace(case, dtype=dtype, per_channel=dtype == "int8", multiplier=multiplier)
    for dtype, multiplier in (("uint8", 0.0041), ("int8", 0.0021))
    for case in [
        # Windows in place and gathered, rows that end within a product, two pictures.
        Convolution(size=(7, 9, 3)),
        Convolution(size=(11, 17, 4), stride=(2, 2), padding="VALID"),
        Convolution(size=(5, 13, 21), kernel=(3, 2), dilation=(2, 3), out_c=10),
        Convolution(size=(5, 9, 17), out_c=18),
        Convolution(size=(5, 3, 3), kernel=(7, 7), batch=2),
        Convolution(size=(9, 7, 2), kernel=(1, 1), stride=(3, 2)),
        # Around a block of pixels, and of channels.
        *(
            Convolution(size=(1, pixels, 5), kernel=(1, 1), out_c=33)
            for pixels in (2, 3, 4, 5, 7, 8, 9, 11)
        ),
        *(
            Convolution(size=(3, 5, in_c), kernel=(1, 1), out_c=out_c)
            for in_c, out_c in ((1, 1), (4, 3), (8, 7), (12, 8), (15, 9), (16, 15), (20, 16))
        ),
        Convolution(size=(3, 5, 129), kernel=(1, 1), out_c=31),
    ]
]
ENDS = [
    *(replace(WIDE, zeros=(i, w, o)) for i in (0, 255) for w in (0, 255) for o in (0, 255)),
    *(replace(WIDE, zeros=(i, 0, o), dtype="int8") for i in (-128, 127) for o in (-128, 127)),
    *(replace(WIDE, fused=fused, zeros=(131, 140, 0)) for fused in ("RELU", "RELU6")),
    *(
        replace(WIDE, multiplier=multiplier, dtype=dtype, out_c=33)
        for multiplier in (1.7, 300.0, 1e-12)
        for dtype in ("uint8", "int8")
    ),
]


@strategies
@pytest.mark.parametrize("case", [*CASES, *ENDS], ids=str)
def test_conv_2d(case: Convolution, device: DeviceInfo, strategy: Strategy) -> None:
    require_isa(strategy, device)
    if not _names(case, strategy)[0].startswith(strategy.alternative):
        pytest.skip("too few pixels for this kernel")
    _assert_exact(case.model(), device, strategy)


@strategies
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_sums_that_pass_24_bits(dtype: str, device: DeviceInfo, strategy: Strategy) -> None:
    limits = np.iinfo(dtype)
    case = Convolution(size=(1, 5, 2000), kernel=(1, 1), dtype=dtype, multiplier=1e-6)
    node = replace(case, zeros=(limits.min, 0, 5)).node()
    weights = np.full((8, 1, 1, 2000), limits.max, dtype)
    weights[4:] = 0 if dtype == "uint8" else -127
    _assert_exact(chain_model([changed(node, 1, data=weights)]), device, strategy)


@strategies
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("rows", [1, 3, 17])
def test_fully_connected(rows: int, dtype: str, device: DeviceInfo, strategy: Strategy) -> None:
    if rows == 1 and strategy.alternative == "i8mm":
        pytest.skip("it multiplies two rows at a time")
    _assert_exact(chain_model([fully_connected(rows, dtype)]), device, strategy)


@strategies
@pytest.mark.parametrize("case", RESIDUAL, ids=str)
def test_conv_2d_add(case: ResidualEnd, device: DeviceInfo, strategy: Strategy) -> None:
    require_isa(strategy, device)
    assert_fused_exact(case, device, strategy)


@pytest.mark.parametrize("strategy", [DOTPROD, I8MM], ids=str)
@given(case=deep_convolutions(70), seed=SEEDS)
def test_drawn_conv_2d(
    device: DeviceInfo, case: Convolution, seed: int, strategy: Strategy
) -> None:
    require_isa(strategy, device)
    if _names(case, strategy)[0].startswith(strategy.alternative):
        assert_exact_or_refused(chain_model([case.node(seed)]), device, strategy, seed)

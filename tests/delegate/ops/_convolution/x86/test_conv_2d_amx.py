# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and FULLY_CONNECTED by AMX's tiles: what is offered, and its numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from delegate import DeviceInfo, ops
from delegate.ops._convolution import packing
from delegate.ops._convolution.x86 import tiles
from delegate.ops._numbers.float_requantize import FloatRescale, float_rescale
from tests.delegate.ops.test_conv_2d_add import ResidualEnd, assert_fused_exact
from tests.support.cases import (
    AMX,
    SEEDS,
    VNNI,
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

WIDE = Convolution(size=(9, 9, 64), kernel=(1, 1), out_c=64)
RESIDUAL = [
    ResidualEnd(conv=replace(WIDE, dtype=dtype), fused="RELU", zeros=(3, 9))
    for dtype in ("uint8", "int8")
]
BUILT = [WIDE.node(), replace(WIDE, dtype="int8").node(), *(case.node() for case in RESIDUAL)]

# What lower() returns.


def _first(case: Convolution, strategy: Strategy = AMX) -> str:
    return ops.lower(case.node(), strategy.target)[0].name


@pytest.mark.parametrize(
    ("size", "kernel", "out_c", "name"),
    [
        ((112, 112, 32), (1, 1), 64, "amx 32x32"),
        ((28, 28, 128), (1, 1), 256, "amx 28x32"),
        ((7, 7, 512), (1, 1), 1024, "amx 26x32"),
        ((16, 16, 64), (3, 3), 128, "amx 32x32"),
        ((8, 8, 512), (3, 3), 512, "amx 22x32"),  # longer blocks do not fit the panel
        ((224, 224, 3), (3, 3), 32, "vnni"),  # a tile would be half empty
        ((112, 112, 32), (1, 1), 16, "vnni"),  # half of its channels would be
        ((1, 1, 1024), (1, 1), 1001, "vnni"),
        ((4, 4, 9000), (3, 3), 8, "tiled"),  # no block fits the panel
    ],
)
def test_first_where_it_is_expected_to_be_the_fastest(
    size: tuple[int, int, int], kernel: tuple[int, int], out_c: int, name: str
) -> None:
    case = Convolution(size=size, kernel=kernel, out_c=out_c)
    assert _first(case).startswith(name)
    assert not any("amx" in each.name for each in ops.lower(case.node(), VNNI.target))


@pytest.mark.parametrize(
    "facts", [{"isa": frozenset({"amx"})}, {"device_type": "gpu"}], ids=["without_vnni", "groups"]
)
def test_not_without_instructions_and_groups_of_one(facts: dict[str, object]) -> None:
    strategy = Strategy("other", {**AMX.facts, **facts})
    assert not any("amx" in each.name for each in ops.lower(WIDE.node(), strategy.target))


@pytest.mark.parametrize(
    "case",
    [WIDE, replace(WIDE, dtype="int8"), Convolution(size=(9, 9, 70), out_c=61, dilation=(2, 3))],
    ids=str,
)
def test_constants_are_as_long_as_planned(case: Convolution) -> None:
    first = ops.lower(case.node(), AMX.target)[0]
    assert first.name.startswith("amx")
    assert_constants(only_launch(first))


# Its numbers.


@pytest.fixture
def _is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_is_faster", lambda *arguments: True)


def _assert_exact(model: bytes, device: DeviceInfo) -> None:
    taken = assert_exact_strategy(model, device, AMX)
    assert all(name.startswith("amx") for name in taken), taken


CASES = [
    replace(case, dtype=dtype, per_channel=dtype == "int8", multiplier=multiplier)
    for dtype, multiplier in (("uint8", 0.0041), ("int8", 0.0021))
    for case in [
        # Windows in place and gathered, rows that end within a tile and with one, two pictures.
        Convolution(size=(11, 37, 3)),
        Convolution(size=(23, 71, 4), stride=(2, 2), padding="VALID"),
        Convolution(size=(5, 70, 64), padding="VALID"),
        Convolution(size=(11, 23, 65), kernel=(3, 2), dilation=(2, 3)),
        Convolution(size=(9, 9, 67), stride=(2, 2), out_c=40),
        Convolution(size=(11, 70, 21), kernel=(3, 2), dilation=(2, 1), padding="VALID"),
        Convolution(size=(5, 3, 3), kernel=(7, 7), batch=2),
        Convolution(size=(23, 17, 2), kernel=(1, 1), stride=(3, 2)),
        # Around a tile of pixels, and of channels.
        *(
            Convolution(size=(1, pixels, 5), kernel=(1, 1), out_c=33)
            for pixels in (2, 3, 16, 31, 32, 33, 49)
        ),
        *(
            Convolution(size=(5, 7, in_c), kernel=(1, 1), out_c=out_c)
            for in_c, out_c in ((63, 1), (64, 15), (65, 16), (128, 17), (129, 31), (3, 65))
        ),
    ]
]
ENDS = [
    *(Convolution(size=(5, 7, 70), kernel=(1, 1), zeros=(i, w, o))
      for i in (0, 255) for w in (0, 255) for o in (0, 255)),
    *(Convolution(size=(5, 7, 70), kernel=(1, 1), zeros=(i, 0, o), dtype="int8")
      for i in (-128, 127) for o in (-128, 127)),
    *(Convolution(size=(5, 7, 70), kernel=(1, 1), fused=fused, zeros=(131, 140, 0), multiplier=1e-4)
      for fused in ("RELU", "RELU6")),
    *(Convolution(size=(5, 7, 70), kernel=(1, 1), multiplier=multiplier, dtype=dtype, out_c=33)
      for multiplier in (1.7, 300.0, 1e-12) for dtype in ("uint8", "int8")),
]  # fmt: skip


@pytest.mark.usefixtures("_is_offered")
@pytest.mark.parametrize("case", [*CASES, *ENDS], ids=str)
def test_conv_2d(case: Convolution, device: DeviceInfo) -> None:
    _assert_exact(case.model(), device)


@pytest.mark.usefixtures("_is_offered")
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_weights_at_the_ends_of_their_range(dtype: str, device: DeviceInfo) -> None:
    # The sums of neighbouring products pass 16 bits.
    node = replace(WIDE, dtype=dtype, zeros=(7, 0, 5), multiplier=1e-5).node()
    limits = np.iinfo(dtype)
    least = 0 if dtype == "uint8" else -127
    weights = np.resize(np.array([least, limits.max], dtype), (64, 1, 1, 64))
    weights[32:] = limits.max
    _assert_exact(chain_model([changed(node, 1, data=weights)]), device)


@pytest.mark.usefixtures("_is_offered")
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("activation", ["NONE", "RELU"])
def test_without_float_forms(
    dtype: str, activation: str, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*arguments: object, **options: object) -> FloatRescale:
        form = float_rescale(*arguments, **options)  # type: ignore[arg-type]
        return replace(form, exact=form.exact & False)

    monkeypatch.setattr(packing, "float_rescale", none)
    monkeypatch.setattr(packing, "_rescale_of", packing._rescale_of.__wrapped__)
    _assert_exact(replace(WIDE, dtype=dtype, fused=activation).model(), device)


@pytest.mark.usefixtures("_is_offered")
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_fully_connected(dtype: str, device: DeviceInfo) -> None:
    _assert_exact(chain_model([fully_connected(17, dtype)]), device)


@pytest.mark.parametrize("case", RESIDUAL, ids=str)
def test_conv_2d_add(case: ResidualEnd, device: DeviceInfo) -> None:
    require_isa(AMX, device)
    assert ops.lower(case.node(), AMX.target)[0].name.startswith("amx")
    assert_fused_exact(case, device, AMX)


@pytest.mark.usefixtures("_is_offered")
@given(case=deep_convolutions(140), seed=SEEDS)
def test_drawn_conv_2d(device: DeviceInfo, case: Convolution, seed: int) -> None:
    assert_exact_or_refused(chain_model([case.node(seed)]), device, AMX, seed)

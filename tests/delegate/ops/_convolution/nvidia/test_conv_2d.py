# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and FULLY_CONNECTED on tensor cores: shapes of tiles, packed constants, numbers.

Devices without them compute kernels/ptx.clh's stand-ins; PoCL's compiler takes too long for those.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._convolution.nvidia import conv_2d
from delegate.ops._convolution.nvidia.conv_2d import _Shape
from tests.support.cases import (
    FUSED,
    NATIVE,
    NVIDIA,
    SEEDS,
    SIMT,
    Strategy,
    assert_constants,
    assert_exact_or_refused,
    assert_exact_strategy,
    only_launch,
)
from tests.support.convolution import Convolution, convolutions, of_geometry
from tests.support.model import const, one_op_model, t

# p_blocks, c_blocks, blocks_m, blocks_n, parts, turns, is_ahead
FOR_ONE = [
    _Shape(1, 2, 8, 1, 1, is_ahead=True),
    _Shape(2, 2, 2, 4, 1, is_ahead=True),
    _Shape(4, 2, 1, 8, 1, is_ahead=True),
    _Shape(1, 2, 1, 1, 8, is_ahead=True),
    _Shape(2, 2, 2, 1, 4, is_ahead=True),
    _Shape(2, 2, 1, 4, 2, is_ahead=True),
]
FOR_MANY = [
    _Shape(2, 4, 4, 2, 1),
    _Shape(2, 4, 1, 8, 1, turns=4),
    _Shape(4, 2, 8, 1, 1, turns=2),
    _Shape(4, 4, 2, 4, 1),
]


def pointwise(pixels: tuple[int, int], in_c: int, out_c: int, dtype: str = "uint8") -> Convolution:
    """A convolution of one tap; multiples of 16 input channels are rows of a matrix."""
    return Convolution(size=(*pixels, in_c), kernel=(1, 1), out_c=out_c, dtype=dtype)


def launches(case: Convolution) -> list[Alternative]:
    """Return the alternatives with tensor cores."""
    found = ops.lower(case.node(), NATIVE.target)
    return [each for each in found if each.name.startswith("mma")]


# What lower() returns.


@pytest.mark.parametrize(
    ("case", "names"),
    [
        # Mobilenet V1's: tiles for 132 units, K split where pixels are few; then many turns, one,
        # and larger blocks.
        (pointwise((112, 112), 32, 64), ["mma 128x64 of 32x32", "mma_turns 1024x64 of 16x64, 8 turns", "mma 128x64 of 16x64", "mma 256x64 of 32x64"]),  # noqa: E501
        (pointwise((14, 14), 512, 512), ["mma_split 16x64 of 16x32 in 4", "mma_turns 256x256 of 16x64, 8 turns", "mma 32x256 of 16x64"]),  # noqa: E501
        (pointwise((7, 7), 1024, 1024), ["mma_split 16x32 of 16x32 in 8", "mma_turns 64x256 of 16x64, 2 turns", "mma 32x256 of 16x64"]),  # noqa: E501
        (pointwise((1, 1), 1024, 1001), ["mma_split 8x32 of 8x32 in 8", "mma 16x512 of 16x64"]),
        (pointwise((1, 1), 3, 1), ["mma 8x256 of 8x32", "mma 256x32 of 32x32"]),
    ],
    ids=lambda value: str(value) if isinstance(value, Convolution) else "",
)  # fmt: skip
def test_names_and_order(case: Convolution, names: list[str]) -> None:
    assert [each.name for each in launches(case)] == names
    assert [each.name for each in ops.lower(case.node(), NATIVE.target)][: len(names)] == names


def test_without_proof_there_is_none() -> None:
    for strategy in (SIMT, Strategy("dp4a", {"isa": frozenset({"dp4a"})})):
        names = [each.name for each in ops.lower(Convolution().node(), strategy.target)]
        assert not any(name.startswith("mma") for name in names)


def _launch(case: Convolution, shape: _Shape, monkeypatch: pytest.MonkeyPatch) -> Launch:
    monkeypatch.setattr(conv_2d, "_for_one_picture", lambda conv, target: shape)
    return only_launch(launches(case)[0])


def test_pointwise_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = _Shape(2, 2, 2, 1, 4, is_ahead=True)
    launch = _launch(pointwise((7, 5), 80, 40), shape, monkeypatch)
    assert (launch.file, launch.kernel) == ("conv_2d_mma", "conv_2d_1x1_mma_quant8")
    assert (launch.tiles, launch.group_items) == (2 * 2, 256)  # 32 pixels x 32 channels each
    assert launch.defines == {
        "ELEM": "uchar", "IS_SIGNED": 0, "C_BLOCKS": 2, "P_BLOCKS": 2, "SUMS_PIXELS": 1,
        "ONCE": 1, "AHEAD": 1, "SPLITS": 1, "SINGLE_ROUNDING": 0, "SATURATES": 1, "FROM_ZERO": 0,
        "SCRATCH_INTS": 4096,
    }  # fmt: skip
    fields = ("pixels", "padded_c", "tiles_n", "jobs", "block_bits", "parts", "steps", "part_steps")
    # 80 terms are 2 steps of 64; four parts take a step each, two of nothing but zeros.
    assert [launch.params[name] for name in fields] == [35, 64, 2, 8, 1, 4, 4, 1]


def test_window_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Convolution(size=(7, 5, 3), out_c=8, dtype="int8")
    launch = _launch(case, FOR_MANY[2], monkeypatch)
    assert launch.kernel == "conv_2d_mma_quant8"
    assert launch.tiles == 1
    assert launch.defines["SUMS_PIXELS"] == 0  # int8 weights have no zero point
    assert launch.defines["ALIGNED"] == 0
    chunks = launch.params["chunks"]
    assert isinstance(chunks, Constant)
    # Three rows of 9 bytes, and a chunk that is none.
    assert chunks.pack()[:, :3].tolist() == [[0, 0, 9], [1, 0, 9], [2, 0, 9], [-(2**30), 0, 0]]
    assert chunks.pack().view(np.int8)[:, 16:].sum(1).tolist() == [9, 9, 9, 0]


@pytest.mark.parametrize("shape", [*FOR_ONE, *FOR_MANY], ids=conv_2d._name)
def test_constants_are_as_long_as_they_say(shape: _Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    for case in (pointwise((3, 3), 48, 33), Convolution(size=(4, 4, 5)), Convolution(dtype="int8")):
        launch = _launch(case, shape, monkeypatch)
        assert_constants(launch)


@pytest.mark.parametrize(
    ("case", "saturates", "from_zero"),
    [
        (Convolution(), 1, 0),
        (Convolution(zeros=(3, 5, 0)), 1, 1),
        (Convolution(zeros=(3, 0, -128), dtype="int8"), 1, 0),
        (
            Convolution(zeros=(3, 5, 0), fused="RELU6", multiplier=2.0**-11),
            0,
            0,
        ),  # not all of uint8
        (Convolution(multiplier=8.0), 0, 0),  # sums of 27 terms could reach 2^22
    ],
    ids=str,
)
def test_saturation_is_proven(case: Convolution, saturates: int, from_zero: int) -> None:
    defines = only_launch(launches(case)[0]).defines
    assert (defines["SATURATES"], defines["FROM_ZERO"]) == (saturates, from_zero)


# Its numbers.

POINTWISE = [
    *(pointwise(pixels, 16, 24) for pixels in [(1, 1), (1, 7), (2, 4), (3, 3), (13, 19)]),
    *(pointwise((3, 5), in_c, 24) for in_c in (32, 48, 64, 80, 208)),
    *(pointwise((3, 5), 16, out_c) for out_c in (1, 3, 4, 31, 33, 61, 64, 72, 260)),
    *(pointwise((5, 5), 112, 40, dtype) for dtype in ("uint8", "int8")),
    replace(pointwise((3, 3), 32, 8), batch=3),
]
WINDOWS = of_geometry(
    [
        ((7, 5, 3), (3, 3), (1, 1), (1, 1), "SAME"),
        ((13, 11, 3), (3, 3), (2, 2), (1, 1), "SAME"),
        ((7, 5, 3), (3, 3), (2, 2), (1, 1), "VALID"),
        ((7, 5, 1), (1, 1), (1, 1), (1, 1), "VALID"),
        ((7, 5, 16), (1, 1), (3, 2), (1, 1), "SAME"),
        ((11, 13, 16), (3, 3), (1, 1), (1, 1), "SAME"),
        ((11, 13, 5), (3, 3), (1, 1), (2, 2), "SAME"),
        ((11, 13, 16), (3, 2), (1, 1), (3, 5), "VALID"),
        ((2, 3, 3), (7, 7), (1, 1), (1, 1), "SAME"),
        ((9, 9, 24), (3, 3), (1, 1), (1, 1), "SAME"),
        ((1, 1, 17), (1, 1), (1, 1), (1, 1), "SAME"),
        ((1, 40, 2), (1, 33), (1, 1), (1, 1), "SAME"),
    ],
)
NUMBERS = [
    *(Convolution(fused=fused, multiplier=2.0**-11) for fused in FUSED[1:]),
    *(replace(case, dtype="int8", per_channel=True) for case in WINDOWS[:3]),
    *(Convolution(zeros=(i, w, o)) for i in (0, 255) for w in (0, 255) for o in (0, 255)),
    *(Convolution(zeros=(i, 0, o), dtype="int8") for i in (-128, 127) for o in (-128, 127)),
    *(Convolution(multiplier=multiplier) for multiplier in (1.0, 1.7, 300.0, 2.0**-20, 1e-12)),
]


def skip_long_builds(strategy: Strategy, device: DeviceInfo) -> None:
    """Skip a test of stand-ins on PoCL."""
    if strategy.is_emulated and "Portable Computing Language" in device.platform:
        pytest.skip("its compiler takes 10 s and more for each of these kernels with barriers")


def _assert_exact(
    case: Convolution,
    shape: _Shape,
    strategy: Strategy,
    device: DeviceInfo,
    seed: int | None = None,
) -> None:
    skip_long_builds(strategy, device)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conv_2d, "_for_one_picture", lambda conv, target: shape)
        name = conv_2d._name(shape)
        strategy = replace(strategy, alternative=name)
        if seed is None:
            assert assert_exact_strategy(case.model(), device, strategy) == {name}
        else:
            assert_exact_or_refused(case.model(seed), device, strategy, seed)


@pytest.mark.parametrize("strategy", NVIDIA, ids=str)
@pytest.mark.parametrize("case", [*POINTWISE, *WINDOWS, *NUMBERS], ids=str)
def test_split_sums(case: Convolution, strategy: Strategy, device: DeviceInfo) -> None:
    _assert_exact(case, FOR_ONE[4], strategy, device)


@pytest.mark.parametrize("strategy", NVIDIA, ids=str)
@pytest.mark.parametrize("case", [*POINTWISE, *WINDOWS], ids=str)
def test_turns(case: Convolution, strategy: Strategy, device: DeviceInfo) -> None:
    _assert_exact(case, FOR_MANY[1], strategy, device)


@pytest.mark.parametrize("strategy", NVIDIA, ids=str)
@pytest.mark.parametrize("shape", [*FOR_ONE, *FOR_MANY], ids=conv_2d._name)
@pytest.mark.parametrize(
    "case", [pointwise((13, 11), 208, 72), pointwise((5, 7), 112, 61), WINDOWS[1]], ids=str
)
def test_shapes(case: Convolution, shape: _Shape, strategy: Strategy, device: DeviceInfo) -> None:
    _assert_exact(case, shape, strategy, device)


@pytest.mark.parametrize("strategy", NVIDIA, ids=str)
@given(case=convolutions(), shape=st.sampled_from([FOR_ONE[5], FOR_MANY[2]]), seed=SEEDS)
def test_drawn(
    device: DeviceInfo, strategy: Strategy, case: Convolution, shape: _Shape, seed: int
) -> None:
    _assert_exact(case, shape, strategy, device, seed)


@pytest.mark.parametrize("strategy", NVIDIA, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_fully_connected(dtype: str, strategy: Strategy, device: DeviceInfo) -> None:
    skip_long_builds(strategy, device)
    rng = np.random.default_rng(0)
    limits = np.iinfo(dtype)
    weights = (
        rng.integers(-127, 127, (61, 80)) if dtype == "int8" else rng.integers(0, 255, (61, 80))
    )
    model = one_op_model(
        "FULLY_CONNECTED",
        [
            t((5, 80), dtype, 0.05, 3),
            const(weights.astype(dtype), 0.02, 0 if dtype == "int8" else 131),
            const(rng.integers(-4000, 4000, 61).astype(np.int32), 0.001),
        ],
        [t((5, 61), dtype, 0.9, int(limits.min) + 100)],
        {"fused_activation_function": "NONE"},
        version=4,
    )
    (name,) = assert_exact_strategy(model, device, strategy)
    assert name.startswith("mma")

# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and FULLY_CONNECTED by x86's dot products: what is offered, and its numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node, Tensor
from delegate.ops._convolution import packing, panels
from delegate.ops._convolution.x86 import conv_2d
from delegate.ops._numbers.float_requantize import FloatRescale, float_rescale
from tests.support.cases import (
    AVX2,
    FUSED,
    LANES_16,
    SEEDS,
    SIMT,
    VNNI,
    X86,
    Strategy,
    assert_constants,
    assert_exact_or_refused,
    assert_exact_strategy,
    changed,
    integers,
    only_launch,
    quantization,
)
from tests.support.convolution import Convolution, convolutions, of_geometry
from tests.support.model import chain_model, const, op, t

# What lower() returns.


def _names(node: Node, strategy: Strategy = VNNI) -> list[str]:
    return [alternative.name for alternative in ops.lower(node, strategy.target)]


@pytest.mark.parametrize(
    ("case", "names"),
    [
        (Convolution(size=(28, 28, 3), out_c=32), ["vnni 7x32"]),
        (Convolution(size=(28, 28, 3), out_c=33), ["vnni 14x16"]),
        (Convolution(size=(28, 28, 3), out_c=144), ["vnni 14x16", "vnni 7x32"]),
        (Convolution(size=(7, 7, 3), out_c=144), ["vnni 7x32"]),
        (Convolution(size=(28, 28, 3), out_c=3, dtype="int8"), ["vnni 14x16"]),
        (Convolution(size=(2, 5, 3), out_c=48), ["vnni 7x32"]),
        (Convolution(size=(2, 3, 3), out_c=48), ["vnni 1x64"]),
        (Convolution(size=(1, 1, 3), out_c=1), ["vnni 1x64"]),
    ],
    ids=str,
)
def test_least_wasteful_first(case: Convolution, names: list[str]) -> None:
    found = _names(case.node())
    assert found[: len(names)] == names
    assert not any(name.startswith("vnni") for name in found[len(names) :])
    assert found[-1] == "plain"


def test_vnni_before_avx2() -> None:
    target = replace(VNNI.target, isa=frozenset({"vnni", "avx2"}))
    found = [a.name for a in ops.lower(_narrow(Convolution(out_c=32).node()), target)]
    assert found == ["vnni 7x32", "avx2 6x16 pairs", "avx2 6x16", "tiled 8x2", "plain"]


def test_pairs_only_where_few_weights_are_large() -> None:
    case = Convolution(size=(5, 5, 61), out_c=20)
    assert "avx2 6x16 pairs" in _names(_narrow(case.node()), AVX2)
    assert "avx2 6x16 pairs" not in _names(case.node(), AVX2)
    assert _names(case.node(), AVX2)[0] == "avx2 6x16"


def _narrow(node: Node) -> Node:
    """Return a node whose weights are near their zero point, but for one of each 499."""
    weights = node.inputs[1]
    assert isinstance(weights, Tensor)
    assert weights.data is not None
    assert weights.quantization is not None
    zero = weights.quantization.zero_point[0]
    values = zero + (weights.data.astype(np.int64) - zero) // 8
    values.flat[::499] = weights.data.flat[::499]
    return changed(node, 1, data=values.astype(weights.dtype))


@pytest.mark.parametrize(
    "strategy",
    [LANES_16, SIMT, Strategy("groups_of_64", {"device_type": "gpu", "isa": frozenset({"vnni"})})],
    ids=str,
)
def test_not_without_instructions_and_groups_of_one(strategy: Strategy) -> None:
    assert not any("vnni" in name for name in _names(Convolution().node(), strategy))


def _weights(values: Any, zero_point: int = 0, dtype: str = "int8") -> Node:
    weights = np.resize(np.array(values, dtype), (8, 3, 3, 3))
    node = Convolution(dtype=dtype).node()
    return changed(node, 1, data=weights, quantization=quantization(0.5, zero_point))


@pytest.mark.parametrize(
    ("node", "is_corrected"),
    [
        (_weights([-128, 127]), False),
        (_weights([23, 255], 128, "uint8"), False),
        (_weights([23, 255], 151, "uint8"), False),
        (_weights([22, 255], 151, "uint8"), True),
        (_weights([0, 127], 0, "uint8"), False),
        (_weights([0, 128], 0, "uint8"), True),
    ],
)
def test_weights_less_their_zero_point_are_int8_or_corrected(
    node: Node, is_corrected: bool
) -> None:
    first = ops.lower(node, VNNI.target)[0]
    assert first.name.startswith("vnni")
    assert only_launch(first).params["is_corrected"] == is_corrected


@pytest.mark.parametrize(("in_c", "flips"), [(4, 1), (64, 0)])
def test_int8_weights_are_made_uint8_where_windows_are_long(in_c: int, flips: int) -> None:
    case = Convolution(size=(14, 14, in_c), kernel=(1, 1), out_c=64, dtype="int8")
    launch = only_launch(ops.lower(case.node(), VNNI.target)[0])
    assert (launch.defines["FLIPS"], launch.params["is_corrected"]) == (flips, 1 - flips)


def test_windows_that_do_not_fit_the_panel_are_left_to_others() -> None:
    large = Convolution(size=(4, 4, 2100), out_c=8)
    matrix = replace(large, kernel=(1, 1)).node()
    for strategy in X86:
        assert not any(strategy.name in name for name in _names(large.node(), strategy))
        assert _names(matrix, strategy)[0].startswith(strategy.name)
    # It takes int16 from the panel.
    longest = Convolution(size=(3, 5, 10912), kernel=(1, 1), out_c=1)
    assert "avx2 6x16" in _names(longest.node(), AVX2)
    assert "avx2 6x16" not in _names(replace(longest, size=(3, 5, 10913)).node(), AVX2)


@pytest.mark.parametrize(
    ("change", "rows", "pairs"),
    [
        ({}, 11 * 64 * 2, 11 * 64),
        ({"dtype": "uint8"}, 11 * 64 * 2, 0),  # bytes are read where they are
        ({"stride": (2, 2), "padding": "VALID", "size": (9, 9, 64)}, 9 * 64 * 2, 9 * 64),
        ({"dilation": (2, 1)}, 11 * 64 * 2, 11 * 64),
        ({"dilation": (1, 2)}, 0, 0),
        ({"batch": 2}, 0, 0),
        ({"kernel": (1, 1)}, 0, 0),
        ({"size": (9, 80, 200)}, 0, 84 * 200),  # of 16 bits they do not fit
        ({"kernel": (1, 2), "stride": (1, 3), "padding": "VALID"}, 0, 0),  # some are in no window
    ],
    ids=str,
)
def test_panel_has_rows_of_the_picture(change: dict[str, Any], rows: int, pairs: int) -> None:
    case = Convolution(size=(7, 7, 64), kernel=(5, 5), out_c=32, dtype="int8")
    found = ops.lower(_narrow(replace(case, **change).node()), AVX2.target)
    params = {each.name: only_launch(each).params for each in found}
    assert params["avx2 6x16"]["panel_row"] == rows
    assert params["avx2 6x16 pairs"]["panel_row"] == pairs


@pytest.mark.parametrize(
    "case",
    [
        Convolution(),
        Convolution(size=(9, 9, 70), out_c=61, kernel=(3, 2), dilation=(2, 3)),
        Convolution(size=(9, 9, 7), out_c=61, kernel=(1, 1), dtype="int8", per_channel=True),
        Convolution(size=(1, 1, 1), out_c=1, kernel=(1, 1)),
    ],
    ids=str,
)
def test_constants_are_as_long_as_planned(case: Convolution) -> None:
    target = replace(VNNI.target, isa=frozenset({"vnni", "avx2"}))
    for node in (case.node(), _narrow(case.node())):
        for alternative in ops.lower(node, target):
            assert_constants(only_launch(alternative))


def test_tiles_read_little() -> None:
    target = replace(VNNI.target, compute_units=2)

    def groups(case: Convolution) -> tuple[object, object]:
        params = only_launch(ops.lower(case.node(), target)[0]).params
        return params["pixel_groups"], params["channel_groups"]

    # Many pixels and few weights, few pixels and many weights, too little work to share; as much
    # work for either unit. Blocks are computed whole, whatever channels they lack.
    assert groups(Convolution(size=(112, 112, 32), kernel=(1, 1), out_c=64)) == (16, 1)
    assert groups(Convolution(size=(7, 7, 1024), kernel=(1, 1), out_c=1024)) == (1, 16)
    assert groups(Convolution(size=(3, 3, 8), kernel=(1, 1), out_c=8)) == (1, 1)
    assert groups(Convolution(size=(28, 28, 192), kernel=(1, 1), out_c=32)) == (6, 1)
    assert groups(Convolution(size=(14, 14, 64), kernel=(3, 3), out_c=4)) == (2, 1)


# Its numbers.


@dataclass(frozen=True, slots=True)
class Block:
    """A kind of inner product and the size of its blocks, forced."""

    kind: panels.GemmConfig
    size: tuple[int, int]

    def __str__(self) -> str:
        return self.name.replace(" ", "_")

    @property
    def name(self) -> str:
        """The alternative's."""
        tile_w, vectors = self.size
        return f"{self.kind.name} {tile_w}x{vectors * self.kind.lanes}{self.kind.suffix}"

    def assert_exact(self, model: bytes, device: DeviceInfo) -> None:
        """Assert that the node runs so, and gives the numbers of TFLite's reference kernels."""
        strategy = next(strategy for strategy in X86 if strategy.name == self.kind.name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(panels, "least_wasteful", lambda *arguments: [self.size])
            taken = assert_exact_strategy(model, device, replace(strategy, alternative=self.name))
        assert taken == {self.name}


KINDS = (conv_2d.VNNI, conv_2d.AVX2)
BLOCKS = [Block(kind, size) for kind in KINDS for size in kind.sizes]
FEW = [Block(kind, kind.few[0]) for kind in KINDS]
PAIRS = [Block(conv_2d.AVX2_PAIRS, size) for size in conv_2d.AVX2_PAIRS.sizes]
FEW_PAIRS = [Block(conv_2d.AVX2_PAIRS, conv_2d.AVX2_PAIRS.few[0])]

GEOMETRY = of_geometry(
    [
        ((11, 13, 3), (3, 3), (1, 1), (1, 1), "SAME"),
        ((23, 29, 3), (3, 3), (2, 2), (1, 1), "SAME"),
        ((23, 31, 4), (3, 3), (2, 2), (1, 1), "VALID"),
        ((7, 5, 3), (1, 1), (1, 1), (1, 1), "VALID"),
        ((23, 17, 2), (1, 1), (3, 2), (1, 1), "SAME"),
        ((31, 37, 1), (5, 2), (1, 2), (1, 1), "SAME"),
        ((11, 13, 5), (3, 3), (1, 1), (2, 2), "SAME"),
        ((11, 17, 5), (3, 2), (1, 1), (2, 1), "VALID"),
        ((11, 23, 5), (3, 2), (1, 1), (3, 5), "VALID"),
        ((9, 9, 67), (3, 3), (2, 2), (1, 1), "SAME"),
        ((5, 3, 3), (7, 7), (1, 1), (1, 1), "SAME"),
        ((7, 7, 33), (5, 5), (1, 1), (1, 1), "SAME"),
        ((13, 9, 5), (5, 3), (2, 1), (3, 1), "SAME"),
        ((1, 17, 131), (1, 1), (1, 1), (1, 1), "SAME"),
        ((14, 14, 64), (1, 1), (1, 1), (1, 1), "SAME"),
    ],
)
# Around a block of pixels, and whole and other rows of them.
PIXELS = [
    Convolution(size=(h, w, 3), kernel=(2, 2), batch=n)
    for n, h, w in [(1, 1, 14), (1, 2, 7), (1, 3, 5), (1, 4, 7), (14, 1, 1), (2, 3, 7), (1, 13, 19)]
]
CHANNELS = [
    Convolution(size=(5, 3, 5), kernel=(2, 2), out_c=out_c)
    for out_c in (1, 3, 15, 16, 17, 31, 32, 33, 48, 61, 64, 65)
]
FUSIONS = [
    Convolution(fused=fused, zeros=(131, 140, zero), multiplier=2.0**-11)
    for fused in FUSED
    for zero in (0, 7, 255)
]
BASIC = [*GEOMETRY, *PIXELS, *CHANNELS]
CASES = [
    *BASIC,
    *FUSIONS,
    *(replace(case, dtype="int8") for case in GEOMETRY),
    *(replace(case, dtype="int8", per_channel=True, multiplier=0.0021) for case in BASIC),
    *(
        replace(case, dtype="int8", zeros=(3, 0, zero))
        for case in FUSIONS[::3]
        for zero in (-128, 5, 127)
    ),
    *(Convolution(zeros=(i, w, o)) for i in (0, 255) for w in (0, 255) for o in (0, 255)),
    *(Convolution(zeros=(i, 0, o), dtype="int8") for i in (-128, 127) for o in (-128, 127)),
    *(
        Convolution(multiplier=multiplier, dtype=dtype, out_c=33)
        for multiplier in (1.0, 1.7, 300.0, 0.0041, 0.00037, 2.0**-20, 1e-9, 1e-12)
        for dtype in ("uint8", "int8")
    ),
]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv_2d(case: Convolution, block: Block, device: DeviceInfo) -> None:
    block.assert_exact(case.model(), device)


@pytest.mark.parametrize("block", PAIRS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv_2d_by_pairs(case: Convolution, block: Block, device: DeviceInfo) -> None:
    block.assert_exact(chain_model([_narrow(case.node())]), device)


@pytest.mark.parametrize("block", [*FEW, *FEW_PAIRS], ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("size", "kernel", "out_c"),
    [
        ((1, 1, 1), (1, 1), 1),
        ((1, 1, 129), (1, 1), 65),
        ((1, 5, 5), (1, 1), 64),
        ((5, 1, 5), (3, 3), 130),
    ],
)
def test_few_pixels(
    size: tuple[int, int, int],
    kernel: tuple[int, int],
    out_c: int,
    dtype: str,
    block: Block,
    device: DeviceInfo,
) -> None:
    node = Convolution(size=size, kernel=kernel, out_c=out_c, dtype=dtype).node()
    block.assert_exact(chain_model([_narrow(node)]), device)


@pytest.fixture(params=["none", "some"])
def proven(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let no channel have a float form, or not every one; return how many had and have one."""
    counts: list[int] = [0, 0]

    def fewer(*arguments: Any, **options: Any) -> FloatRescale:
        form = float_rescale(*arguments, **options)
        keep = np.arange(form.exact.size) % 19 != 5 if request.param == "some" else False
        counts[0] += int(form.exact.sum())
        exact = form.exact & keep
        counts[1] += int(exact.sum())
        return replace(form, exact=exact)

    monkeypatch.setattr(packing, "float_rescale", fewer)
    monkeypatch.setattr(packing, "_rescale_of", packing._rescale_of.__wrapped__)
    return counts


@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize(
    "case",
    [
        Convolution(out_c=64, fused=fused, dtype=dtype, zeros=zeros, multiplier=0.0031)
        for dtype, zeros in (("uint8", (9, 151, 0)), ("uint8", (9, 151, 77)), ("int8", (7, 0, -9)))
        for fused in ("NONE", "RELU")
    ],
    ids=str,
)
def test_without_float_forms(
    case: Convolution, block: Block, device: DeviceInfo, proven: list[int]
) -> None:
    block.assert_exact(case.model(), device)
    assert proven[1] < proven[0]


def _fully_connected(rows: int, in_c: int, out_c: int, dtype: str, seed: int = 0) -> bytes:
    zeros = (100, 140, 77) if dtype == "uint8" else (-3, 0, -9)
    weights = integers((out_c, in_c), dtype, seed)
    bias = np.random.default_rng(seed).integers(-5000, 5000, out_c).astype(np.int32)
    node = op(
        "FULLY_CONNECTED",
        [
            t((rows, in_c), dtype, 0.05, zeros[0]),
            const(weights, 0.03, zeros[1]),
            const(bias, np.float32(0.05) * np.float32(0.03)),
        ],
        [t((rows, out_c), dtype, 0.45, zeros[2])],
        {"fused_activation_function": "NONE", "weights_format": "DEFAULT"},
    )
    return chain_model([node])


@pytest.mark.parametrize("block", [*BLOCKS, *FEW], ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_fully_connected(dtype: str, block: Block, device: DeviceInfo) -> None:
    block.assert_exact(_fully_connected(17, 77, 90, dtype), device)


@pytest.mark.parametrize("block", FEW, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_fully_connected_without_float_forms(
    dtype: str, block: Block, device: DeviceInfo, proven: list[int]
) -> None:
    block.assert_exact(_fully_connected(2, 77, 90, dtype), device)
    assert proven[1] < proven[0]


@pytest.mark.parametrize("strategy", X86, ids=str)
@given(case=convolutions(), is_narrow=st.booleans(), seed=SEEDS)
def test_drawn_conv_2d(
    device: DeviceInfo, strategy: Strategy, case: Convolution, is_narrow: bool, seed: int
) -> None:
    node = case.node(seed)
    model = chain_model([_narrow(node) if is_narrow else node])
    assert_exact_or_refused(model, device, strategy, seed)

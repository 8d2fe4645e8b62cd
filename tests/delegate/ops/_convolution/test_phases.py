# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV as a convolution: what it lowers to, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import strategies as st

from delegate import ops
from delegate.launch import Constant, is_temporary
from delegate.run.recipe import recipe_of
from tests.support.cases import (
    AMX,
    AVX2,
    DOTS,
    EMULATED,
    FUSED,
    LANES_4,
    LANES_8,
    LANES_16,
    MANY_REGISTERS,
    NATIVE,
    REGISTERS,
    SIMT,
    STRATEGIES,
    VNNI,
    X86,
    Strategy,
    assert_constants,
)
from tests.support.factories import assert_seeded_or_refused, drawn, exact
from tests.support.transpose_conv import Transposed, transposed

# A picture of several blocks, and windows whose taps divide by the stride and do not.
WINDOWS = [(2, 2), (3, 2), (4, 2), (5, 2), (5, 1), (3, 3), (4, 3), (5, 4), (2, 4), (1, 2)]


@pytest.mark.parametrize(
    ("strategy", "case", "names"),
    [
        (SIMT, Transposed(), ["float4 4x8"]),
        (SIMT, Transposed(out_c=1), ["float4 4x4"]),  # four phases
        (SIMT, Transposed(out_c=3, stride=(1, 1)), []),
        (SIMT, Transposed(dtype="int16"), ["tiled 4x1"]),
        (SIMT, Transposed(dtype="float32"), []),
        (MANY_REGISTERS, Transposed(size=(4, 8, 3)), ["floats 4x8", "float4 4x8"]),
        (
            NATIVE,
            Transposed(size=(8, 8, 32), out_c=32),
            ["mma 8x256 of 8x32", "mma 64x128 of 16x64"],
        ),
        (SIMT, Transposed(kernel=(1, 1)), ["float4 4x8"]),
        (SIMT, Transposed(kernel=(1, 1), stride=(2, 3), padding="VALID"), []),
        (SIMT, Transposed(stride=(1 << 20, 1), size=(1, 1, 3), padding="VALID"), []),
        (LANES_8, Transposed(out_c=1, stride=(2, 2)), ["tiled 4x1"]),
        (LANES_16, Transposed(dtype="int16"), ["tiled 16x2"]),
        (VNNI, Transposed(dtype="int8"), ["vnni 7x32"]),
        (AVX2, Transposed(dtype="int8"), ["avx2 6x16 pairs"]),
    ],
    ids=str,
)
def test_names(strategy: Strategy, case: Transposed, names: list[str]) -> None:
    found = ops.lower(case.node(), strategy.target)
    assert [a.name for a in found if a.name.startswith("phases")] == [f"phases {n}" for n in names]
    for launch in (launch for alternative in found for launch in alternative.launches):
        assert_constants(launch)


@pytest.mark.parametrize(
    ("case", "blocks"),
    [
        (Transposed(kernel=(5, 5)), (4, 5)),  # 3x3 taps, as many blocks as input pixels
        (Transposed(kernel=(4, 4)), (5, 6)),  # 2x2 taps, so the first and last ones are parts
        (Transposed(padding="VALID"), (5, 6)),  # what reaches past the last stride
        (Transposed(stride=(3, 1)), (4, 5)),
        (Transposed(stride=(1, 2), less=(0, 1)), (4, 5)),
        (Transposed(stride=(1, 2)), None),  # a row of blocks is a row of the output
        (Transposed(stride=(1, 1)), None),
    ],
    ids=str,
)
def test_blocks(case: Transposed, blocks: tuple[int, int] | None) -> None:
    first, *_ = ops.lower(case.node(), SIMT.target)
    if blocks is None:
        (launch,) = first.launches
        assert launch.writes == case.node().outputs or not is_temporary(launch.writes[0])
        return
    launch, last = first.launches
    (between,) = launch.writes
    assert is_temporary(between)
    assert between.shape == (1, *blocks, case.out_c * case.stride[0] * case.stride[1])
    assert last.reads == (between,)
    assert [tensor.name for tensor in last.writes] == [case.node().outputs[0].name]


def test_constants_of_another_size_are_known() -> None:
    case = Transposed(kernel=(5, 5), size=(4, 5, 64), out_c=32)
    node = case.node()
    larger = replace(case, size=(8, 7, 64)).node()
    larger = replace(larger, inputs=(larger.inputs[0], node.inputs[1], *larger.inputs[2:]))
    for strategy in (SIMT, LANES_8, *X86):
        first, second = (ops.lower(each, strategy.target)[0].launches[0] for each in (node, larger))
        for name in ("weights", "channels"):
            constants = first.params[name], second.params[name]
            assert all(isinstance(each, Constant) for each in constants)
            recipes = [recipe_of(each.pack) for each in constants if isinstance(each, Constant)]
            assert recipes[0] is not None
            assert recipes[0] == recipes[1]


test_windows = exact(
    [
        Transposed(
            kernel=(window, window),
            stride=(stride, stride),
            padding=padding,
            size=(3, 5, 9),
            out_c=out_c,
            dtype=dtype,
        )
        for (window, stride), padding, (dtype, out_c) in product(
            WINDOWS, ("SAME", "VALID"), (("int8", 6), ("uint8", 16))
        )
    ],
    (SIMT, LANES_8),
)
test_strategies = exact(
    [
        Transposed(
            kernel=(4, 5), size=(6, 5, in_c), out_c=out_c, dtype=dtype, batch=2, fused="RELU"
        )
        for in_c, out_c in ((1, 3), (33, 17), (512, 2))
        for dtype in ("uint8", "int8")
    ],
    (
        LANES_4,
        LANES_16,
        *X86,
        AMX,
        *REGISTERS,
        *(replace(strategy, alternative="") for strategy in DOTS),
    ),
)
test_emulated = exact(
    [Transposed(size=(6, 5, 16), out_c=16, dtype=dtype) for dtype in ("uint8", "int8")],
    (EMULATED,),
)
test_int16 = exact(
    [
        Transposed(
            kernel=(window, window),
            stride=(stride, 2),
            dtype="int16",
            per_channel=per_channel,
            has_bias=has_bias,
            fused=fused,
        )
        for (window, stride), (per_channel, has_bias, fused) in product(
            WINDOWS[:5], ((True, True, "NONE"), (False, False, FUSED[1]))
        )
    ],
    (SIMT, LANES_8),
)


@st.composite
def generators(draw: st.DrawFn) -> Transposed:
    """Draw a layer as generators have them: few pixels, and up to 512 channels."""
    channels = st.sampled_from([1, 2, 3, 4, 7, 16, 31, 32, 64, 100, 256, 511, 512])
    case = draw(transposed(("uint8", "int8")))
    in_c, out_c = draw(channels), draw(channels)
    return replace(
        case,
        size=(draw(st.integers(1, 4)), draw(st.integers(1, 4)), in_c),
        out_c=out_c if in_c * out_c <= 1 << 15 else 8,
        kernel=(draw(st.integers(2, 5)), draw(st.integers(2, 5))),
        stride=(draw(st.integers(1, 4)), draw(st.integers(1, 4))),
    )


test_drawn = drawn(generators(), STRATEGIES, assert_seeded_or_refused)
test_drawn_x86 = drawn(generators(), X86, assert_seeded_or_refused)

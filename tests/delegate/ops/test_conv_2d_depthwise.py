# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D: what it lowers to, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node, Tensor
from tests.support.cases import (
    AVX2,
    FUSED,
    LANES_2,
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    STRATEGIES,
    VNNI,
    X86,
    Strategy,
    assert_constants,
    assert_exact_strategy,
    changed,
    only_launch,
    quantization,
    refusal,
)
from tests.support.convolution import ABSENT_OPTIONS, Convolution, convolutions, of_geometry
from tests.support.factories import assert_seeded_or_refused, drawn, refused
from tests.support.refusals import activated, sparse, unquantised


def depthwise(
    height: int, width: int, channels: int, kernel: tuple[int, int] = (3, 3), multiplier: int = 1
) -> Convolution:
    return Convolution(size=(height, width, channels), kernel=kernel, depth_multiplier=multiplier)


# What lower() returns.


@pytest.mark.parametrize(
    ("strategy", "channels", "multiplier", "names"),
    [
        (SIMT, 3, 1, ["plain"]),
        (SIMT, 4, 1, ["float4 3x3 step 1", "vector 4x4", "plain"]),
        (SIMT, 61, 1, ["float4 3x3 step 1", "vector 4x4", "plain"]),
        (LANES_2, 8, 1, ["plain"]),
        (LANES_4, 3, 1, ["plain"]),
        (LANES_4, 16, 1, ["vector 4x4", "plain"]),
        (LANES_8, 7, 1, ["vector 4x4", "plain"]),
        (LANES_8, 8, 1, ["vector 8x4", "plain"]),
        (LANES_16, 15, 1, ["vector 8x4", "plain"]),
        (LANES_16, 17, 1, ["vector 16x4", "plain"]),
        (LANES_16, 16, 2, ["plain"]),
        (
            Strategy("lanes32", {"device_type": "cpu", "vector_width": 32}),
            64,
            1,
            ["vector 16x4", "plain"],
        ),
    ],
    ids=str,
)
def test_widest_vector_that_fits_then_plain(
    strategy: Strategy, channels: int, multiplier: int, names: list[str]
) -> None:
    found = ops.lower(depthwise(5, 5, channels, multiplier=multiplier).node(), strategy.target)
    assert [alternative.name for alternative in found] == names


def test_plain_launch() -> None:
    node = replace(depthwise(7, 5, 3, multiplier=2), dtype="int8", stride=(2, 1)).node()
    launch = only_launch(ops.lower(node, SIMT.target)[-1])
    assert (launch.file, launch.kernel) == ("depthwise_conv_2d", "depthwise_conv_2d_quant8")
    assert (launch.tiles, launch.group_items) == (2, 64)  # 4 x 5 x 6 elements
    assert launch.defines == {"ELEM": "char", "WEIGHT": "char"}
    assert (launch.reads, launch.writes) == (node.inputs[:1], node.outputs)
    numbers = {n: v for n, v in launch.params.items() if isinstance(v, int)}
    assert numbers == {
        "in_h": 7, "in_w": 5, "out_h": 4, "out_w": 5, "kernel_h": 3, "kernel_w": 3,
        "stride_h": 2, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "pad_top": 1,
        "pad_left": 1, "in_c": 3, "out_c": 6, "output_zero": -5, "output_min": -128,
        "output_max": 127, "depth_multiplier": 2, "input_zero": 3, "weight_zero": 0,
        "elements": 120, "tile_items": 64,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "tiles", "group_items", "tile_items"),
    [
        (SIMT, 3, 64, 64),  # 7 rows x 2 blocks of 4 pixels x 9 of 4 channels = 126, and 2 over 64
        (LANES_16, 14, 1, 3),  # 7 x 2 x 3 = 42 blocks, a sixteenth of them each
    ],
    ids=str,
)
def test_vector_launch(strategy: Strategy, tiles: int, group_items: int, tile_items: int) -> None:
    launch = only_launch(ops.lower(depthwise(7, 5, 37).node(), strategy.target)[-2])
    assert launch.kernel == "depthwise_conv_2d_vector_quant8"
    assert launch.params["row_blocks"] == 2
    assert launch.params["tile_items"] == tile_items
    assert (launch.tiles, launch.group_items) == (tiles, group_items)
    assert_constants(launch)


def vnni(channels: int, strategy: Strategy = VNNI, **fields: Any) -> list[str]:
    """Return the names of a 14 x 14 layer's alternatives by x86 instructions."""
    case = replace(depthwise(14, 14, channels), **fields)
    names = [alternative.name for alternative in ops.lower(case.node(), strategy.target)]
    return [name for name in names if name.split()[0] in ("vnni", "avx2")]


@pytest.mark.parametrize(
    ("channels", "names"),
    [
        (31, []),
        (32, ["vnni 32x7"]),
        (63, ["vnni 32x7"]),
        (64, ["vnni 64x7"]),
        (96, ["vnni 32x7", "vnni 64x7"]),  # 64 channels at once would do a third of them twice
        (112, ["vnni 64x7"]),
        (224, ["vnni 64x7", "vnni 32x7"]),
        (480, ["vnni 64x7"]),
    ],
)
def test_vnni_blocks_of_least_work_first(channels: int, names: list[str]) -> None:
    assert vnni(channels) == names


def test_x86_needs_its_instructions_and_groups_of_one() -> None:
    assert vnni(64, LANES_16) == []
    assert vnni(64, AVX2) == ["avx2 16x7"]
    both = Strategy("both", {**VNNI.facts, "isa": frozenset({"vnni", "avx2"})})
    assert vnni(64, both) == ["vnni 64x7"]
    assert vnni(31, both) == ["avx2 16x7"]
    assert vnni(64, Strategy("gpu", {**both.facts, "device_type": "gpu"})) == []
    assert vnni(15, AVX2) == []


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"depth_multiplier": 2}, ""),
        ({"kernel": (3, 9)}, "vnni 64x7"),
        ({"kernel": (3, 10)}, ""),
        ({"dilation": (40, 31)}, "vnni 64x2"),  # 64 columns of one group hold 2 windows of 63
        ({"dilation": (1, 32)}, ""),
        ({"kernel": (5, 3), "dilation": (1, 15)}, "vnni 64x2"),  # 32 of two
        ({"kernel": (5, 3), "dilation": (1, 16)}, ""),
    ],
)
def test_x86_takes_windows_that_fit_the_gathered_columns(fields: dict[str, Any], name: str) -> None:
    assert name in ["", *vnni(64, **fields)][:2]
    assert bool(name) == ("vnni 64" in " ".join(vnni(64, **fields)))


def numbers_of(case: Convolution, strategy: Strategy = VNNI, **facts: Any) -> dict[str, int]:
    strategy = replace(strategy, facts={**strategy.facts, **facts})
    launch = only_launch(ops.lower(case.node(), strategy.target)[0])
    assert_constants(launch)
    names = ("groups", "rows", "row_chunks", "chunks", "chunk_w", "blocks", "items", "tile_items")
    numbers = {name: launch.params[name] for name in names}
    assert all(isinstance(number, int) for number in numbers.values())
    return {"tiles": launch.tiles, **numbers}  # type: ignore[dict-item]


def test_vnni_launch() -> None:
    case = replace(depthwise(14, 14, 180), batch=2)
    # 3 rows of taps in one group of 4, which hold the windows of 2 output rows.
    assert numbers_of(case, compute_units=2) == {
        "groups": 1, "rows": 2, "row_chunks": 7, "chunks": 1, "chunk_w": 14, "blocks": 3,
        "items": 42, "tile_items": 2, "tiles": 21,
    }  # fmt: skip
    wide = replace(case, size=(14, 140, 64), kernel=(5, 5), stride=(2, 2), batch=1)
    # 2 groups of 4 hold 2 output rows at a stride of 2; 64 columns hold 14 windows of 5 twice.
    assert numbers_of(wide, compute_units=1) == {
        "groups": 2, "rows": 2, "row_chunks": 4, "chunks": 5, "chunk_w": 14, "blocks": 1,
        "items": 20, "tile_items": 2, "tiles": 10,
    }  # fmt: skip
    dilated = replace(case, dilation=(2, 1))
    assert numbers_of(dilated)["rows"] == 1
    # However many cores there are, a tile has some work.
    tiny = replace(depthwise(7, 7, 64), stride=(2, 2))
    assert numbers_of(tiny, compute_units=64)["tile_items"] == 1
    assert numbers_of(tiny, compute_units=1)["tile_items"] == 4


def test_avx2_launch() -> None:
    # 3 rows of taps in 2 groups of 2, which hold the windows of 2 output rows.
    assert numbers_of(depthwise(9, 21, 40), AVX2) == {
        "groups": 2, "rows": 2, "row_chunks": 5, "chunks": 1, "chunk_w": 21, "blocks": 3,
        "items": 15, "tile_items": 1, "tiles": 15,
    }  # fmt: skip


# What it refuses.

NODE = depthwise(7, 5, 4).node()
INT8 = replace(depthwise(7, 5, 4), dtype="int8").node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "rank_3_input": (
        changed(NODE, 0, shape=(7, 5, 4)),
        "shapes 7x5x4 -> 1x7x5x4: only rank 4 (NHWC)",
    ),
    "empty_input": (
        changed(NODE, 0, shape=(1, 0, 5, 4)),
        "shapes 1x0x5x4 -> 1x7x5x4: they are empty",
    ),
    "absent_options_table": (
        changed(NODE, options=ABSENT_OPTIONS),
        "kernel 3x3, stride 0x0, dilation 0x0: each must be at least 1",
    ),
    "window_too_large": (
        changed(changed(NODE, 0, shape=(1, 2, 5, 4)), options={"padding": "VALID"}),
        "output 7x5: the window gives 0x3",
    ),
    "rank_3_weights": (changed(NODE, 1, shape=(3, 3, 4)), "weights 3x3x4: 1HWO is needed"),
    "two_rows_of_weights": (
        changed(NODE, 1, shape=(2, 3, 3, 2)),
        "weights 2x3x3x2: 1HWO is needed",
    ),
    "channels_no_multiple": (
        changed(NODE, 0, shape=(1, 7, 5, 3)),
        "3 input, 4 weight and 4 output channels: "
        "the last two must be equal and a multiple of the first",
    ),
    "output_channels": (
        changed(NODE, -1, shape=(1, 7, 5, 8)),
        "4 input, 4 weight and 8 output channels: "
        "the last two must be equal and a multiple of the first",
    ),
    "computed_weights": (changed(NODE, 1, data=None), "weights are not constant"),
    "sparse_weights": sparse(NODE, 1, data=None),
    "computed_bias": (changed(NODE, 2, data=None), "the bias is not a constant"),
    "bias_of_3": (changed(NODE, 2, shape=(3,)), "bias int32 of (3,): int32 of (4,) is needed"),
    "int16": (
        changed(NODE, 0, dtype="int16"),
        "int16 in, uint8 out: only uint8 or int8 in both are implemented",
    ),
    "int4_weights": (changed(INT8, 1, dtype="int4"), "int4 weights with int8 activations"),
    "weights_without_quantisation": unquantised(NODE, 1, "weights"),
    "uint8_per_channel": (
        changed(NODE, 1, quantization=quantization([0.5] * 4, axis=3)),
        "uint8 weights with 4 scales: per channel is int8 only",
    ),
    "3_scales_for_4_channels": (
        changed(INT8, 1, quantization=quantization([0.5] * 3, axis=3)),
        "weights have 3 scales on axis 3: 4 on axis 3 are needed",
    ),
    "scales_on_axis_0": (
        changed(INT8, 1, quantization=quantization([0.5] * 4, axis=0)),
        "weights have 4 scales on axis 0: 4 on axis 3 are needed",
    ),
    "zero_point_outside": (
        changed(INT8, -1, quantization=quantization(0.5, 128)),
        "zero point 128: outside int8",
    ),
    "fused_sign_bit": activated(NODE, "SIGN_BIT"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)


@pytest.mark.parametrize("inputs", [(), (0,), (0, None), (None, 1), (0, 1, 2, 2)], ids=str)
def test_wrong_inputs(inputs: tuple[int | None, ...]) -> None:
    tensors: tuple[Tensor | None, ...] = tuple(
        None if i is None else NODE.inputs[i] for i in inputs
    )
    assert refusal(replace(NODE, inputs=tensors)) == f"{len(inputs)} inputs: 2 to 3 expected"


# Its numbers.

GEOMETRY = of_geometry(
    [
        ((7, 5, 5), (3, 3), (1, 1), (1, 1), "SAME"),
        ((7, 5, 5), (3, 3), (2, 2), (1, 1), "SAME"),
        ((7, 11, 5), (3, 3), (2, 2), (1, 1), "VALID"),
        ((11, 13, 4), (5, 2), (1, 3), (1, 1), "SAME"),
        ((11, 13, 5), (3, 3), (1, 1), (2, 3), "SAME"),
        ((11, 13, 5), (3, 2), (1, 1), (3, 5), "VALID"),
        ((2, 3, 7), (7, 7), (1, 1), (1, 1), "SAME"),
        ((1, 1, 1), (1, 1), (1, 1), (1, 1), "SAME"),
    ],
    depth_multiplier=1,
)
# Around 4 pixels of a row a work-item, and around every vector of channels.
PIXELS = [
    replace(depthwise(h, w, 5, (2, 2)), batch=n)
    for n, h, w in [(1, 1, 3), (1, 1, 4), (1, 3, 5), (2, 2, 8), (3, 3, 1), (1, 13, 19)]
]
CHANNELS = [depthwise(3, 5, c, (2, 2)) for c in (1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33)]
MULTIPLIERS = [depthwise(5, 5, c, multiplier=m) for c, m in [(1, 2), (3, 5), (4, 4), (8, 2)]]
FUSIONS = [replace(depthwise(5, 5, 5), fused=fused) for fused in FUSED[1:]]
BASIC = [*GEOMETRY, *PIXELS, *CHANNELS, *MULTIPLIERS, *FUSIONS]
SMALL = depthwise(5, 5, 9)
CASES = [
    *BASIC,
    *(replace(case, dtype="int8") for case in GEOMETRY[:4]),
    *(replace(case, dtype="int8", per_channel=True) for case in BASIC),
    replace(SMALL, has_bias=False),
    replace(SMALL, has_bias=False, dtype="int8", per_channel=True),
    *(replace(SMALL, zeros=(i, w, o)) for i in (0, 255) for w in (0, 255) for o in (0, 255)),
    *(replace(SMALL, zeros=(i, 0, o), dtype="int8") for i in (-128, 127) for o in (-128, 127)),
    *(
        replace(SMALL, multiplier=multiplier, dtype=dtype)
        for multiplier in (1.0, 1.7, 300.0, 2.0**-20, 1e-9, 1e-12)
        for dtype in ("uint8", "int8")
    ),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_depthwise_conv_2d(case: Convolution, strategy: Strategy, device: DeviceInfo) -> None:
    is_vector = strategy is not PLAIN and case.size[2] >= 4 and case.depth_multiplier == 1
    forced = replace(strategy, alternative="vector" if is_vector else "plain")
    (name,) = assert_exact_strategy(case.model(), device, forced)
    assert name.split()[0] == forced.alternative


def of_channels(case: Convolution) -> list[Convolution]:
    """Return the same for a block of each size."""
    height, width, _ = case.size
    return [replace(case, size=(height, width, c)) for c in (16, 32, 64)]


# Around the blocks of 64, 32 and 16 channels, the rows that a group of taps holds, the 7 pixels of
# a tile, and the columns that may be gathered.
X86_CHANNELS = [depthwise(5, 9, c) for c in (16, 17, 31, 32, 33, 63, 64, 65, 95, 96, 127, 128, 145)]
X86_PIXELS = [
    replace(depthwise(h, w, 64, (3, 3)), batch=n)
    for n, h, w in [(1, 1, 1), (1, 2, 6), (3, 3, 7), (2, 4, 8), (1, 5, 13), (1, 7, 14), (1, 3, 131)]
]
X86_KERNELS = [
    replace(depthwise(11, 13, 33, kernel), stride=stride, padding=padding)
    for kernel, stride, padding in [
        ((1, 1), (1, 1), "SAME"),
        ((2, 3), (1, 1), "VALID"),
        ((3, 3), (2, 2), "SAME"),
        ((3, 3), (3, 1), "VALID"),
        ((4, 2), (1, 2), "SAME"),
        ((5, 5), (1, 1), "SAME"),
        ((5, 5), (2, 2), "SAME"),
        ((5, 5), (2, 2), "VALID"),
        ((7, 7), (1, 1), "SAME"),
        ((9, 9), (3, 3), "SAME"),
        ((3, 1), (4, 4), "SAME"),
        ((1, 9), (1, 1), "SAME"),
    ]
]
X86_GEOMETRY = [
    *(replace(case, size=(*case.size[:2], 33)) for case in GEOMETRY),
    replace(depthwise(7, 9, 64), dilation=(3, 4)),
    replace(depthwise(9, 70, 64), dilation=(1, 31)),
]
X86_NUMBERS = [
    replace(case, dtype=dtype, per_channel=per_channel, fused=fused)
    for case in of_channels(depthwise(5, 9, 0))
    for dtype, per_channel in [("uint8", False), ("int8", False), ("int8", True)]
    for fused in FUSED
]
# Weights of 9 bits, all ranges of outputs, scales with a float form and without.
X86_ZEROS = [
    *(
        replace(case, zeros=(i, w, o))
        for case in of_channels(depthwise(5, 9, 0))
        for i, w, o in [(0, 0, 0), (255, 255, 0), (0, 255, 255), (255, 0, 255), (9, 100, 3)]
    ),
    *(
        replace(case, zeros=(i, 0, o), dtype="int8")
        for case in of_channels(depthwise(5, 9, 0))
        for i in (-128, 127)
        for o in (-128, 127)
    ),
    *(
        replace(case, zeros=(3, 0, -128), multiplier=2.0**-11, fused="RELU", dtype="int8")
        for case in of_channels(depthwise(5, 9, 0))
    ),
    *(
        replace(case, multiplier=multiplier, dtype=dtype)
        for case in of_channels(depthwise(5, 9, 0))
        for multiplier in (0.0019, 0.00037, 1.0, 1.7, 300.0, 2.0**-20, 1e-9, 1e-12)
        for dtype in ("uint8", "int8")
    ),
]


X86_CASES = [
    pytest.param(case, strategy, id=f"{case}-{strategy}")
    for case in [*X86_CHANNELS, *X86_PIXELS, *X86_KERNELS, *X86_GEOMETRY, *X86_NUMBERS, *X86_ZEROS]
    for strategy, block in ((VNNI, 32), (AVX2, 16))
    if case.size[2] >= block
]


@pytest.mark.parametrize(("case", "strategy"), X86_CASES)
def test_x86(case: Convolution, strategy: Strategy, device: DeviceInfo) -> None:
    taken = assert_exact_strategy(case.model(), device, strategy)
    assert {name.split()[0] for name in taken} == {strategy.name}


@pytest.mark.parametrize("name", ["vnni 64x7", "vnni 32x7"])
@pytest.mark.parametrize("case", [depthwise(5, 14, c) for c in (65, 96, 130)], ids=str)
def test_blocks_that_are_not_the_first(case: Convolution, name: str, device: DeviceInfo) -> None:
    assert assert_exact_strategy(case.model(), device, replace(VNNI, alternative=name)) == {name}


test_drawn_depthwise_conv_2d = drawn(
    convolutions(is_depthwise=True), STRATEGIES, assert_seeded_or_refused
)


@st.composite
def wide_convolutions(draw: st.DrawFn) -> Convolution:
    """Draw one whose channels fill at least the narrowest block."""
    case = draw(convolutions(is_depthwise=True))
    height, width, _ = case.size
    return replace(
        case,
        size=(height, draw(st.sampled_from([width, 29, 61])), draw(st.integers(32, 150))),
        depth_multiplier=1,
        kernel=draw(st.sampled_from([case.kernel, (3, 3), (5, 5), (7, 3)])),
        padding="SAME",
    )


test_drawn_x86 = drawn(wide_convolutions(), X86, assert_seeded_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [replace(depthwise(size, size, channels), dtype=dtype).node()]

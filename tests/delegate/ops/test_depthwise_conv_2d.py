# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D: what it lowers to, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from delegate import DeviceInfo, Node, Tensor, ops
from delegate.launch import Constant
from tests.support.cases import (
    DRAWN_WAYS,
    FUSED,
    LANES_2,
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    SEEDS,
    SIMT,
    WAYS,
    Way,
    assert_exact_or_refused,
    assert_exact_way,
    changed,
    only_launch,
    quantization,
    refusal,
)
from tests.support.convolution import ABSENT_OPTIONS, Convolution, convolutions


def depthwise(
    height: int, width: int, channels: int, kernel: tuple[int, int] = (3, 3), multiplier: int = 1
) -> Convolution:
    return Convolution(size=(height, width, channels), kernel=kernel, depth_multiplier=multiplier)


# What lower() returns.


@pytest.mark.parametrize(
    ("way", "channels", "multiplier", "names"),
    [
        (SIMT, 3, 1, ["plain"]),
        (SIMT, 4, 1, ["vector 4x4", "plain"]),
        (SIMT, 61, 1, ["vector 4x4", "plain"]),
        (LANES_2, 8, 1, ["plain"]),
        (LANES_4, 3, 1, ["plain"]),
        (LANES_4, 16, 1, ["vector 4x4", "plain"]),
        (LANES_8, 7, 1, ["vector 4x4", "plain"]),
        (LANES_8, 8, 1, ["vector 8x4", "plain"]),
        (LANES_16, 15, 1, ["vector 8x4", "plain"]),
        (LANES_16, 17, 1, ["vector 16x4", "plain"]),
        (LANES_16, 16, 2, ["plain"]),
        (
            Way("lanes32", {"device_type": "cpu", "vector_width": 32}),
            64,
            1,
            ["vector 16x4", "plain"],
        ),
    ],
    ids=str,
)
def test_widest_vector_that_fits_then_plain(
    way: Way, channels: int, multiplier: int, names: list[str]
) -> None:
    found = ops.lower(depthwise(5, 5, channels, multiplier=multiplier).node(), way.target)
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
    ("way", "tiles", "group_items", "tile_items"),
    [
        (SIMT, 3, 64, 64),  # 7 rows x 2 blocks of 4 pixels x 9 of 4 channels = 126, and 2 over 64
        (LANES_16, 14, 1, 3),  # 7 x 2 x 3 = 42 blocks, a sixteenth of them each
    ],
    ids=str,
)
def test_vector_launch(way: Way, tiles: int, group_items: int, tile_items: int) -> None:
    launch = only_launch(ops.lower(depthwise(7, 5, 37).node(), way.target)[0])
    assert launch.kernel == "depthwise_conv_2d_vector_quant8"
    assert launch.params["row_blocks"] == 2
    assert launch.params["tile_items"] == tile_items
    assert (launch.tiles, launch.group_items) == (tiles, group_items)
    for value in launch.params.values():
        if isinstance(value, Constant):
            assert value.pack().nbytes == value.size_bytes


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
    "sparse_weights": (
        changed(NODE, 1, data=None, is_sparse=True),
        "input 1 is sparse: only dense tensors are implemented",
    ),
    "computed_bias": (changed(NODE, 2, data=None), "the bias is not a constant"),
    "bias_of_3": (changed(NODE, 2, shape=(3,)), "bias int32 of (3,): int32 of (4,) is needed"),
    "int16": (
        changed(NODE, 0, dtype="int16"),
        "int16 in, uint8 out: only uint8 or int8 in both are implemented",
    ),
    "int4_weights": (changed(INT8, 1, dtype="int4"), "int4 weights with int8 activations"),
    "weights_without_quantisation": (
        changed(NODE, 1, quantization=None),
        "weights without quantisation: scale and zero point are missing",
    ),
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
    "fused_sign_bit": (
        changed(NODE, options={"fused_activation_function": "SIGN_BIT"}),
        "fused activation SIGN_BIT: only NONE, RELU, RELU6, RELU_N1_TO_1",
    ),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}


@pytest.mark.parametrize(("node", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_refusal(node: Node, reason: str) -> None:
    assert refusal(node) == reason


@pytest.mark.parametrize("inputs", [(), (0,), (0, None), (None, 1), (0, 1, 2, 2)], ids=str)
def test_wrong_inputs(inputs: tuple[int | None, ...]) -> None:
    tensors: tuple[Tensor | None, ...] = tuple(
        None if i is None else NODE.inputs[i] for i in inputs
    )
    assert refusal(replace(NODE, inputs=tensors)) == f"{len(inputs)} inputs: 2 to 3 expected"


# Its numbers.

GEOMETRY = [
    Convolution(
        size=size,
        kernel=kernel,
        depth_multiplier=1,
        stride=stride,
        dilation=dilation,
        padding=padding,
    )
    for size, kernel, stride, dilation, padding in [
        ((7, 5, 5), (3, 3), (1, 1), (1, 1), "SAME"),
        ((7, 5, 5), (3, 3), (2, 2), (1, 1), "SAME"),
        ((7, 11, 5), (3, 3), (2, 2), (1, 1), "VALID"),
        ((11, 13, 4), (5, 2), (1, 3), (1, 1), "SAME"),
        ((11, 13, 5), (3, 3), (1, 1), (2, 3), "SAME"),
        ((11, 13, 5), (3, 2), (1, 1), (3, 5), "VALID"),
        ((2, 3, 7), (7, 7), (1, 1), (1, 1), "SAME"),
        ((1, 1, 1), (1, 1), (1, 1), (1, 1), "SAME"),
    ]
]
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


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_depthwise_conv_2d(case: Convolution, way: Way, device: DeviceInfo) -> None:
    taken = assert_exact_way(case.model(), device, way)
    is_vector = way is not PLAIN and case.size[2] >= 4 and case.depth_multiplier == 1
    assert {name.split()[0] for name in taken} == {"vector" if is_vector else "plain"}


@given(case=convolutions(is_depthwise=True), way=DRAWN_WAYS, seed=SEEDS)
def test_drawn_depthwise_conv_2d(
    device: DeviceInfo, case: Convolution, way: Way, seed: int
) -> None:
    assert_exact_or_refused(case.model(seed), device, way, seed)

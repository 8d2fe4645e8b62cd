# SPDX-License-Identifier: Apache-2.0
"""CONV_2D: what it lowers to, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, ops
from delegate.inspect import Node, Tensor
from delegate.launch import Constant
from tests.support.cases import (
    FEW_REGISTERS,
    FUSED,
    LANES_2,
    LANES_4,
    LANES_8,
    LANES_16,
    MANY_REGISTERS,
    PLAIN,
    SIMT,
    SOME_REGISTERS,
    STRATEGIES,
    Strategy,
    assert_constants,
    assert_exact_strategy,
    changed,
    only_launch,
    quantization,
    refusal,
)
from tests.support.convolution import (
    ABSENT_OPTIONS,
    Convolution,
    channel_refusals,
    convolutions,
    of_geometry,
)
from tests.support.factories import assert_seeded_or_refused, drawn, refused
from tests.support.refusals import activated, sparse, unquantised

# What lower() returns.


@pytest.mark.parametrize(
    ("strategy", "out_c", "names"),
    [
        (SIMT, 1, ["plain"]),
        (SIMT, 3, ["plain"]),
        (SIMT, 4, ["float4 4x4", "plain"]),
        (SIMT, 61, ["float4 4x8", "plain"]),
        (MANY_REGISTERS, 61, ["floats 4x8", "float4 4x8", "plain"]),
        (SOME_REGISTERS, 61, ["float4 2x4", "floats 2x4", "plain"]),
        (FEW_REGISTERS, 61, ["floats 1x4", "float4 1x4", "plain"]),
        (LANES_2, 1, ["plain"]),
        (LANES_2, 5, ["tiled 2x1", "plain"]),
        (LANES_4, 3, ["plain"]),
        (LANES_4, 4, ["tiled 4x1", "plain"]),
        (LANES_4, 7, ["tiled 4x1", "plain"]),
        (LANES_4, 8, ["tiled 4x2", "plain"]),
        (LANES_8, 7, ["tiled 4x1", "plain"]),
        (LANES_8, 8, ["tiled 8x1", "plain"]),
        (LANES_8, 16, ["tiled 8x2", "plain"]),
        (LANES_16, 16, ["tiled 16x1", "plain"]),
        (LANES_16, 33, ["tiled 16x1", "plain"]),
        (LANES_16, 64, ["tiled 16x2", "plain"]),
        (
            Strategy("lanes32", {"device_type": "cpu", "vector_width": 32}),
            64,
            ["tiled 16x2", "plain"],
        ),
    ],
    ids=str,
)
def test_block_that_wastes_least_then_plain(
    strategy: Strategy, out_c: int, names: list[str]
) -> None:
    found = ops.lower(Convolution(out_c=out_c).node(), strategy.target)
    assert [alternative.name for alternative in found] == names


def test_plain_launch() -> None:
    node = Convolution(size=(7, 5, 3), out_c=3, stride=(2, 1), dtype="int8").node()
    launch = only_launch(ops.lower(node, SIMT.target)[-1])
    source, weights, bias = node.inputs
    assert (launch.file, launch.kernel) == ("conv_2d", "conv_2d_quant8")
    assert (launch.tiles, launch.group_items) == (1, 64)  # 4 x 5 x 3 elements
    assert launch.defines == {"ELEM": "char", "WEIGHT": "char", "SINGLE_ROUNDING": 0}
    assert (launch.reads, launch.writes) == ((source,), node.outputs)
    plain = {n: v for n, v in launch.params.items() if isinstance(v, int)}
    assert plain == {
        "in_h": 7, "in_w": 5, "out_h": 4, "out_w": 5, "kernel_h": 3, "kernel_w": 3,
        "stride_h": 2, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "pad_top": 1,
        "pad_left": 1, "in_c": 3, "out_c": 3, "output_zero": -5, "output_min": -128,
        "output_max": 127, "input_zero": 3, "weight_zero": 0, "elements": 60, "tile_items": 64,
    }  # fmt: skip
    assert weights is not None
    assert bias is not None
    assert weights.data is not None
    packed, channels = launch.params["weights"], launch.params["channels"]
    assert isinstance(packed, Constant)
    assert isinstance(channels, Constant)
    assert packed.size_bytes == packed.pack().nbytes == weights.data.nbytes
    assert channels.size_bytes == channels.pack().nbytes == 3 * 3 * 4
    assert (channels.pack()[0] == bias.data).all()
    assert (channels.pack()[2] == -8).all()  # 2^-9 is 2^30 * 2^(-8 - 31)


@pytest.mark.parametrize(
    ("strategy", "tiles", "group_items", "tile_items"),
    [
        (LANES_16, 10, 1, 2),  # 2 blocks of 16 channels x ceil(9 / 2)
        (LANES_8, 10, 1, 2),  # 2 blocks of 2 x 8 channels x ceil(9 / 2)
    ],
    ids=str,
)
def test_tiled_launch(strategy: Strategy, tiles: int, group_items: int, tile_items: int) -> None:
    launch = only_launch(
        ops.lower(Convolution(size=(7, 5, 3), out_c=25).node(), strategy.target)[0]
    )
    assert launch.kernel == "conv_2d_tiled_quant8"
    assert launch.params["pixels"] == 35
    assert launch.params["pixel_blocks"] == 9
    assert launch.params["pairs"] == 2
    assert launch.params["tile_items"] == tile_items
    assert (launch.tiles, launch.group_items) == (tiles, group_items)
    assert launch.defines["TILE_W"] == 4
    assert_constants(launch)


def test_no_bias_is_zeros() -> None:
    # TFLite's own CONV_2D asks for one, so no numbers can be compared.
    node = Convolution().node()
    launch = only_launch(ops.lower(replace(node, inputs=(*node.inputs[:2], None)), SIMT.target)[-1])
    channels = launch.params["channels"]
    assert isinstance(channels, Constant)
    assert not channels.pack()[0].any()


def test_fewer_pixels_than_a_tile_are_taken_one_by_one() -> None:
    launch = only_launch(ops.lower(Convolution(size=(1, 3, 2)).node(), SIMT.target)[0])
    assert launch.defines["TILE_W"] == 1
    assert launch.params["pixel_blocks"] == 3


# What it refuses.

CONV = Convolution().node()
INT8 = Convolution(dtype="int8").node()


REFUSALS = {
    "rank_3_input": (
        changed(CONV, 0, shape=(7, 5, 3)),
        "shapes 7x5x3 -> 1x7x5x8: only rank 4 (NHWC)",
    ),
    "scalar_output": (changed(CONV, -1, shape=()), "shapes 1x7x5x3 -> scalar: only rank 4 (NHWC)"),
    "empty_batch": (
        changed(CONV, 0, shape=(0, 7, 5, 3)),
        "shapes 0x7x5x3 -> 1x7x5x8: they are empty",
    ),
    "batch_changes": (
        changed(CONV, 0, shape=(2, 7, 5, 3)),
        "batch 2 in, 1 out: they must be equal",
    ),
    "output_size": (changed(CONV, -1, shape=(1, 7, 4, 8)), "output 7x4: the window gives 7x5"),
    "absent_options_table": (
        changed(CONV, options=ABSENT_OPTIONS),
        "kernel 3x3, stride 0x0, dilation 0x0: each must be at least 1",
    ),
    "negative_dilation": (
        changed(CONV, options={"dilation_h_factor": -1}),
        "kernel 3x3, stride 1x1, dilation -1x1: each must be at least 1",
    ),
    "huge_dilation": (
        changed(CONV, options={"dilation_w_factor": 2**30}),
        f"kernel 3x3, dilation 1x{2**30}: wider than 2^31 pixels",
    ),
    "text_as_stride": (
        changed(CONV, options={"stride_h": "SAME"}),
        "stride_h is 'SAME': an int32 is needed",
    ),
    "padding": (changed(CONV, options={"padding": 7}), "padding 7: only SAME and VALID exist"),
    "fused_tanh": activated(CONV, "TANH"),
    **channel_refusals(CONV),
    "computed_weights": (changed(CONV, 1, data=None), "weights are not constant"),
    "sparse_weights": sparse(CONV, 1, data=None),
    "float32": (
        changed(CONV, 0, dtype="float32"),
        "float32 in, uint8 out: only uint8 or int8 in both are implemented",
    ),
    "int16": (
        changed(CONV, 0, dtype="int16"),
        "int16 in, uint8 out: only uint8 or int8 in both are implemented",
    ),
    "signedness_changes": (
        changed(CONV, -1, dtype="int8"),
        "uint8 in, int8 out: only uint8 or int8 in both are implemented",
    ),
    "hybrid_weights": (changed(CONV, 1, dtype="int8"), "int8 weights with uint8 activations"),
    "input_without_quantisation": unquantised(CONV, 0),
    "output_without_quantisation": unquantised(CONV, -1),
    "weights_without_quantisation": unquantised(CONV, 1, "weights"),
    "per_channel_input": (
        changed(CONV, 0, quantization=quantization([0.5, 0.25])),
        "2 scales: only one per tensor here",
    ),
    "zero_point_outside": (
        changed(CONV, 0, quantization=quantization(0.5, 256)),
        "zero point 256: outside uint8",
    ),
    "weight_zero_point_outside": (
        changed(CONV, 1, quantization=quantization(0.5, -1)),
        "zero point -1: outside uint8",
    ),
    "scale_0": (
        changed(CONV, 0, quantization=quantization(0.0)),
        "scale 0.0: it must be positive and finite",
    ),
    "scale_nan": (
        changed(CONV, -1, quantization=quantization(float("nan"))),
        "scale nan: it must be positive and finite",
    ),
    "uint8_per_channel": (
        changed(CONV, 1, quantization=quantization([0.5] * 8)),
        "uint8 weights with 8 scales: per channel is int8 only",
    ),
    "7_scales_for_8_channels": (
        changed(INT8, 1, quantization=quantization([0.5] * 7)),
        "weights have 7 scales on axis 0: 8 on axis 0 are needed",
    ),
    "scales_on_axis_3": (
        changed(INT8, 1, quantization=quantization([0.5] * 8, axis=3)),
        "weights have 8 scales on axis 3: 8 on axis 0 are needed",
    ),
    "negative_weight_scale": (
        changed(INT8, 1, quantization=quantization([0.5] * 7 + [-0.5])),
        "a weight scale is not positive and finite",
    ),
    "per_channel_zero_point": (
        changed(INT8, 1, quantization=quantization([0.5] * 8, [0] * 7 + [1])),
        "int8 weights with zero point 1: it must be 0",
    ),
    "scale_ratio": (
        changed(CONV, -1, quantization=quantization(1e-30)),
        "a scale ratio of 2^91: more than 2^30",
    ),
    "scale_product_beyond_float": (
        replace(
            CONV,
            inputs=(
                changed(CONV, 0, quantization=quantization(3e38)).inputs[0],
                changed(CONV, 1, quantization=quantization(2.0)).inputs[1],
            ),
        ),
        f"scales {float(np.float32(3e38))} * 2.0: more than a float holds",
    ),
    "computed_bias": (changed(CONV, 2, data=None), "the bias is not a constant"),
    "bias_of_7": (changed(CONV, 2, shape=(7,)), "bias int32 of (7,): int32 of (8,) is needed"),
    "bias_int64": (changed(CONV, 2, dtype="int64"), "bias int64 of (8,): int32 of (8,) is needed"),
    "window_too_large": (
        changed(changed(CONV, 0, shape=(1, 2, 5, 3)), options={"padding": "VALID"}),
        "output 7x5: the window gives 0x3",
    ),
}

test_refusal = refused(REFUSALS)


@pytest.mark.parametrize("inputs", [(), (0,), (0, None), (None, 1), (0, 1, 2, 2)], ids=str)
def test_wrong_inputs(inputs: tuple[int | None, ...]) -> None:
    tensors: tuple[Tensor | None, ...] = tuple(
        None if i is None else CONV.inputs[i] for i in inputs
    )
    assert refusal(replace(CONV, inputs=tensors)) == f"{len(inputs)} inputs: 2 to 3 expected"


@pytest.mark.parametrize("count", [0, 2])
def test_wrong_outputs(count: int) -> None:
    assert refusal(replace(CONV, outputs=CONV.outputs * count)) == f"{count} outputs: 1 is expected"


# Its numbers.

GEOMETRY = of_geometry(
    [
        ((7, 5, 3), (3, 3), (1, 1), (1, 1), "SAME"),
        ((7, 5, 3), (3, 3), (2, 2), (1, 1), "SAME"),
        ((7, 5, 3), (3, 3), (2, 2), (1, 1), "VALID"),
        ((7, 5, 3), (1, 1), (1, 1), (1, 1), "VALID"),
        ((7, 5, 2), (1, 1), (3, 2), (1, 1), "SAME"),
        ((11, 13, 1), (5, 2), (1, 3), (1, 1), "SAME"),
        ((11, 13, 5), (3, 3), (1, 1), (2, 2), "SAME"),
        ((11, 13, 5), (3, 2), (1, 1), (3, 5), "VALID"),
        ((5, 5, 4), (3, 3), (2, 2), (2, 1), "SAME"),
        ((2, 3, 3), (7, 7), (1, 1), (1, 1), "SAME"),
        ((3, 3, 7), (3, 3), (1, 1), (1, 1), "VALID"),
        ((1, 1, 17), (1, 1), (1, 1), (1, 1), "SAME"),
        ((1, 1, 1), (1, 1), (1, 1), (1, 1), "SAME"),
    ],
)
# Around 4 pixels a work-item and, on lanes, around ceil(items / 16) items a work-group.
PIXELS = [
    Convolution(size=(h, w, 3), kernel=(2, 2), batch=n)
    for n, h, w in [(1, 1, 3), (1, 1, 4), (1, 1, 5), (1, 2, 4), (3, 3, 1), (2, 3, 3), (1, 13, 19)]
]
# Around every block of lanes x vectors.
CHANNELS = [
    Convolution(size=(3, 3, 5), kernel=(2, 2), out_c=out_c)
    for out_c in (1, 3, 4, 5, 7, 9, 15, 16, 17, 31, 32, 33, 61)
]
FUSIONS = [Convolution(fused=fused, multiplier=2.0**-11) for fused in FUSED[1:]]
BASIC = [*GEOMETRY, *PIXELS, *CHANNELS, *FUSIONS]
CASES = [
    *BASIC,
    *(replace(case, dtype="int8") for case in GEOMETRY[:8]),
    *(replace(case, dtype="int8", per_channel=True) for case in BASIC),
    *(Convolution(zeros=(i, w, o)) for i in (0, 255) for w in (0, 255) for o in (0, 255)),
    *(Convolution(zeros=(i, 0, o), dtype="int8") for i in (-128, 127) for o in (-128, 127)),
    *(
        Convolution(multiplier=multiplier, dtype=dtype)
        for multiplier in (1.0, 1.7, 300.0, 2.0**-20, 1e-9, 1e-12)
        for dtype in ("uint8", "int8")
    ),
    Convolution(size=(4, 4, 61), kernel=(3, 3), out_c=19, multiplier=2.0**-13),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv_2d(case: Convolution, strategy: Strategy, device: DeviceInfo) -> None:
    taken = assert_exact_strategy(case.model(), device, strategy)
    blocked = "float4" if strategy is SIMT else "tiled"
    assert {name.split()[0] for name in taken} == {
        blocked if strategy is not PLAIN and case.out_c >= 4 else "plain"
    }


@pytest.mark.parametrize(
    ("out_c", "dtype", "name"),
    [(8, "uint8", "tiled 2x2"), (3, "uint8", "tiled 2x1"), (5, "int8", "tiled 2x1")],
)
def test_lanes_2(out_c: int, dtype: str, name: str, device: DeviceInfo) -> None:
    model = Convolution(out_c=out_c, dtype=dtype).model()
    assert assert_exact_strategy(model, device, LANES_2) == {name}


test_drawn_conv_2d = drawn(convolutions(), STRATEGIES, assert_seeded_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [Convolution(size=(size, size, channels), out_c=channels, dtype=dtype).node()]


# More channels than one group of some kernels takes.
BUILT = [
    Convolution(size=(5, 5, 8), kernel=kernel, out_c=40, dtype=dtype).node()
    for dtype in ("uint8", "int8")
    for kernel in ((1, 1), (3, 3))
]

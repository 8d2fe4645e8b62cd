# SPDX-License-Identifier: Apache-2.0
"""MEAN: its launches, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.cases import (
    LANES_2,
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    WAYS,
    Way,
    assert_exact_way,
    changed,
    only_launch,
    quantization,
    retyped,
)
from tests.support.factories import drawn, refused
from tests.support.reductions import (
    SHAPES,
    Reducing,
    assert_reduces,
    assert_reduces_or_refused,
    reductions,
)
from tests.support.refusals import unquantised

DTYPES = ("uint8", "int8", "int16", "int32", "float32")


@pytest.mark.parametrize(
    ("way", "shape", "axes", "names"),
    [
        (SIMT, (1, 3, 2, 3), (1, 2), ["plain"]),
        (SIMT, (1, 3, 2, 4), (1, 2), ["vector 4", "plain"]),
        (LANES_2, (1, 3, 2, 99), (1, 2), ["plain"]),
        (LANES_8, (1, 3, 2, 7), (1, 2), ["vector 4", "plain"]),
        (LANES_16, (1, 3, 2, 17), (1, 2), ["vector 16", "plain"]),
        (LANES_16, (3, 2, 17), (2,), ["row 16", "plain"]),
        (LANES_16, (3, 2, 17), (1, 2), ["row 16", "plain"]),
        (LANES_8, (3, 3), (1,), ["plain"]),
        (SIMT, (3, 99), (1,), ["plain"]),
    ],
)
def test_alternatives(
    way: Way, shape: tuple[int, ...], axes: tuple[int, ...], names: list[str]
) -> None:
    found = ops.lower(Reducing(shape=shape, axes=axes).node(), way.target)
    assert [alternative.name for alternative in found] == names


def test_launch() -> None:
    node = Reducing(shape=(5, 3, 2, 13), scales=(0.5, 0.25), dtype="uint8").node()
    plain = ops.lower(node, SIMT.target)[-1]
    launch = only_launch(plain)
    assert (plain.name, launch.file, launch.kernel) == ("plain", "reduce", "reduce")
    assert (launch.tiles, launch.group_items) == (2, 64)  # 5 x 13 elements
    assert launch.defines == {"ELEM": "uchar", "FOLD": "SUM", "FINISH": 1}
    assert launch.params == {
        "input": node.inputs[0], "output": node.outputs[0],
        "kept_0": 1, "kept_1": 5, "kept_2": 13,
        "kept_step_0": 0, "kept_step_1": 78, "kept_step_2": 1,
        "reduced_0": 1, "reduced_1": 1, "reduced_2": 6,
        "reduced_step_0": 0, "reduced_step_1": 0, "reduced_step_2": 13,
        "start": 0, "offset": -6 * 131, "output_zero": 120, "output_min": 0, "output_max": 255,
        # 2 is 2^30 * 2^(2 - 31); over 6 pixels, with 2 bits more
        "multiplier": (2**30 << 2) // 6, "shift": 0, "items": 65, "tile_items": 64,
    }  # fmt: skip
    assert launch.reads == node.inputs[:1]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_numbers_without_scales(dtype: str) -> None:
    node = Reducing(shape=(5, 3, 2, 13), dtype=dtype).node()
    launch = only_launch(ops.lower(node, SIMT.target)[-1])
    if dtype == "int32":
        assert (launch.kernel, launch.params["terms"]) == ("mean_int32", 6)
    else:
        assert (launch.kernel, launch.defines["FINISH"]) == ("reduce", 2)
        assert launch.params["factor"] == np.float32(1 / 6).view(np.int32)


NODE = Reducing().node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "axis_outside": (
        changed(NODE, 1, data=np.array([1, 6], np.int32)),
        "axes [1, 6] of 1x7x5x3: each must be one of its axes",
    ),
    "computed_axes": (changed(NODE, 1, data=None), "axes are not constant"),
    "int64_axes": (changed(NODE, 1, dtype="int64"), "int64 axes: only int32"),
    "empty": (changed(NODE, 0, shape=(1, 0, 5, 3)), "shape 1x0x5x3: it is empty"),
    "scalar": (changed(NODE, 0, shape=()), "axes [1, 2] of scalar: each must be one of its axes"),
    "output_size": (changed(NODE, -1, shape=(1, 4)), "output 1x4: 1x3 is computed"),
    "output_keeps_dims": (changed(NODE, -1, shape=(1, 1, 1, 3)), "output 1x1x1x3: 1x3 is computed"),
    "signedness_changes": (
        changed(NODE, -1, dtype="uint8"),
        "int8 in, uint8 out: they must be equal",
    ),
    "bool": (retyped(NODE, "bool"), "bool: only uint8 and int8 and int16 are implemented"),
    "without_quantisation": unquantised(NODE, -1),
    "int16_zero": (
        Reducing(dtype="int16", zeros=(1, 0)).node(),
        "int16 with zero point 1: it must be 0",
    ),
    "scale_ratio": (
        changed(NODE, -1, quantization=quantization(1e-30)),
        "a scale ratio of 2^97: more than 2^30",
    ),
    "too_many": (
        Reducing(shape=(1, 1000, 1000, 3)).node(),
        "1000000 elements per result: too many for a work-item",
    ),
    "too_many_integers": (
        Reducing(shape=(1, 200, 200, 3), dtype="int32").node(),
        "40000 int32 elements per result: more than 2^15",
    ),
    "in_turns": (
        Reducing(shape=(2,) * 8, axes=(0, 2, 4, 6)).node(),
        "4 dimensions that differ: at most 3 are implemented",
    ),
    "no_axes_input": (replace(NODE, inputs=NODE.inputs[:1]), "1 inputs: 2 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)

BASIC = [
    *(
        Reducing(shape=shape)
        for shape in [
            (1, 7, 7, 64),
            (2, 4, 4, 65),
            (3, 1, 1, 1),
            (1, 1, 1, 17),
            (1, 64, 65, 2),
            (1, 64, 65, 16),
            (2, 3, 5, 4),
            (3, 2, 3, 8),
            (1, 2, 3, 15),
        ]
    ),
    Reducing(keeps_dims=True, shape=(2, 3, 5, 7)),
    # Equal on both sides: TFLite may take another way.
    Reducing(scales=(0.1, 0.1), zeros=(5, 5)),
    Reducing(scales=(0.1, 0.1), zeros=(5, 5), keeps_dims=True),
    Reducing(scales=(1.0, 0.125)),
    Reducing(scales=(1e-6, 1.0)),
    Reducing(scales=(1e-12, 1.0)),
    Reducing(scales=(1.0, 0.001)),
]
CASES = [
    *BASIC,
    *(replace(case, dtype="uint8", zeros=case.zeros and (105, 105)) for case in BASIC),
    *(Reducing(zeros=(a, b)) for a in (-128, 127) for b in (-128, 127)),
    *(Reducing(zeros=(a, b), dtype="uint8") for a in (0, 255) for b in (0, 255)),
    *(Reducing(scales=scaled, dtype="int16") for scaled in ((1.0, 0.001), (0.1, 0.1), (0.01, 1.0))),
]


@pytest.mark.parametrize("way", [PLAIN, LANES_4, LANES_16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_over_pixels(case: Reducing, way: Way, device: DeviceInfo) -> None:
    (name,) = assert_exact_way(case.model(), device, way)
    is_vector = way is not PLAIN and case.shape[3] >= 4
    assert name.split()[0] == ("vector" if is_vector else "plain")


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_axes(dtype: str, way: Way, device: DeviceInfo) -> None:
    for number, (shape, axes) in enumerate(SHAPES):
        case = Reducing(shape=shape, axes=axes, keeps_dims=number % 2 == 1, dtype=dtype)
        assert_reduces(case, device, way)


def test_integers_truncate(device: DeviceInfo) -> None:
    # Toward zero, of sums beyond 32 bits.
    case = Reducing(shape=(6, 4), axes=(1,), dtype="int32")
    most, least = 2**31 - 1, -(2**31)
    rows = [
        [most] * 3 + [5],
        [least] * 4,
        [-7, 0, 0, 0],
        [-7, -1, 0, 0],
        [7, 0, 0, 0],
        [least, most, 1, 1],
    ]
    assert_exact_way(case.model(), device, inputs=[[np.array(rows, np.int32)]])


def test_more_rounds_than_some_drivers_make(device: DeviceInfo) -> None:
    for shape, axes in (((1, 263, 263, 3), (1, 2)), ((70001, 2), (0,)), ((2, 70001), (1,))):
        for way in (PLAIN, LANES_8):
            assert_exact_way(Reducing(shape=shape, axes=axes).model(), device, way)


test_drawn = drawn(reductions(("MEAN",), DTYPES), WAYS, assert_reduces_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [Reducing(shape=(1, size, size, channels), dtype=dtype).node()]


BUILT = [
    Reducing(shape=(2, 18, 17), axes=(axis,), dtype=dtype).node()
    for axis in (1, 2)
    for dtype in DTYPES
]

# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE: its launches, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.launch import Constant
from tests.support.cases import (
    GROUPS,
    LANES_8,
    SEEDS,
    SIMT,
    Way,
    assert_exact_or_refused,
    assert_exact_way,
    changed,
    only_launch,
    quantization,
    scales,
    zero_points,
)
from tests.support.compare import interpreter
from tests.support.factories import refused
from tests.support.model import chain_model, op, t
from tests.support.refusals import unquantised


@dataclass(frozen=True, slots=True, kw_only=True)
class Requantization:
    """One QUANTIZE by its parameters, the input's first; floats have neither scale nor zero."""

    shape: tuple[int, ...] = (1, 7, 5, 11)
    dtypes: tuple[str, str] = ("uint8", "int8")
    scales: tuple[float, float] = (0.1, 0.07)
    zeros: tuple[int, int] = (3, 8)

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return "in{}-{}_to_{}-scales{:g}_{:g}-zeros{}_{}".format(
            shape, *self.dtypes, *self.scales, *self.zeros
        )

    def node(self) -> Node:
        source, result = (
            t(
                self.shape,
                dtype,
                None if dtype == "float32" else scale,
                0 if dtype == "int16" else zero,
            )
            for dtype, scale, zero in zip(self.dtypes, self.scales, self.zeros, strict=True)
        )
        return op("QUANTIZE", [source], [result], version=2)

    def model(self) -> bytes:
        return chain_model([self.node()])


@pytest.mark.parametrize(
    ("way", "tiles", "group_items", "tile_items"),
    [(SIMT, 65, 64, 64), (LANES_8, 2, 1, 4096)],
    ids=str,
)
@pytest.mark.parametrize(
    ("dtype", "kernel"), [("float32", "quantize_float"), ("int32", "quantize_int32")]
)
def test_launch(
    dtype: str, kernel: str, way: Way, tiles: int, group_items: int, tile_items: int
) -> None:
    node = Requantization(shape=(17, 241), dtypes=(dtype, "int8")).node()
    *vectors, plain = ops.lower(node, way.target)
    vector = "vector 8" if way is LANES_8 else "vector 4"
    assert [each.name for each in vectors] == ([vector] if dtype == "float32" else [])
    launch = only_launch(plain)
    assert (plain.name, launch.file, launch.kernel) == ("plain", "quantize", kernel)
    assert (launch.tiles, launch.group_items) == (tiles, group_items)  # of 4097 elements
    assert launch.defines == {"ELEM": "char"}
    assert launch.params["tile_items"] == tile_items


@pytest.mark.parametrize(
    ("way", "lanes", "tiles", "tile_items"), [(SIMT, 4, 17, 64), (LANES_8, 8, 2, 512)], ids=str
)
def test_vectors(way: Way, lanes: int, tiles: int, tile_items: int) -> None:
    node = Requantization(shape=(17, 241), dtypes=("float32", "uint8")).node()
    launch = only_launch(ops.lower(node, way.target)[0])
    assert (launch.kernel, launch.tiles) == ("quantize_vector_float", tiles)
    assert launch.defines == {"ELEM": "uchar", "LANES": lanes}  # of 4097 elements
    assert launch.params["tile_items"] == tile_items
    even = Requantization(shape=(17, 240), dtypes=("float32", "uint8")).node()
    is_aligned = only_launch(ops.lower(even, way.target)[0]).defines.get("IS_ALIGNED")
    assert is_aligned == (1 if way is SIMT else None)


def test_small_integers_have_a_table() -> None:
    node = Requantization(dtypes=("int8", "uint8"), scales=(0.5, 0.5), zeros=(0, 128)).node()
    vector, plain = ops.lower(node, SIMT.target)
    assert [only_launch(each).kernel for each in (vector, plain)] == ["lookup_vector", "lookup"]
    table = only_launch(plain).params["table"]
    assert isinstance(table, Constant)
    signed = np.arange(256, dtype=np.uint8).view(np.int8).astype(int)
    assert table.pack().tolist() == (signed + 128).tolist()


def test_thresholds_are_the_least_floats() -> None:
    node = Requantization(dtypes=("float32", "uint8"), scales=(1, 0.5), zeros=(0, 2)).node()
    thresholds = only_launch(ops.lower(node, SIMT.target)[0]).params["thresholds"]
    assert isinstance(thresholds, Constant)
    packed = thresholds.pack()
    assert packed.nbytes == thresholds.size_bytes
    up = np.nextafter(np.float32([-0.75, -0.25]), np.float32(1))
    assert packed[:5].tolist() == [-np.inf, *up.tolist(), 0.25, 0.75]


NODE = Requantization().node()
FLOAT = Requantization(dtypes=("float32", "int8")).node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "float16": (
        changed(NODE, 0, dtype="float16"),
        "float16: only uint8 and int8 and int16 and int32 are implemented",
    ),
    "to_int32": (
        changed(NODE, -1, dtype="int32"),
        "int32: only uint8 and int8 and int16 are implemented",
    ),
    "int16_to_uint8": (
        Requantization(dtypes=("int16", "uint8")).node(),
        "int16 to uint8: only to int8 and int16",
    ),
    "without_quantisation": unquantised(NODE, -1),
    "float_without_quantisation": unquantised(FLOAT, -1),
    "per_channel": (
        changed(NODE, -1, quantization=quantization([0.5] * 11, axis=3)),
        "11 scales: only one per tensor here",
    ),
    "zero_point_outside": (
        changed(NODE, -1, quantization=quantization(0.5, 200)),
        "zero point 200: outside int8",
    ),
    "shape_changes": (changed(NODE, -1, shape=(385,)), "1x7x5x11 -> 385: the shape must stay"),
    "empty": (changed(changed(NODE, 0, shape=(0,)), -1, shape=(0,)), "shape 0: it is empty"),
    "scale_ratio": (
        changed(NODE, -1, quantization=quantization(1e-30)),
        "a scale ratio of 2^97: more than 2^30",
    ),
    "least_scale": (
        changed(FLOAT, -1, quantization=quantization(2.0**-96)),
        f"scale {2.0**-96}: only 2^-96 to 2^96, so that its reciprocal is exact",
    ),
    "no_input": (replace(NODE, inputs=(None,)), "1 inputs: 1 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)


def skip_unless_known(model: bytes) -> None:
    """Skip what this TFLite does not take: the older one brings no 8 bits to int16."""
    try:
        interpreter(model)
    except (RuntimeError, ValueError) as error:
        pytest.skip(f"TFLite refuses it: {error}")


ENDS = {"uint8": (0, 255), "int8": (-128, 127)}
CASES = [
    *(
        Requantization(dtypes=(a, b), zeros=(i, o), scales=scales)
        for a, i in (("uint8", 0), ("uint8", 255), ("int8", -128))
        for b in ENDS
        for o in ENDS[b]
        for scales in [(0.1, 0.07), (0.25, 0.5)]
    ),
    *(Requantization(shape=shape) for shape in [(), (1,), (63,), (64,), (65,), (4095,), (4097,)]),
    *(Requantization(scales=scales) for scales in [(1.0, 0.001), (1e-6, 1.0), (1e-12, 1.0)]),
    Requantization(scales=(0.5, 0.5), zeros=(128, 0)),
    *(
        Requantization(dtypes=dtypes, scales=scales, shape=(3, 683))
        for dtypes in [
            ("uint8", "int16"),
            ("int8", "int16"),
            ("int16", "int8"),
            ("int16", "int16"),
            ("int32", "int8"),
            ("int32", "int16"),
        ]
        for scales in [(0.1, 0.07), (0.5, 0.5), (1e-7, 1.0), (3.0, 0.001)]
    ),
]


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_quantize(case: Requantization, way: Way, device: DeviceInfo) -> None:
    skip_unless_known(case.model())
    assert_exact_way(case.model(), device, way)


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_every_int16(dtype: str, way: Way, device: DeviceInfo) -> None:
    case = Requantization(shape=(65536,), dtypes=("int16", dtype), scales=(0.013, 0.7))
    every = np.arange(-(2**15), 2**15).astype(np.int16)
    assert_exact_way(case.model(), device, way, inputs=[[every]])


def near_ties(case: Requantization) -> NDArray[Any]:
    """Return the floats around where one output value gives way to the next, and far ones."""
    limits = np.iinfo(case.dtypes[1])
    zero = 0 if case.dtypes[1] == "int16" else case.zeros[1]
    step = 1 if limits.bits == 8 else 97
    halves = np.arange(limits.min - 3, limits.max + 4, step) - zero + 0.5
    near = (halves * np.float32(case.scales[1]).astype(np.float64)).astype(np.float32)
    up, down = np.float32(np.inf), np.float32(-np.inf)
    around = [near]
    for _ in range(2):
        around = [np.nextafter(around[0], down), *around, np.nextafter(around[-1], up)]
    far = np.float32([0.0, -0.0, 0.5, -0.5, 1e-40, -1e-40, 2.0**30, -(2.0**30)])
    return np.concatenate([*around, far * np.float32(case.scales[1])])


FLOATS = [
    *(
        Requantization(dtypes=("float32", dtype), scales=(1, scale), zeros=(0, zero))
        for dtype, zeros in (("uint8", (0, 3, 255)), ("int8", (-128, 127)), ("int16", (0,)))
        for zero in zeros
        for scale in (0.5, 0.1, 1 / 3, 1e-9, 12345.678)
    )
]


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("case", FLOATS, ids=str)
def test_ties_of_floats(case: Requantization, way: Way, device: DeviceInfo) -> None:
    values = near_ties(case)
    case = replace(case, shape=values.shape)
    assert_exact_way(case.model(), device, way, inputs=[[values]])


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("zero", [-128, -1, 0, 127])
def test_floats_an_int32_cannot_hold(zero: int, way: Way, device: DeviceInfo) -> None:
    below = np.nextafter(np.float32(2.0**30), np.float32(0))
    values = np.float32([2.0**30, below, 3e9, 1e38, np.inf, -(2.0**30), -below, -3e9, -np.inf])
    values = np.append(values, np.float32(np.nan))
    case = Requantization(
        shape=values.shape, dtypes=("float32", "int8"), scales=(1, 0.5), zeros=(0, zero)
    )
    assert_exact_way(case.model(), device, way, inputs=[[values]])


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (63,), (64,), (65,), (2, 3, 5), (4097,)], ids=str)
def test_shapes_of_floats(shape: tuple[int, ...], way: Way, device: DeviceInfo) -> None:
    case = Requantization(shape=shape, dtypes=("float32", "uint8"))
    assert_exact_way(case.model(), device, way)


@st.composite
def requantizations(draw: st.DrawFn) -> Requantization:
    dtypes = (
        draw(st.sampled_from(["uint8", "int8", "int16", "int32", "float32"])),
        draw(st.sampled_from(["uint8", "int8", "int16"])),
    )
    zero_types = "int8" if dtypes[0] in ("int32", "float32") else dtypes[0], dtypes[1]
    return Requantization(
        shape=tuple(draw(st.lists(st.integers(1, 11), max_size=4))),
        dtypes=dtypes,
        scales=(draw(scales()), draw(scales())),
        zeros=(draw(zero_points(zero_types[0])), draw(zero_points(zero_types[1]))),
    )


@given(case=requantizations(), way=st.sampled_from(GROUPS), seed=SEEDS)
def test_drawn_quantize(device: DeviceInfo, case: Requantization, way: Way, seed: int) -> None:
    if case.dtypes[0] == "int16" and case.dtypes[1] == "uint8":
        case = replace(case, dtypes=("int16", "int8"), zeros=(0, 3))
    if case.dtypes == ("int32", "uint8"):
        case = replace(case, dtypes=("int32", "int16"))
    assert_exact_or_refused(case.model(), device, way, seed)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [
        Requantization(
            shape=(1, size, size, channels), dtypes=(dtype, dtype), scales=(0.5, 0.5), zeros=(3, 3)
        ).node()
    ]


BUILT = [
    Requantization(shape=(5, 40), dtypes=(before, after)).node()
    for before, afters in (("float32", ("uint8", "int8", "int16")), ("int32", ("int8", "int16")))
    for after in afters
]

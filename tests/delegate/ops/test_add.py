# SPDX-License-Identifier: Apache-2.0
"""ADD: its launch, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.launch import Launch
from tests.support.cases import (
    DRAWN_WAYS,
    DTYPES,
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
    integers,
    only_launch,
    quantization,
    retyped,
    scales,
    zero_points,
)
from tests.support.factories import drawn, exact, refused
from tests.support.model import chain_model, const, op, t
from tests.support.pairs import BROADCASTS, QUANT, Case, cases, every_pair
from tests.support.refusals import activated, sparse, unquantised


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """One ADD by its parameters."""

    shape: tuple[int, ...] = (1, 7, 5, 3)
    scales: tuple[float, float, float] = (0.1, 0.07, 0.13)  # left, right, output
    zeros: tuple[int, int, int] | None = None
    fused: str = "NONE"
    dtype: str = "uint8"
    right: str = "computed"  # or "constant", or "same": the left one again

    def __str__(self) -> str:
        parts = {
            "in" + ("x".join(map(str, self.shape)) or "scalar"): True,
            "scales{:g}_{:g}_{:g}".format(*self.scales): self.scales != (0.1, 0.07, 0.13),
            "zeros{}_{}_{}".format(*self.zeros or "---"): self.zeros is not None,
            self.fused.lower(): self.fused != "NONE",
            f"right_{self.right}": self.right != "computed",
            self.dtype: True,
        }
        return "-".join(part for part, is_said in parts.items() if is_said)

    def node(self) -> Node:
        zeros = self.zeros or ((131, 120, 125) if self.dtype == "uint8" else (3, -8, -3))
        left, right, result = (
            t(self.shape, self.dtype, scale, zero)
            for scale, zero in zip(self.scales, zeros, strict=True)
        )
        if self.right == "constant":
            right = const(integers(self.shape, self.dtype), self.scales[1], zeros[1])
        return op(
            "ADD",
            [left, left if self.right == "same" else right],
            [result],
            {"fused_activation_function": self.fused},
            version=2,
        )

    def model(self) -> bytes:
        return chain_model([self.node()])


def launches(case: Sum, way: Way) -> dict[str, Launch]:
    """Return the launch of each alternative, by name, in order."""
    found = ops.lower(case.node(), way.target)
    return {alternative.name: only_launch(alternative) for alternative in found}


@pytest.mark.parametrize(
    ("way", "elements", "names"),
    [
        (SIMT, 3, ["plain"]),
        (SIMT, 4, ["float 4", "vector 4", "plain"]),
        (LANES_2, 99, ["plain"]),
        (LANES_8, 7, ["float 4", "vector 4", "plain"]),
        (LANES_16, 16, ["float 16", "vector 16", "plain"]),
    ],
    ids=str,
)
def test_floats_then_vectors_then_plain(way: Way, elements: int, names: list[str]) -> None:
    assert list(launches(Sum(shape=(elements,)), way)) == names


def test_no_floats_where_none_are_exact() -> None:
    # Half of the sum of two integers is a tie for every odd one, away from 0 in TFLite.
    case = Sum(shape=(16,), scales=(0.5, 0.5, 1.0), zeros=(0, 0, 0), dtype="int8")
    assert list(launches(case, SIMT)) == ["vector 4", "plain"]


@pytest.mark.parametrize(
    ("way", "tiles", "group_items", "tile_items"),
    [(SIMT, 33, 64, 64), (LANES_8, 3, 1, 1024)],
    ids=str,
)
def test_plain_launch(way: Way, tiles: int, group_items: int, tile_items: int) -> None:
    case = Sum(shape=(3, 683), scales=(0.5, 0.25, 0.5), dtype="int8", fused="RELU")
    launch = launches(case, way)["plain"]
    assert (launch.file, launch.kernel) == ("add", "add_quant8")
    assert (launch.tiles, launch.group_items) == (tiles, group_items)  # of 2049 elements
    assert launch.defines == {"ELEM": "char"}
    left, right, result = launch.reads + launch.writes
    assert launch.params == {
        "left": left, "right": right, "output": result,
        "left_zero": 3, "right_zero": -8, "output_zero": -3,
        # The scales over twice the widest: 0.5 and 0.25; 1 / 0.5 over 2^20.
        "left_multiplier": 2**30, "right_multiplier": 2**30, "output_multiplier": 2**30,
        "left_shift": 0, "right_shift": -1, "output_shift": -18,
        "output_min": -3, "output_max": 127, "elements": 2049, "tile_items": tile_items,
    }  # fmt: skip


def test_vector_launches() -> None:
    case = Sum(shape=(3, 683))
    floats, vectors = list(launches(case, SIMT).values())[:2]
    assert floats.kernel == vectors.kernel == "add_vector_quant8"
    assert (floats.tiles, floats.group_items) == (vectors.tiles, vectors.group_items) == (9, 64)
    assert floats.defines == {"ELEM": "uchar", "LANES": 4, "IS_FLOAT": 1}
    assert vectors.defines == {"ELEM": "uchar", "LANES": 4, "IS_FLOAT": 0}
    assert {"left_factor", "right_factor", "offset"} <= set(floats.params)
    assert {"left_multiplier", "left_zero"} <= set(vectors.params)
    one_item = launches(case, LANES_16)["float 16"]
    # 129 vectors, in tiles that are worth claiming
    assert (one_item.tiles, one_item.params["tile_items"]) == (1, 129)
    large = launches(Sum(shape=(1 << 20,)), LANES_16)["float 16"]
    assert (large.tiles, large.params["tile_items"]) == (16, 4096)


NODE = Sum().node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "output_shape": (
        changed(NODE, -1, shape=()),
        "1x7x5x3 and 1x7x5x3 -> scalar: not the broadcast shape",
    ),
    "types_differ": (changed(NODE, 1, dtype="int8"), "uint8 and int8 -> uint8: they must be equal"),
    "int16_zero_point": (
        retyped(NODE, "int16", (0, 1, -1)),
        "int16 with zero point 125: it must be 0",
    ),
    "float64": (
        retyped(NODE, "float64", (0, 1, -1)),
        "float64: only uint8, int8, int16, int32, float32, int64 are implemented",
    ),
    "without_quantisation": unquantised(NODE, 1),
    "output_scale": (
        changed(NODE, -1, quantization=quantization(2.0**-23)),
        f"output scale {2.0**-23}: too small beside 0.10000000149011612",
    ),
    "empty": (
        changed(changed(changed(NODE, 0, shape=(0,)), 1, shape=(0,)), -1, shape=(0,)),
        "shape 0: it is empty",
    ),
    "fused_tanh": activated(NODE, "TANH"),
    "sparse_constant": sparse(NODE, 1),
    "one_input": (replace(NODE, inputs=NODE.inputs[:1]), "1 inputs: 2 expected"),
    "left_out_input": (replace(NODE, inputs=(NODE.inputs[0], None)), "2 inputs: 2 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)

CASES = [
    *(
        Sum(shape=shape, dtype=dtype)
        for shape in [
            (),
            (1,),
            (63,),
            (64,),
            (65,),
            (1, 7, 5, 3),
            (2, 3),
            (1023,),
            (1024,),
            (1025,),
        ]
        for dtype in ("uint8", "int8")
    ),
    *(Sum(fused=fused, dtype=dtype) for fused in FUSED[1:] for dtype in ("uint8", "int8")),
    *(Sum(zeros=(a, b, c)) for a in (0, 255) for b in (0, 255) for c in (0, 255)),
    *(Sum(zeros=(a, -a - 1, c), dtype="int8") for a in (-128, 127) for c in (-128, 127)),
    *(
        Sum(scales=scales, dtype="int8")
        for scales in [(0.5, 0.5, 0.5), (1.0, 0.001, 0.7), (1e-5, 1.0, 1.0), (1e-9, 1.0, 0.01)]
    ),
    Sum(right="constant"),
    Sum(right="constant", shape=(65,), dtype="int8"),
    Sum(right="same"),
]


FORCED = [
    replace(way, name=f"{way.name}-{alternative}", alternative=alternative)
    for way in (SIMT, LANES_4, LANES_8, LANES_16)
    for alternative in ("float", "vector", "plain")
]


def names_of(case: Sum, way: Way) -> set[str]:
    """Return the first words of the alternatives there are."""
    return {name.split()[0] for name in launches(case, way)}


@pytest.mark.parametrize(
    ("case", "way"),
    [
        pytest.param(case, way, id=f"{case}-{way}")
        for case in CASES
        for way in FORCED
        if way.alternative in names_of(case, way)
    ],
)
def test_add(case: Sum, way: Way, device: DeviceInfo) -> None:
    (name,) = assert_exact_way(case.model(), device, way)
    assert name.split()[0] == way.alternative


BROADCAST = [
    *(
        Case(op="ADD", shapes=BROADCASTS[name])
        for name in BROADCASTS
        if name not in ("equal", "one")
    ),
    *(
        Case(op="ADD", dtype=dtype, shapes=BROADCASTS[name], fused=fused)
        for name, fused in (("equal", "RELU"), ("channels", "NONE"), ("both", "RELU6"))
        for dtype in ("int16", "int32", "float32")
    ),
    Case(op="ADD", dtype="int16", scales=(0.25, 0.5, 0.5)),
    Case(op="ADD", dtype="int16", scales=(0.5, 0.125, 0.5), fused="RELU6"),
    Case(op="ADD", dtype="int16", scales=(0.5, 0.5, 0.5), options={"pot_scale_int16": False}),
    Case(op="ADD", shapes=((1, 1), (17,)), constant="right"),
    Case(op="ADD", dtype="uint8", shapes=((48, 4, 17), ()), constant="right"),
]


@pytest.mark.parametrize("way", [PLAIN, LANES_8], ids=str)
@pytest.mark.parametrize("case", BROADCAST, ids=str)
def test_broadcast_and_other_types(case: Case, way: Way, device: DeviceInfo) -> None:
    (name,) = assert_exact_way(chain_model([case.node()]), device, way)
    assert (name == "plain") == (way is PLAIN)


EVERY = [
    Sum(shape=(256, 256)),
    Sum(shape=(256, 256), dtype="int8", fused="RELU"),
    Sum(shape=(256, 256), scales=(0.4015, 0.2758, 0.4322), zeros=(136, 119, 133)),
    Sum(shape=(256, 256), scales=(0.19, 0.17, 0.05), dtype="int8"),
]


def assert_every_pair(case: Sum, device: DeviceInfo, way: Way) -> None:
    assert_exact_way(case.model(), device, way, inputs=[every_pair(case.dtype)])


test_every_pair_of_inputs = exact(EVERY, FORCED, assert_every_pair)


@st.composite
def sums(draw: st.DrawFn) -> Sum:
    dtype = draw(DTYPES)
    return Sum(
        shape=tuple(draw(st.lists(st.integers(1, 11), max_size=4))),
        scales=(draw(scales()), draw(scales()), draw(scales())),
        zeros=(draw(zero_points(dtype)), draw(zero_points(dtype)), draw(zero_points(dtype))),
        fused=draw(st.sampled_from(FUSED)),
        dtype=dtype,
        right=draw(st.sampled_from(["computed", "constant", "same"])),
    )


test_drawn_add = drawn(sums(), WAYS)


@given(case=cases(("ADD",), (*QUANT, "int32", "float32")), way=DRAWN_WAYS, seed=SEEDS)
def test_drawn_broadcast(device: DeviceInfo, case: Case, way: Way, seed: int) -> None:
    if case.dtype == "int16":  # with shifts by powers of two, shapes are equal
        case = replace(case, options={"pot_scale_int16": False})
    assert_exact_or_refused(chain_model([case.node()]), device, way, seed)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [
        Sum(
            shape=(1, size, size, channels), scales=(0.5, 0.5, 0.5), zeros=(3, 3, 3), dtype=dtype
        ).node()
    ]

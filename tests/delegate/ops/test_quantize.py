# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE from 8 bit to 8 bit: its launch, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, Node, ops
from delegate.launch import Constant
from tests.support.cases import (
    DTYPES,
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
    refusal,
    scales,
    zero_points,
)
from tests.support.model import chain_model, op, t


@dataclass(frozen=True, slots=True, kw_only=True)
class Requantization:
    """One QUANTIZE by its parameters, the input's first."""

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
            t(self.shape, dtype, scale, zero)
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
def test_launch(way: Way, tiles: int, group_items: int, tile_items: int) -> None:
    node = Requantization(shape=(17, 241)).node()
    (plain,) = ops.lower(node, way.target)
    launch = only_launch(plain)
    assert (plain.name, launch.file, launch.kernel) == ("plain", "quantize", "quantize_quant8")
    assert (launch.tiles, launch.group_items) == (tiles, group_items)  # of 4097 elements
    assert launch.defines == {}
    assert list(launch.params) == ["input", "output", "table", "elements", "tile_items"]
    assert launch.params["tile_items"] == tile_items


def test_table_has_an_answer_for_each_byte() -> None:
    node = Requantization(dtypes=("int8", "uint8"), scales=(0.5, 0.5), zeros=(0, 128)).node()
    table = only_launch(ops.lower(node, SIMT.target)[0]).params["table"]
    assert isinstance(table, Constant)
    signed = np.arange(256, dtype=np.uint8).view(np.int8).astype(int)
    assert table.pack().tolist() == (signed + 128).tolist()


NODE = Requantization().node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "from_float32": (
        changed(NODE, 0, dtype="float32"),
        "float32: only uint8 and int8 are implemented",
    ),
    "to_int16": (changed(NODE, -1, dtype="int16"), "int16: only uint8 and int8 are implemented"),
    "without_quantisation": (
        changed(NODE, -1, quantization=None),
        "int8 without quantisation: scale and zero point are missing",
    ),
    "per_channel": (
        changed(NODE, -1, quantization=quantization([0.5] * 11, axis=3)),
        "11 scales: only one a tensor is allowed here",
    ),
    "zero_point_outside": (
        changed(NODE, -1, quantization=quantization(0.5, 200)),
        "zero point 200: outside int8",
    ),
    "shape_changes": (changed(NODE, -1, shape=(385,)), "1x7x5x11 -> 385: the shape must stay"),
    "empty": (
        changed(changed(NODE, 0, shape=(0,)), -1, shape=(0,)),
        "shape 0: it is empty",
    ),
    "scale_ratio": (
        changed(NODE, -1, quantization=quantization(1e-30)),
        "a scale ratio of 2^97: more than 2^30",
    ),
    "no_input": (replace(NODE, inputs=(None,)), "1 inputs: 1 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}


@pytest.mark.parametrize(("node", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_refusal(node: Node, reason: str) -> None:
    assert refusal(node) == reason


ENDS = {"uint8": (0, 255), "int8": (-128, 127)}
CASES = [
    *(
        Requantization(dtypes=(a, b), zeros=(i, o), scales=scales)
        for a in ENDS
        for b in ENDS
        for i in ENDS[a]
        for o in ENDS[b]
        for scales in [(0.1, 0.07), (0.5, 0.5), (0.25, 0.5)]
    ),
    *(Requantization(shape=shape) for shape in [(), (1,), (63,), (64,), (65,), (4095,), (4097,)]),
    *(Requantization(scales=scales) for scales in [(1.0, 0.001), (1e-6, 1.0), (1e-12, 1.0)]),
    Requantization(scales=(0.5, 0.5), zeros=(128, 0)),
]


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_quantize(case: Requantization, way: Way, device: DeviceInfo) -> None:
    assert_exact_way(case.model(), device, way)


@st.composite
def requantizations(draw: st.DrawFn) -> Requantization:
    dtypes = draw(DTYPES), draw(DTYPES)
    return Requantization(
        shape=tuple(draw(st.lists(st.integers(1, 11), max_size=4))),
        dtypes=dtypes,
        scales=(draw(scales()), draw(scales())),
        zeros=(draw(zero_points(dtypes[0])), draw(zero_points(dtypes[1]))),
    )


@given(case=requantizations(), way=st.sampled_from(GROUPS), seed=SEEDS)
def test_drawn_quantize(device: DeviceInfo, case: Requantization, way: Way, seed: int) -> None:
    assert_exact_or_refused(case.model(), device, way, seed)

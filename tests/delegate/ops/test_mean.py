# SPDX-License-Identifier: Apache-2.0
"""MEAN over height and width: its launch, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, Node, ops
from tests.support.cases import (
    DRAWN_WAYS,
    DTYPES,
    LANES_2,
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
    scales,
    zero_points,
)
from tests.support.model import chain_model, const, op, t


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """One MEAN by its parameters."""

    shape: tuple[int, int, int, int] = (1, 7, 5, 3)
    axes: tuple[int, ...] = (1, 2)
    keeps_dims: bool = False
    scales: tuple[float, float] = (0.1, 0.07)
    zeros: tuple[int, int] | None = None
    dtype: str = "int8"

    def __str__(self) -> str:
        parts = {
            "in" + "x".join(map(str, self.shape)): True,
            "axes" + "_".join(map(str, self.axes)): self.axes != (1, 2),
            "keep_dims": self.keeps_dims,
            "scales{:g}_{:g}".format(*self.scales): self.scales != (0.1, 0.07),
            "zeros{}_{}".format(*self.zeros or "--"): self.zeros is not None,
            self.dtype: True,
        }
        return "-".join(part for part, is_said in parts.items() if is_said)

    def node(self) -> Node:
        batch, _, _, depth = self.shape
        zeros = self.zeros or ((131, 120) if self.dtype == "uint8" else (3, -8))
        return op(
            "MEAN",
            [
                t(self.shape, self.dtype, self.scales[0], zeros[0]),
                const(np.array(self.axes, np.int32)),
            ],
            [
                t(
                    (batch, 1, 1, depth) if self.keeps_dims else (batch, depth),
                    self.dtype,
                    self.scales[1],
                    zeros[1],
                )
            ],
            {"keep_dims": self.keeps_dims},
            version=2,
        )

    def model(self) -> bytes:
        return chain_model([self.node()])


@pytest.mark.parametrize(
    ("way", "depth", "names"),
    [
        (SIMT, 3, ["plain"]),
        (SIMT, 4, ["vector 4", "plain"]),
        (LANES_2, 99, ["plain"]),
        (LANES_8, 7, ["vector 4", "plain"]),
        (LANES_16, 17, ["vector 16", "plain"]),
    ],
    ids=str,
)
def test_vectors_then_plain(way: Way, depth: int, names: list[str]) -> None:
    found = ops.lower(Mean(shape=(1, 3, 2, depth)).node(), way.target)
    assert [alternative.name for alternative in found] == names


@pytest.mark.parametrize(
    ("way", "shape", "tiles", "group_items", "tile_items"),
    [
        (SIMT, (5, 3, 2, 13), 1, 64, 64),  # 5 x 4 blocks
        (LANES_8, (5, 3, 2, 13), 1, 1, 10),
        (LANES_16, (1, 7, 7, 1280), 8, 1, 10),
        (LANES_16, (1, 64, 65, 512), 16, 1, 2),
    ],
    ids=str,
)
def test_vector_launch(
    way: Way, shape: tuple[int, int, int, int], tiles: int, group_items: int, tile_items: int
) -> None:
    launch = only_launch(ops.lower(Mean(shape=shape).node(), way.target)[0])
    assert launch.kernel == "mean_vector_quant8"
    assert (launch.tiles, launch.group_items) == (tiles, group_items)
    assert launch.params["tile_items"] == tile_items


def test_plain_launch() -> None:
    node = Mean(shape=(5, 3, 2, 13), scales=(0.5, 0.25), dtype="uint8").node()
    plain = ops.lower(node, SIMT.target)[-1]
    launch = only_launch(plain)
    assert (plain.name, launch.file, launch.kernel) == ("plain", "mean", "mean_quant8")
    assert (launch.tiles, launch.group_items) == (2, 64)  # 5 x 13 elements
    assert launch.defines == {"ELEM": "uchar"}
    assert launch.params == {
        "input": node.inputs[0], "output": node.outputs[0], "pixels": 6, "depth": 13,
        "input_zero": 131, "output_zero": 120, "output_min": 0, "output_max": 255,
        # 2 is 2^30 * 2^(2 - 31); over 6 pixels, with 2 bits more
        "multiplier": (2**30 << 2) // 6, "shift": 0, "elements": 65, "tile_items": 64,
    }  # fmt: skip
    assert launch.reads == node.inputs[:1]


NODE = Mean().node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "over_channels": (
        Mean(axes=(1, 2, 3)).node(),
        "axes [1, 2, 3]: only height and width, 1 and 2",
    ),
    "over_height": (Mean(axes=(1,)).node(), "axes [1]: only height and width, 1 and 2"),
    "no_axis": (Mean(axes=()).node(), "axes []: only height and width, 1 and 2"),
    "axis_outside": (Mean(axes=(1, 6)).node(), "axes [1, 6]: only height and width, 1 and 2"),
    "computed_axes": (changed(NODE, 1, data=None), "axes are not constant"),
    "int64_axes": (changed(NODE, 1, dtype="int64"), "int64 axes: only int32"),
    "rank_3": (changed(NODE, 0, shape=(7, 5, 3)), "input 7x5x3: only rank 4 (NHWC)"),
    "empty": (changed(NODE, 0, shape=(1, 0, 5, 3)), "input 1x0x5x3: it is empty"),
    "output_size": (changed(NODE, -1, shape=(1, 4)), "output 1x4: 1x3 is computed"),
    "signedness_changes": (
        changed(NODE, -1, dtype="uint8"),
        "int8 in, uint8 out: they must be equal",
    ),
    "float32": (
        changed(changed(NODE, 0, dtype="float32"), -1, dtype="float32"),
        "float32: only uint8 and int8 are implemented",
    ),
    "without_quantisation": (
        changed(NODE, -1, quantization=None),
        "int8 without quantisation: scale and zero point are missing",
    ),
    "scale_ratio": (
        changed(NODE, -1, quantization=quantization(1e-30)),
        "a scale ratio of 2^97: more than 2^30",
    ),
    "no_axes_input": (replace(NODE, inputs=NODE.inputs[:1]), "1 inputs: 2 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}


@pytest.mark.parametrize(("node", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_refusal(node: Node, reason: str) -> None:
    assert refusal(node) == reason


BASIC = [
    *(
        Mean(shape=shape)
        for shape in [
            (1, 7, 5, 3),
            (1, 7, 7, 64),
            (1, 3, 2, 63),
            (2, 4, 4, 65),
            (3, 1, 1, 1),
            (1, 1, 1, 17),
            (1, 13, 19, 5),
            (1, 64, 65, 2),
            (1, 64, 65, 16),
            (2, 3, 5, 4),
            (1, 2, 3, 7),
            (3, 2, 3, 8),
            (1, 2, 3, 15),
            (2, 2, 3, 33),
        ]
    ),
    *(Mean(axes=axes) for axes in [(2, 1), (-3, -2), (1, -2), (1, 2, 1)]),
    Mean(keeps_dims=True),
    Mean(keeps_dims=True, shape=(2, 3, 5, 7)),
    # Equal on both sides: TFLite may take another way.
    Mean(scales=(0.1, 0.1), zeros=(5, 5)),
    Mean(scales=(0.1, 0.1), zeros=(5, 5), keeps_dims=True),
    Mean(scales=(1.0, 0.125)),
    Mean(scales=(1e-6, 1.0)),
    Mean(scales=(1e-12, 1.0)),
    Mean(scales=(1.0, 0.001)),
]
CASES = [
    *(replace(case, dtype=dtype) for case in BASIC for dtype in ("int8", "uint8")),
    *(Mean(zeros=(a, b)) for a in (-128, 127) for b in (-128, 127)),
    *(Mean(zeros=(a, b), dtype="uint8") for a in (0, 255) for b in (0, 255)),
]
CASES = [
    replace(case, zeros=(105, 105)) if case.dtype == "uint8" and case.zeros == (5, 5) else case
    for case in CASES
]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_mean(case: Mean, way: Way, device: DeviceInfo) -> None:
    (name,) = assert_exact_way(case.model(), device, way)
    is_vector = way is not PLAIN and case.shape[3] >= 4
    assert name.split()[0] == ("vector" if is_vector else "plain")


@st.composite
def means(draw: st.DrawFn) -> Mean:
    dtype = draw(DTYPES)
    sizes = st.integers(1, 13)
    parameters = st.tuples(scales(), zero_points(dtype))
    one = draw(parameters)
    other = draw(st.just(one) | parameters)
    return Mean(
        shape=(draw(st.integers(1, 3)), draw(sizes), draw(sizes), draw(st.integers(1, 70))),
        keeps_dims=draw(st.booleans()),
        scales=(one[0], other[0]),
        zeros=(one[1], other[1]),
        dtype=dtype,
    )


@given(case=means(), way=DRAWN_WAYS, seed=SEEDS)
def test_drawn_mean(device: DeviceInfo, case: Mean, way: Way, seed: int) -> None:
    assert_exact_or_refused(case.model(), device, way, seed)

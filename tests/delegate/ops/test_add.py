# SPDX-License-Identifier: Apache-2.0
"""ADD: its launch, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, Node, ops
from tests.support.cases import (
    DTYPES,
    FUSED,
    GROUPS,
    LANES_8,
    SEEDS,
    SIMT,
    Way,
    assert_exact_or_refused,
    assert_exact_way,
    changed,
    integers,
    only_launch,
    quantization,
    refusal,
    scales,
    zero_points,
)
from tests.support.model import chain_model, const, op, t


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


@pytest.mark.parametrize(
    ("way", "tiles", "group_items", "tile_items"),
    [(SIMT, 33, 64, 64), (LANES_8, 3, 1, 1024)],
    ids=str,
)
def test_launch(way: Way, tiles: int, group_items: int, tile_items: int) -> None:
    node = Sum(shape=(3, 683), scales=(0.5, 0.25, 0.5), dtype="int8", fused="RELU").node()
    (plain,) = ops.lower(node, way.target)
    launch = only_launch(plain)
    assert (plain.name, launch.file, launch.kernel) == ("plain", "add", "add_quant8")
    assert (launch.tiles, launch.group_items) == (tiles, group_items)  # of 2049 elements
    assert launch.defines == {"ELEM": "char"}
    assert launch.params == {
        "left": node.inputs[0], "right": node.inputs[1], "output": node.outputs[0],
        "left_zero": 3, "right_zero": -8, "output_zero": -3,
        # The scales over twice the widest: 0.5 and 0.25; 1 / 0.5 over 2^20.
        "left_multiplier": 2**30, "right_multiplier": 2**30, "output_multiplier": 2**30,
        "left_shift": 0, "right_shift": -1, "output_shift": -18,
        "output_min": -3, "output_max": 127, "elements": 2049, "tile_items": tile_items,
    }  # fmt: skip
    assert (launch.reads, launch.writes) == (node.inputs, node.outputs)


NODE = Sum().node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "broadcast": (
        changed(NODE, 1, shape=(3,)),
        "broadcast 1x7x5x3 + 3: only equal shapes are implemented",
    ),
    "output_shape": (
        changed(NODE, -1, shape=()),
        "broadcast 1x7x5x3 + 1x7x5x3: only equal shapes are implemented",
    ),
    "types_differ": (
        changed(NODE, 1, dtype="int8"),
        "uint8 + int8 -> uint8: they must be equal",
    ),
    "int16": (
        changed(changed(changed(NODE, 0, dtype="int16"), 1, dtype="int16"), -1, dtype="int16"),
        "int16: only uint8 and int8 are implemented",
    ),
    "without_quantisation": (
        changed(NODE, 1, quantization=None),
        "uint8 without quantisation: scale and zero point are missing",
    ),
    "output_scale": (
        changed(NODE, -1, quantization=quantization(2.0**-23)),
        f"output scale {2.0**-23}: too small beside 0.10000000149011612",
    ),
    "empty": (
        changed(changed(changed(NODE, 0, shape=(0,)), 1, shape=(0,)), -1, shape=(0,)),
        "shape 0: it is empty",
    ),
    "fused_tanh": (
        changed(NODE, options={"fused_activation_function": "TANH"}),
        "fused activation TANH: only NONE, RELU, RELU6, RELU_N1_TO_1",
    ),
    "sparse_constant": (
        changed(NODE, 1, is_sparse=True),
        "input 1 is sparse: only dense tensors are implemented",
    ),
    "one_input": (replace(NODE, inputs=NODE.inputs[:1]), "1 inputs: 2 expected"),
    "left_out_input": (
        replace(NODE, inputs=(NODE.inputs[0], None)),
        "2 inputs: 2 expected",
    ),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}


@pytest.mark.parametrize(("node", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_refusal(node: Node, reason: str) -> None:
    assert refusal(node) == reason


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


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_add(case: Sum, way: Way, device: DeviceInfo) -> None:
    assert_exact_way(case.model(), device, way)


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


@given(case=sums(), way=st.sampled_from(GROUPS), seed=SEEDS)
def test_drawn_add(device: DeviceInfo, case: Sum, way: Way, seed: int) -> None:
    assert_exact_or_refused(case.model(), device, way, seed)

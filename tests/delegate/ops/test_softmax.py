# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX: its launch, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, Node, OpenCLDelegate, ops
from delegate.launch import Constant, Target
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
    integers,
    only_launch,
    quantization,
    refusal,
    scales,
    zero_points,
)
from tests.support.compare import assert_same, interpreter, invoke, refusals
from tests.support.model import chain_model, op, t


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """One SOFTMAX by its parameters; TFLite's output scale is always 1/256."""

    shape: tuple[int, ...] = (3, 11)
    dtype: str = "uint8"
    scale: float = 0.1
    zero: int = 3
    beta: float = 1.0

    def __str__(self) -> str:
        parts = {
            "in" + "x".join(map(str, self.shape)): True,
            f"scale{self.scale:g}": self.scale != 0.1,
            f"beta{self.beta:g}": self.beta != 1,
            self.dtype: True,
        }
        return "-".join(part for part, is_said in parts.items() if is_said)

    def node(self) -> Node:
        return op(
            "SOFTMAX",
            [t(self.shape, self.dtype, self.scale, self.zero)],
            [t(self.shape, self.dtype, 1 / 256, 0 if self.dtype == "uint8" else -128)],
            {"beta": self.beta},
            version=2,
        )

    def model(self) -> bytes:
        return chain_model([self.node()])


@pytest.mark.parametrize(
    ("way", "tiles", "group_items"), [(SIMT, 2, 64), (LANES_8, 65, 1)], ids=str
)
def test_launch(way: Way, tiles: int, group_items: int) -> None:
    node = Softmax(shape=(5, 13, 3), dtype="int8").node()
    (plain,) = ops.lower(node, way.target)
    launch = only_launch(plain)
    assert (plain.name, launch.file, launch.kernel) == ("plain", "softmax", "softmax_quant8")
    assert (launch.tiles, launch.group_items) == (tiles, group_items)  # of 65 rows
    assert launch.defines == {"ELEM": "char"}
    assert {n: v for n, v in launch.params.items() if isinstance(v, int)} == {
        "output_min": -128, "output_max": 127, "rows": 65, "depth": 3, "tile_items": group_items,
    }  # fmt: skip


def test_exponentials_end_where_the_reference_s_range_does() -> None:
    # Distances are scaled to 5 integer bits: at a scale of 1, those of 32 and more count nothing.
    table = only_launch(ops.lower(Softmax(scale=1.0).node(), Target())[0]).params["table"]
    assert isinstance(table, Constant)
    entries = table.pack()
    assert entries.nbytes == table.size_bytes
    exponentials, sums = entries[:256], entries[256:]
    real = np.exp(-np.arange(256.0)) * 2**31
    assert exponentials[0] == 2**31 - 1
    assert np.abs(exponentials - real).max() < 2**31 * 1e-6
    assert exponentials[31] == 0  # too small for 31 bits
    assert not exponentials[32:].any()
    assert (np.abs(sums - exponentials / 2**12) <= 0.5).all()


NODE = Softmax().node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "shape_changes": (changed(NODE, -1, shape=(33,)), "3x11 -> 33: the shape must stay"),
    "scalar": (
        changed(changed(NODE, 0, shape=()), -1, shape=()),
        "shape scalar: at least rank 1 is needed",
    ),
    "empty": (changed(changed(NODE, 0, shape=(0, 3)), -1, shape=(0, 3)), "shape 0x3: it is empty"),
    "to_int16": (changed(NODE, -1, dtype="int16"), "uint8 in, int16 out: they must be equal"),
    "float32": (
        changed(changed(NODE, 0, dtype="float32"), -1, dtype="float32"),
        "float32: only uint8 and int8 are implemented",
    ),
    "without_quantisation": (
        changed(NODE, 0, quantization=None),
        "uint8 without quantisation: scale and zero point are missing",
    ),
    "absent_options_table": (
        changed(NODE, options={"beta": 0.0}),
        f"beta 0.0 with scale {float(np.float32(0.1))}: out of range",
    ),
    "beta_nan": (
        changed(NODE, options={"beta": math.nan}),
        f"beta nan with scale {float(np.float32(0.1))}: out of range",
    ),
    "text_as_beta": (changed(NODE, options={"beta": "1"}), "beta is '1': a number is needed"),
    "output_scale": (
        changed(NODE, -1, quantization=quantization(1e-30)),
        f"output scale {float(np.float32(1e-30))}, zero point 0: TFLite's is 1/256, 0",
    ),
    "no_input": (replace(NODE, inputs=()), "0 inputs: 1 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}


@pytest.mark.parametrize(("node", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_refusal(node: Node, reason: str) -> None:
    assert refusal(node) == reason


CASES = [
    *(
        Softmax(shape=shape, dtype=dtype)
        for shape in [(1, 1), (1, 2), (1, 509), (63, 3), (64, 3), (65, 3), (2, 3, 5, 7), (17,)]
        for dtype in ("uint8", "int8")
    ),
    *(
        Softmax(scale=scale, beta=beta, dtype=dtype)
        for scale, beta in [
            (1e-4, 1.0),
            (0.1, 0.5),
            (1.0, 1.0),
            (8.0, 3.0),
            (0.05, 0.1),
            (0.0625, 1),
        ]
        for dtype in ("uint8", "int8")
    ),
]


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_softmax(case: Softmax, way: Way, device: DeviceInfo) -> None:
    assert_exact_way(case.model(), device, way)


def test_1001_classes(device: DeviceInfo) -> None:
    # NOTE: TFLite's kernel aborts the process where a row's exponentials add up to 512, so values
    # are drawn by hand: the other tests' rows of equal values are too many here.
    model = Softmax(shape=(2, 1001)).model()
    delegate = OpenCLDelegate(model, device=device.index)
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    for seed in range(3):
        values = integers((2, 1001), "uint8", seed)
        assert_same(invoke(ours, [values])[0], invoke(reference, [values])[0], f"seed {seed}")


@pytest.mark.parametrize(("scale", "depth"), [(0.05, 10), (0.2, 5), (0.06, 256)])
def test_a_million_values(device: DeviceInfo, scale: float, depth: int) -> None:
    # TFLite's optimised kernel, a table of floats, differs in some ten of these.
    rows = 1_000_000 // depth
    model = Softmax(shape=(rows, depth), scale=scale).model()
    delegate = OpenCLDelegate(model, device=device.index)
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    values = np.random.default_rng(depth).integers(150, 256, (rows, depth), np.uint8)
    assert_same(invoke(ours, [values])[0], invoke(reference, [values])[0], "a million")


@st.composite
def softmaxes(draw: st.DrawFn) -> Softmax:
    dtype = draw(DTYPES)
    shape = draw(st.lists(st.integers(1, 7), max_size=3))
    return Softmax(
        shape=(*shape, draw(st.integers(1, 300))),
        dtype=dtype,
        scale=draw(scales(-12, 3)),
        zero=draw(zero_points(dtype)),
        beta=float(np.float32(draw(st.sampled_from([1.0, 0.5, 1.7]) | st.floats(0.0625, 4)))),
    )


@given(case=softmaxes(), way=st.sampled_from(GROUPS), seed=SEEDS)
def test_drawn_softmax(device: DeviceInfo, case: Softmax, way: Way, seed: int) -> None:
    assert_exact_or_refused(case.model(), device, way, seed)

# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX: its launch, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Node
from delegate.launch import Constant
from delegate.target import Target
from tests.support.cases import (
    DRAWN_WAYS,
    GROUPS,
    LANES_4,
    LANES_8,
    LANES_16,
    SIMT,
    WAYS,
    Way,
    assert_exact_way,
    changed,
    forced,
    integers,
    only_launch,
    quantization,
    retyped,
    scales,
    zero_points,
)
from tests.support.compare import (
    Arrays,
    Bounds,
    assert_close,
    assert_same,
    interpreter,
    invoke,
    refusals,
)
from tests.support.factories import drawn, exact, refused
from tests.support.floats import assert_float_or_refused, assert_float_ways
from tests.support.model import chain_model, op, t
from tests.support.nodes import CHANNELS, SIZES
from tests.support.refusals import unquantised


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """One SOFTMAX by its parameters; TFLite's output scale is always the one its type can take."""

    shape: tuple[int, ...] = (3, 11)
    dtype: str = "uint8"
    scale: float = 0.1
    zero: int = 3
    beta: float = 1.0
    widens: bool = False  # from 8 bits to 16

    def __str__(self) -> str:
        parts = {
            "in" + "x".join(map(str, self.shape)): True,
            f"scale{self.scale:g}": self.scale != 0.1,
            f"beta{self.beta:g}": self.beta != 1,
            self.dtype: True,
            "to_int16": self.widens,
        }
        return "-".join(part for part, is_said in parts.items() if is_said)

    def node(self) -> Node:
        is_float = self.dtype == "float32"
        after = "int16" if self.widens else self.dtype
        scale, lowest = {
            "uint8": (2.0**-8, 0),
            "int8": (2.0**-8, -128),
            "int16": (2.0**-16, -(2**15)) if self.widens else (2.0**-15, 0),
        }.get(after, (None, 0))
        zero = 0 if self.dtype == "int16" else self.zero
        return op(
            "SOFTMAX",
            [t(self.shape, self.dtype, None if is_float else self.scale, zero)],
            [t(self.shape, after, scale, lowest)],
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
    assert launch.defines == {"ELEM": "char", "OUT": "char"}
    assert {n: v for n, v in launch.params.items() if isinstance(v, int)} == {
        "output_min": -128, "output_max": 127, "output_bits": 8,
        "rows": 65, "depth": 3, "tile_items": group_items,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("way", "dtype", "name", "defines"),
    [
        (
            SIMT,
            "uint8",
            "row 4",
            {"ELEM": "uchar", "OUT": "uchar", "LANES": 4, "ALONE": 0, "SCRATCH_INTS": 320},
        ),
        (SIMT, "float32", "row 4", {"LANES": 4, "ALONE": 0, "SCRATCH_INTS": 64}),
        (LANES_16, "int8", "row 8", {"ELEM": "char", "OUT": "char", "LANES": 8, "ALONE": 1}),
        (LANES_16, "float32", "row 16", {"LANES": 16, "ALONE": 1}),
    ],
    ids=str,
)
def test_row_launch(way: Way, dtype: str, name: str, defines: dict[str, int | str]) -> None:
    row, plain = ops.lower(Softmax(shape=(5, 32), dtype=dtype).node(), way.target)
    launch = only_launch(row)
    assert (row.name, plain.name) == (name, "plain")
    assert launch.kernel == f"softmax_row_{'float' if dtype == 'float32' else 'quant8'}"
    assert (launch.tiles, launch.group_items) == (5, way.target.group_items)
    assert launch.defines == defines


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_short_row_is_one_work_item_s(dtype: str) -> None:
    (plain,) = ops.lower(Softmax(shape=(5, 31), dtype=dtype).node(), SIMT.target)
    assert plain.name == "plain"


def test_exponentials_end_where_the_reference_s_range_does() -> None:
    # Distances are scaled to 5 integer bits: at a scale of 1, those of 32 and more count nothing.
    table = only_launch(ops.lower(Softmax(scale=1.0).node(), Target())[0]).params["table"]
    assert isinstance(table, Constant)
    entries = table.pack().ravel()
    assert entries.nbytes == table.size_bytes
    exponentials, sums = entries[:256], entries[256:]
    real = np.exp(-np.arange(256.0)) * 2**31
    assert exponentials[0] == 2**31 - 1
    assert np.abs(exponentials - real).max() < 2**31 * 1e-6
    assert exponentials[31] == 0  # too small for 31 bits
    assert not exponentials[32:].any()
    assert (np.abs(sums - exponentials / 2**12) <= 0.5).all()


def test_int16_launch() -> None:
    (plain,) = ops.lower(Softmax(shape=(65, 40), dtype="int16").node(), SIMT.target)
    launch = only_launch(plain)
    assert (launch.kernel, launch.tiles, dict(launch.defines)) == ("softmax_quant16", 2, {})
    for name, size in (("table", 65536), ("reciprocals", 513)):
        constant = launch.params[name]
        assert isinstance(constant, Constant)
        entries = constant.pack()
        assert (entries.dtype, entries.size, entries.nbytes) == (
            np.int16,
            size,
            constant.size_bytes,
        )
        assert (np.diff(entries.astype(int)) <= 0).all()


NODE = Softmax().node()
FLOAT_NODE = Softmax(dtype="float32").node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "shape_changes": (changed(NODE, -1, shape=(33,)), "3x11 -> 33: the shape must stay"),
    "scalar": (
        changed(changed(NODE, 0, shape=()), -1, shape=()),
        "shape scalar: at least rank 1 is needed",
    ),
    "empty": (changed(changed(NODE, 0, shape=(0, 3)), -1, shape=(0, 3)), "shape 0x3: it is empty"),
    "to_int8": (changed(NODE, -1, dtype="int8"), "uint8 in, int8 out: they must be equal"),
    "to_int16": (
        changed(NODE, -1, dtype="int16"),
        f"output scale {1 / 256}, zero point 0: TFLite's is {2.0**-16}, -32768",
    ),
    "int16_to_int8": (
        changed(Softmax(dtype="int16").node(), -1, dtype="int8"),
        "int16 in, int8 out: they must be equal",
    ),
    "int16_output_scale": (
        changed(Softmax(dtype="int16").node(), -1, quantization=quantization(0.5)),
        f"output scale 0.5, zero point 0: TFLite's is {2.0**-15}, 0",
    ),
    "int16_rows": (
        Softmax(shape=(2, 16385), dtype="int16").node(),
        "rows of 16385: at most 16384",
    ),
    "int16_scale": (
        Softmax(scale=16.0, dtype="int16").node(),
        "beta 1.0 with scale 16.0: out of range",
    ),
    "int32": (
        retyped(NODE, "int32"),
        "int32: only uint8, int8, int16 and float32 are implemented",
    ),
    "bfloat16": (
        retyped(NODE, "bfloat16"),
        "bfloat16: only uint8, int8, int16 and float32 are implemented",
    ),
    "output_per_channel": (
        changed(NODE, -1, quantization=quantization([0.5, 0.25])),
        f"output scale 0.5, 0.25, zero point 0, 0: TFLite's is {1 / 256}, 0",
    ),
    "output_without_quantisation": unquantised(NODE, -1),
    "from_float32": (
        changed(NODE, 0, dtype="float32"),
        "float32 in, uint8 out: they must be equal",
    ),
    "float_beta_negative": (
        changed(FLOAT_NODE, options={"beta": -1.0}),
        "beta -1.0: it must be finite and not negative",
    ),
    "float_beta_nan": (
        changed(FLOAT_NODE, options={"beta": math.nan}),
        "beta nan: it must be finite and not negative",
    ),
    "without_quantisation": unquantised(NODE, 0),
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
        f"output scale {float(np.float32(1e-30))}, zero point 0: TFLite's is {1 / 256}, 0",
    ),
    "no_input": (replace(NODE, inputs=()), "0 inputs: 1 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)

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
    *(
        Softmax(shape=shape, scale=scale, beta=beta, dtype="int16")
        for shape in [(3, 12), (65, 3), (2, 3, 5, 7), (1, 1), (2, 600)]
        for scale, beta in [(0.0018, 1.0), (1e-4, 0.5), (1e-5, 1.0), (0.3, 2.0)]
    ),
    *(
        Softmax(shape=shape, dtype=dtype, widens=True)
        for shape in [(3, 12), (65, 3), (2, 300), (1, 1)]
        for dtype in ("uint8", "int8")
    ),
]

test_softmax = exact(CASES, GROUPS)

ROWS = [
    *(
        Softmax(shape=shape, dtype=dtype)
        for shape in [(1, 32), (3, 33), (2, 47), (1, 255), (2, 256), (1, 257), (3, 509)]
        for dtype in ("uint8", "int8")
    ),
    *(Softmax(shape=(3, 100), scale=scale, beta=0.5) for scale in (1e-4, 0.01, 1.0, 8.0)),
    Softmax(shape=(3, 100), widens=True),
]


@pytest.mark.parametrize("alternative", ["row", "plain"])
@pytest.mark.parametrize("way", [SIMT, LANES_4, LANES_8], ids=str)
@pytest.mark.parametrize("case", ROWS, ids=str)
def test_row(case: Softmax, way: Way, alternative: str, device: DeviceInfo) -> None:
    forced_way = replace(way, alternative=alternative)
    (name,) = assert_exact_way(case.model(), device, forced_way)
    assert name.split()[0] == alternative


SHORT = [
    *(
        Softmax(shape=(37, depth), dtype=dtype, widens=widens)
        for depth in (4, 8, 16)
        for dtype, widens in (("uint8", False), ("int8", False), ("int8", True))
    ),
    *(Softmax(shape=(37, 8), scale=scale, beta=0.5) for scale in (1e-4, 0.01, 1.0, 8.0)),
]


@pytest.mark.parametrize("alternative", ["vector", "plain"])
@pytest.mark.parametrize("case", SHORT, ids=str)
def test_rows_of_a_vector(case: Softmax, alternative: str, device: DeviceInfo) -> None:
    (name,) = assert_exact_way(case.model(), device, replace(LANES_16, alternative=alternative))
    assert name.split()[0] == alternative


def test_many_short_rows_are_a_tile() -> None:
    node = Softmax(shape=(9000, 16), dtype="int8").node()
    vector, plain = ops.lower(node, LANES_16.target)
    assert (vector.name, plain.name) == ("vector 16", "plain")
    assert only_launch(vector).tiles == 8
    # of a narrower device no vector is a row
    assert [each.name for each in ops.lower(node, LANES_8.target)] == ["plain"]


@pytest.mark.parametrize("alternative", ["row", "plain"])
@pytest.mark.parametrize("way", [SIMT, LANES_8], ids=str)
def test_1001_classes(way: Way, alternative: str, device: DeviceInfo) -> None:
    # NOTE: TFLite's kernel aborts the process where a row's exponentials add up to 512, so values
    # are drawn by hand: the other tests' rows of equal values are too many here.
    model = Softmax(shape=(2, 1001)).model()
    with forced(replace(way, alternative=alternative)):
        delegate = OpenCLDelegate(model, device.index, tune="off")
        ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    for seed in range(3):
        values = integers((2, 1001), "uint8", seed)
        assert_same(invoke(ours, [values])[0], invoke(reference, [values])[0], f"seed {seed}")


@pytest.mark.parametrize("alternative", ["row", "plain"])
@pytest.mark.parametrize("way", [SIMT, LANES_8], ids=str)
def test_where_the_reference_aborts_shares_are_nothing(
    way: Way, alternative: str, device: DeviceInfo
) -> None:
    model = Softmax(shape=(1, 600)).model()
    with forced(replace(way, alternative=alternative)):
        ours = interpreter(model, OpenCLDelegate(model, device.index, tune="off"))
    assert not invoke(ours, [np.full((1, 600), 7, np.uint8)])[0].any()


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
    dtype = draw(st.sampled_from(["uint8", "int8", "int16"]))
    shape = draw(st.lists(st.integers(1, 7), max_size=3))
    return Softmax(
        shape=(*shape, draw(st.integers(1, 300))),
        dtype=dtype,
        scale=draw(scales(-18, -3) if dtype == "int16" else scales(-12, 3)),
        zero=0 if dtype == "int16" else draw(zero_points(dtype)),
        widens=dtype != "int16" and draw(st.booleans()),
        beta=float(np.float32(draw(st.sampled_from([1.0, 0.5, 1.7]) | st.floats(0.0625, 4)))),
    )


test_drawn_softmax = drawn(softmaxes(), WAYS)


# Floats.


def float_bounds(case: Softmax) -> Callable[[Arrays], Bounds]:
    """Return what ours and TFLite's may differ by.

    In halves of a place, of c values: exp() 4 of ours and 2 of theirs, in the numerator and in the
    sum; c - 1 for the additions of each; 5 and 1 for the divisions. Exponentials below the least
    normal float may be 0.
    """
    depth = case.shape[-1]

    def bounds(inputs: Arrays) -> Bounds:
        shares = _float_softmax(case, inputs[0])
        return [shares * (2 * depth + 16) * 2.0**-24 + 2e-38]

    return bounds


def _float_softmax(case: Softmax, values: NDArray[Any]) -> NDArray[np.float64]:
    distances = (values - values.max(-1, keepdims=True)) * np.float32(case.beta)
    exponentials = np.exp(distances.astype(np.float64))
    shares: NDArray[np.float64] = exponentials / exponentials.sum(-1, keepdims=True)
    return shares


FLOAT_SHAPES = [
    *((1, depth) for depth in (1, 2, 31, 32)),
    *((2, depth) for depth in (63, 1001)),
    *((17,), (3, 33), (5, 64), (65, 3), (2, 3, 5, 7)),
]
FLOATS = [
    *(Softmax(shape=shape, dtype="float32") for shape in FLOAT_SHAPES),
    *(Softmax(shape=(3, 40), beta=beta, dtype="float32") for beta in (0.0, 0.1, 3.0, 30.0)),
]


@pytest.mark.parametrize("way", [SIMT, LANES_4, LANES_8, LANES_16], ids=str)
@pytest.mark.parametrize("case", FLOATS, ids=str)
def test_softmax_float(case: Softmax, way: Way, device: DeviceInfo) -> None:
    names = assert_float_ways(case.node(), device, way, float_bounds(case))
    assert {name.split()[0] for name in names} == (
        {"row", "plain"} if case.shape[-1] >= 32 else {"plain"}
    )


@pytest.mark.parametrize("alternative", ["row", "plain"])
@pytest.mark.parametrize("way", [SIMT, LANES_4, LANES_8, LANES_16], ids=str)
def test_exponential(way: Way, alternative: str, device: DeviceInfo) -> None:
    # Beside a 0, values this low leave the sum at 1, so that a share is an exponential.
    values = np.zeros((4096, 33), np.float32)
    values[:, 1:] = np.linspace(-87, -25, 4096 * 32, dtype=np.float32).reshape(4096, 32)
    case = Softmax(shape=values.shape, dtype="float32")
    model = case.model()
    with forced(replace(way, alternative=alternative)):
        ours = interpreter(model, OpenCLDelegate(model, device.index, tune="off"))
    got = invoke(ours, [values])[0][:, 1:]
    exact = np.exp(values[:, 1:].astype(np.float64))
    assert (np.abs(got / exact - 1) < 2.0**-22 + 2.0**-24).all()


@pytest.mark.parametrize("alternative", ["row", "plain"])
@pytest.mark.parametrize("way", [SIMT, LANES_8], ids=str)
def test_nan_and_infinity(way: Way, alternative: str, device: DeviceInfo) -> None:
    values = np.ones((5, 40), np.float32)
    values[0, 7], values[1, 39] = np.nan, -np.inf
    values[2, 5], values[3, :] = np.inf, -np.inf
    values[4, :20] = -1e30
    model = Softmax(shape=values.shape, dtype="float32").model()
    with forced(replace(way, alternative=alternative)):
        delegate = OpenCLDelegate(model, device.index, tune="off")
        ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    got, expected = invoke(ours, [values])[0], invoke(reference, [values])[0]
    assert np.isnan(expected).all(1).tolist() == [True, False, True, True, False]
    assert_close(got, expected, 1e-6, alternative)


@given(case=softmaxes(), way=DRAWN_WAYS)
def test_drawn_softmax_float(device: DeviceInfo, case: Softmax, way: Way) -> None:
    case = replace(case, dtype="float32", widens=False)
    assert_float_or_refused(case.node(), device, way, float_bounds(case))


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [Softmax(shape=(size, channels), dtype=dtype, scale=0.5).node()]


NODES = {"SOFTMAX_float": FLOAT_NODE}
BUILT = [
    *(case.node() for case in SHORT),
    Softmax(shape=(5, 40), dtype="int16").node(),
    *(Softmax(shape=(5, 40), dtype=dtype, widens=True).node() for dtype in ("uint8", "int8")),
    *(
        Softmax(shape=(1, size, size, channels), dtype="float32").node()
        for size in SIZES
        for channels in CHANNELS
    ),
]

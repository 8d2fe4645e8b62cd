# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX: its launches, what it refuses, and its numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Graph, Node, write_model
from delegate.launch import Constant
from delegate.target import Target
from tests.support.cases import (
    LANES_4,
    LANES_8,
    LANES_16,
    SIMT,
    STRATEGIES,
    Strategy,
    changed,
    forced,
    integers,
    only_launch,
    quantization,
    retyped,
    scales,
    zero_points,
)
from tests.support.compare import assert_close, assert_same, interpreter, invoke, refusals
from tests.support.factories import drawn, refused
from tests.support.nodes import CHANNELS, SIZES
from tests.support.refusals import unquantised
from tests.support.suite_cases import assert_graph_or_refused, from_suite
from tflite_opencl.conformance.cases.softmaxes import of_rows

test_softmax = from_suite("SOFTMAX", strategies=(SIMT, LANES_16), first="in2x64")


def node(
    shape: tuple[int, ...] = (3, 11), dtype: str = "uint8", scale: float = 0.1, result: str = ""
) -> Node:
    return of_rows("SOFTMAX", dtype, shape, scale, 1.0, result=result).nodes[0]


@pytest.mark.parametrize(
    ("strategy", "tiles", "group_items"), [(SIMT, 2, 64), (LANES_8, 65, 1)], ids=str
)
def test_launch(strategy: Strategy, tiles: int, group_items: int) -> None:
    *_, plain = ops.lower(node((5, 13, 3), "int8"), strategy.target)
    launch = only_launch(plain)
    assert (plain.name, launch.file, launch.kernel) == ("plain", "softmax", "softmax_quant8")
    assert (launch.tiles, launch.group_items) == (tiles, group_items)  # of 65 rows


@pytest.mark.parametrize(
    ("strategy", "dtype", "name", "defines"),
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
def test_row_launch(
    strategy: Strategy, dtype: str, name: str, defines: dict[str, int | str]
) -> None:
    row, plain = ops.lower(node((5, 32), dtype), strategy.target)
    launch = only_launch(row)
    assert (row.name, plain.name) == (name, "plain")
    assert launch.kernel == f"softmax_row_{'float' if dtype == 'float32' else 'quant8'}"
    assert (launch.tiles, launch.group_items) == (5, strategy.target.group_items)
    assert launch.defines == defines


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_short_row_is_one_work_item_s(dtype: str) -> None:
    (plain,) = ops.lower(node((5, 31), dtype), SIMT.target)
    assert plain.name == "plain"


def test_exponentials_end_where_the_reference_s_range_does() -> None:
    # Distances are scaled to 5 integer bits: at a scale of 1, those of 32 and more count nothing.
    table = only_launch(ops.lower(node(scale=1.0), Target())[0]).params["table"]
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
    (plain,) = ops.lower(node((65, 40), "int16"), SIMT.target)
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


NODE = node()
FLOAT_NODE = node(dtype="float32")
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
        changed(node(dtype="int16"), -1, dtype="int8"),
        "int16 in, int8 out: they must be equal",
    ),
    "int16_output_scale": (
        changed(node(dtype="int16"), -1, quantization=quantization(0.5)),
        f"output scale 0.5, zero point 0: TFLite's is {2.0**-15}, 0",
    ),
    "int16_rows": (
        node((2, 16385), "int16"),
        "rows of 16385: at most 16384",
    ),
    "int16_scale": (
        node(dtype="int16", scale=16.0),
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


def test_short_rows_are_lanes() -> None:
    vector, plain = ops.lower(node((9000, 16), "int8"), LANES_16.target)
    assert (vector.name, plain.name) == ("vector 16", "plain")
    launch = only_launch(vector)
    assert launch.params["items"] == 563  # 9000 / 16
    assert launch.defines == {"ELEM": "char", "OUT": "char", "LANES": 16, "DEPTH": 16}
    for few in (node((3, 16), "int8"), node((9000, 16), "float32")):
        assert [each.name for each in ops.lower(few, LANES_16.target)] == ["plain"]


@pytest.mark.parametrize("result", ["", "int16"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("shape", [(16, 1), (35, 2), (4, 3), (9, 4), (17, 21), (300, 31)], ids=str)
@pytest.mark.parametrize("strategy", [LANES_4, LANES_8, LANES_16], ids=str)
def test_short_rows(
    strategy: Strategy, shape: tuple[int, int], dtype: str, result: str, device: DeviceInfo
) -> None:
    for scale in (0.001, 0.1, 2.0):
        model = write_model(of_rows("SOFTMAX", dtype, shape, scale, 1.0, result=result))
        with forced(strategy):
            delegate = OpenCLDelegate(model, device.index, tune="off", profiling=True)
            ours, reference = interpreter(model, delegate), interpreter(model)
        values = integers(shape, dtype, 5)
        values[-1] = values[-1, 0]  # equal shares
        assert_same(invoke(ours, [values])[0], invoke(reference, [values])[0], f"{scale}")
        (row,) = delegate.profile()
        assert row.alternative.startswith("vector")


@pytest.mark.parametrize("alternative", ["row", "plain"])
@pytest.mark.parametrize("strategy", [SIMT, LANES_8], ids=str)
def test_1001_classes(strategy: Strategy, alternative: str, device: DeviceInfo) -> None:
    # NOTE: TFLite's kernel aborts the process where a row's exponentials add up to 512, so values
    # are drawn by hand: the other tests' rows of equal values are too many here.
    model = write_model(of_rows("SOFTMAX", "uint8", (2, 1001), 0.1, 1.0))
    with forced(replace(strategy, alternative=alternative)):
        delegate = OpenCLDelegate(model, device.index, tune="off")
        ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    for seed in range(3):
        values = integers((2, 1001), "uint8", seed)
        assert_same(invoke(ours, [values])[0], invoke(reference, [values])[0], f"seed {seed}")


@pytest.mark.parametrize("alternative", ["row", "plain"])
@pytest.mark.parametrize("strategy", [SIMT, LANES_8], ids=str)
def test_where_the_reference_aborts_shares_are_nothing(
    strategy: Strategy, alternative: str, device: DeviceInfo
) -> None:
    model = write_model(of_rows("SOFTMAX", "uint8", (1, 600), 0.1, 1.0))
    with forced(replace(strategy, alternative=alternative)):
        ours = interpreter(model, OpenCLDelegate(model, device.index, tune="off"))
    assert not invoke(ours, [np.full((1, 600), 7, np.uint8)])[0].any()


@pytest.mark.parametrize(("scale", "depth"), [(0.05, 10), (0.2, 5), (0.06, 256)])
def test_a_million_values(device: DeviceInfo, scale: float, depth: int) -> None:
    # TFLite's optimised kernel, a table of floats, differs in some ten of these.
    rows = 1_000_000 // depth
    model = write_model(of_rows("SOFTMAX", "uint8", (rows, depth), scale, 1.0))
    delegate = OpenCLDelegate(model, device=device.index)
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    values = np.random.default_rng(depth).integers(150, 256, (rows, depth), np.uint8)
    assert_same(invoke(ours, [values])[0], invoke(reference, [values])[0], "a million")


@pytest.mark.parametrize("alternative", ["row", "plain"])
@pytest.mark.parametrize("strategy", [SIMT, LANES_4, LANES_8, LANES_16], ids=str)
def test_exponential(strategy: Strategy, alternative: str, device: DeviceInfo) -> None:
    # Beside a 0, values this low leave the sum at 1, so that a share is an exponential.
    values = np.zeros((4096, 33), np.float32)
    values[:, 1:] = np.linspace(-87, -25, 4096 * 32, dtype=np.float32).reshape(4096, 32)
    model = write_model(of_rows("SOFTMAX", "float32", values.shape, beta=1.0))
    with forced(replace(strategy, alternative=alternative)):
        ours = interpreter(model, OpenCLDelegate(model, device.index, tune="off"))
    got = invoke(ours, [values])[0][:, 1:]
    exact = np.exp(values[:, 1:].astype(np.float64))
    assert (np.abs(got / exact - 1) < 2.0**-22 + 2.0**-24).all()


@pytest.mark.parametrize("alternative", ["row", "plain"])
@pytest.mark.parametrize("strategy", [SIMT, LANES_8], ids=str)
def test_nan_and_infinity(strategy: Strategy, alternative: str, device: DeviceInfo) -> None:
    values = np.ones((5, 40), np.float32)
    values[0, 7], values[1, 39] = np.nan, -np.inf
    values[2, 5], values[3, :] = np.inf, -np.inf
    values[4, :20] = -1e30
    model = write_model(of_rows("SOFTMAX", "float32", values.shape, beta=1.0))
    with forced(replace(strategy, alternative=alternative)):
        delegate = OpenCLDelegate(model, device.index, tune="off")
        ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    got, expected = invoke(ours, [values])[0], invoke(reference, [values])[0]
    assert np.isnan(expected).all(1).tolist() == [True, False, True, True, False]
    assert_close(got, expected, 1e-6, alternative)


@st.composite
def softmaxes(draw: st.DrawFn) -> Graph:
    dtype = draw(st.sampled_from(["uint8", "int8", "int16", "float32"]))
    is_small = dtype in ("uint8", "int8")
    shape = draw(st.lists(st.integers(1, 7), max_size=3))
    return of_rows(
        "SOFTMAX",
        dtype,
        (*shape, draw(st.integers(1, 300))),
        draw(scales(-18, -3) if dtype == "int16" else scales(-12, 3)),
        float(np.float32(draw(st.sampled_from([1.0, 0.5, 1.7]) | st.floats(0.0625, 4)))),
        draw(zero_points(dtype)) if is_small else 0,
        "int16" if is_small and draw(st.booleans()) else "",
    )


test_drawn = drawn(softmaxes(), STRATEGIES, assert_graph_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [node((size, channels), dtype, 0.5)]


NODES = {"SOFTMAX_float": FLOAT_NODE}
BUILT = [
    *(node((37, depth), "int8", result=result) for depth in (4, 8, 16) for result in ("", "int16")),
    *(node((37, depth)) for depth in (4, 8, 16)),
    node((5, 40), "int16"),
    *(node((5, 40), dtype, result="int16") for dtype in ("uint8", "int8")),
    *(node((1, size, size, channels), "float32") for size in SIZES for channels in CHANNELS),
]

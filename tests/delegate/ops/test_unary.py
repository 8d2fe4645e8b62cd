# SPDX-License-Identifier: Apache-2.0
"""ABS, SQRT, EXP and the like: launches, refusals, every integer, and floats of all sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Node, write_model
from delegate.ops.unary import table_of
from delegate.target import Rules
from tests.support.activations import (
    assert_drawn,
    assert_float_function,
    common_refusals,
    every_value,
    floats_of_all_sizes,
    functions,
)
from tests.support.cases import (
    DRAWN_STRATEGIES,
    GROUPS,
    LANES_8,
    SEEDS,
    SIMT,
    STRATEGIES,
    Strategy,
    assert_exact_strategy,
    changed,
    only_launch,
    quantization,
    refusal,
    retyped,
)
from tests.support.factories import drawn, refused
from tests.support.model import t
from tests.support.refusals import unquantised
from tests.support.suite_cases import assert_graph, from_suite
from tflite_opencl.conformance.cases.elementwise import function

EXACT = ("ABS", "NEG", "SIGN", "SQUARE", "FLOOR", "ROUND", "CEIL")
ROUNDED = {"SQRT": np.sqrt, "RSQRT": lambda x: 1 / np.sqrt(x), "EXP": np.exp, "LOG": np.log}
ROUNDED |= {"SIN": np.sin, "COS": np.cos}
HAS_MORE = installed_rules().saturating_cast  # NEG and LOG of quantised types
TABLES = ["ABS", "EXP", *(("NEG", "LOG") if HAS_MORE else ())]
ROOTS = ["RSQRT", *(("SQRT",) if installed_rules().newer_types else ())]  # of quantised types
TABLES_16 = ["ABS", "EXP", *(("NEG",) if HAS_MORE else ())]
TABLES_16 += ["LOG"] if installed_rules().newer_types else []


test_functions = from_suite(*EXACT, *ROUNDED)


def node(
    name: str,
    dtype: str = "float32",
    shape: tuple[int, ...] = (2, 3, 5, 7),
    scales: tuple[float, float] = (0.1, 0.07),
    zeros: tuple[int, int] = (0, 0),
) -> Node:
    return function(name, dtype, shape, scales, zeros).nodes[0]


@pytest.mark.parametrize(
    ("dtype", "kernel", "strategy", "tiles"),
    [
        ("float32", "unary_float", SIMT, 4),
        ("int32", "unary_int32", SIMT, 4),
        ("float32", "unary_float", LANES_8, 1),
    ],
    ids=str,
)
def test_launch(dtype: str, kernel: str, strategy: Strategy, tiles: int) -> None:
    (plain,) = ops.lower(node("NEG", dtype), strategy.target)
    launch = only_launch(plain)
    assert (launch.kernel, launch.tiles, dict(launch.defines)) == (
        kernel,
        tiles,
        {"OP": "NEGATIVE"},
    )


def test_tables() -> None:
    assert only_launch(ops.lower(node("EXP", "int8"), SIMT.target)[0]).file == "lookup"


def test_older_runtime_has_fewer_tables() -> None:
    older = replace(SIMT.target, rules=Rules(saturating_cast=False))
    for name in ("NEG", "LOG"):
        reason = refusal(node(name, "int8"), older)
        assert reason == f"int8: {name} fails in this TFLite"


def test_older_runtime_has_no_quantised_root() -> None:
    older = replace(SIMT.target, rules=Rules(newer_types=False))
    root = node("SQRT", "int8", zeros=(-128, 0))
    assert refusal(root, older) == "int8: SQRT fails in this TFLite"
    for name in ("RSQRT", "LOG"):
        assert refusal(node(name, "int16"), older) == f"int16: {name} fails in this TFLite"


INT8 = node("ABS", "int8", (256,))
REFUSALS = {
    **{
        name: (retyped(each, "int8"), reason)
        for name, (each, reason) in common_refusals(INT8).items()
        if name in ("sparse", "shape_changes", "empty")
    },
    "types": (changed(INT8, -1, dtype="uint8"), "int8 in, uint8 out: they must be equal"),
    "uint8": (retyped(INT8, "uint8"), "uint8: only float32, int32, int8, int16"),
    "sines16": (node("SIN", "int16"), "int16: only float32"),
    "wide_root": (
        node("SQRT", "int8", scales=(1e20, 1.0), zeros=(-128, 0)),
        "output scale 1.0: the root of 255 is 1.59687e+11 of it",
    ),
    "wide_reciprocal": (
        node("RSQRT", "int8", scales=(1.0, 1e-7), zeros=(-128, 0)),
        "a scale ratio of 1e+07: not within 2^-10 and 2^20",
    ),
    "small_reciprocal": (
        node("RSQRT", "int8", scales=(1.0, 1e4), zeros=(-128, 0)),
        "a scale ratio of 0.0001: not within 2^-10 and 2^20",
    ),
    "scale": unquantised(INT8, 0),
    "ratio": (
        changed(INT8, -1, quantization=quantization(1e-11)),
        "a scale ratio of 1e+10: more than 2^30",
    ),
}

test_refusal = refused(REFUSALS)


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_exact_floats(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    values = floats_of_all_sizes()
    values = values[~((np.abs(values) < 1e-18) & (values != 0))]  # whose squares are denormal
    halves = np.arange(-20, 20, 0.5, np.float32)
    values = np.concatenate([values, halves, np.nextafter(halves, np.float32(9))])
    values[np.abs(values) < 1e-6] = 0  # a denormal float's floor may be taken for zero's
    if name == "SIGN" and installed_rules().runtime == "tflite-runtime":
        values = values[~np.isnan(values)]  # of which its sign is 0, and ai-edge-litert's NaN
    graph = function(name, "float32", values.shape)
    if name == "CEIL":  # some of TFLite's have 0 for -0
        assert_float_function(graph, device, strategy, np.zeros_like, inputs=[[values]])
    else:
        assert_exact_strategy(write_model(graph), device, strategy, inputs=[[values]])


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_floats(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    values = floats_of_all_sizes()
    values = values[~((np.abs(values) < 1.2e-38) & (values != 0))]
    graph = function(name, "float32", values.shape)
    assert_float_function(graph, device, strategy, ROUNDED[name], inputs=[[values]])


@pytest.mark.parametrize("name", ["SIN", "COS"])
def test_angles_near_quarter_turns_and_of_any_size(name: str, device: DeviceInfo) -> None:
    """What whole turns leave of a large float is lost where 2 / pi has too few digits."""
    quarters = (np.arange(1, 4000) * (np.pi / 2)).astype(np.float32)
    exponents = np.arange(127, 255, dtype=np.uint32) << 23
    digits = np.random.default_rng(0).integers(0, 1 << 23, (32, 128)).astype(np.uint32)
    values = np.concatenate([quarters, (exponents | digits).view(np.float32).ravel()])
    graph = function(name, "float32", values.shape)
    assert_float_function(graph, device, LANES_8, ROUNDED[name], inputs=[[values], [-values]])


@pytest.mark.parametrize("zero", [-127, -8, 5, 126])
@pytest.mark.parametrize("name", ROOTS)
def test_every_root_of_another_zero_point(name: str, zero: int, device: DeviceInfo) -> None:
    values = np.arange(zero, 128).astype(np.int8)
    graph = function(name, "int8", values.shape, (0.02, 0.07), (zero, 5))
    assert_graph(graph, device, LANES_8, [[values]])


@pytest.mark.skipif(not installed_rules().newer_types, reason="which tflite-runtime lacks")
@pytest.mark.parametrize("scales", [(1e-4, 1e-3), (0.01, 0.0005), (1.0, 1e-5), (3e-5, 0.005)])
@pytest.mark.parametrize("name", ["SQRT", "RSQRT"])
def test_every_root_of_16_bits(name: str, scales: tuple[float, float], device: DeviceInfo) -> None:
    values = np.arange(1 << 15).astype(np.int16)
    graph = function(name, "int16", values.shape, scales, (0, 0))
    assert_graph(graph, device, LANES_8, [[values]])


def test_roots_are_required_to_be_of_nothing_below_0() -> None:
    for dtype, zero, found in (("int8", -128, []), ("int8", 3, [3]), ("int16", 0, [0])):
        (*_, plain) = ops.lower(node("RSQRT", dtype, zeros=(zero, 0)), SIMT.target)
        assert [need.least for need in plain.requirements] == found


@pytest.mark.parametrize("scales", [(0.001, 0.001), (0.0002, 0.003), (0.0007, 0.0008)])
@pytest.mark.parametrize("name", TABLES_16)
def test_every_16_bit_value(name: str, scales: tuple[float, float], device: DeviceInfo) -> None:
    values = every_value("int16")
    graph = function(name, "int16", values.shape, scales, (0, 0))
    assert_graph(graph, device, LANES_8, [[values]])


@pytest.mark.parametrize("scale", [1e-38, 0.001, 3e38])
@pytest.mark.parametrize("name", ["EXP", "LOG"])
def test_a_16_bit_table_of_what_is_no_number_says_nothing(name: str, scale: float) -> None:
    # Warnings are errors here. In a start they would stand among a command's lines.
    tensor = t((1, 8), "int16", scale)
    answers = table_of(name, tensor, tensor, Rules())
    assert answers(np.arange(-(2**15), 2**15)).dtype == np.int16


@pytest.mark.parametrize("name", [*TABLES, *ROOTS])
@given(data=st.data(), strategy=DRAWN_STRATEGIES, seed=SEEDS)
def test_drawn_tables(
    device: DeviceInfo, name: str, data: st.DataObject, strategy: Strategy, seed: int
) -> None:
    types = ["int8", "int16"] if name in ("ABS", "NEG") else ["int8"]
    zero = -128 if name in ROOTS else None
    assert_drawn(data.draw(functions(name, types, zero)), device, strategy, seed)


test_drawn = drawn(
    st.sampled_from(EXACT[:-1]).flatmap(
        lambda name: functions(name, ["float32", "int32"] if name == "NEG" else ["float32"])
    ),
    STRATEGIES,
    assert_drawn,
)

NODES = {name: node(name) for name in (*EXACT, *ROUNDED)}
BUILT = [node(name, "int32") for name in ("ABS", "NEG", "SIGN")]

# SPDX-License-Identifier: Apache-2.0
"""ABS, SQRT, EXP and the like: launches, refusals, every 8-bit value, and floats of all sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Node
from delegate.ops.unary import table_of
from delegate.target import Rules
from tests.support.activations import (
    Activation,
    activations,
    assert_drawn,
    assert_every_value,
    assert_float_function,
    common_refusals,
    floats_of_all_sizes,
)
from tests.support.cases import (
    DRAWN_WAYS,
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
    retyped,
)
from tests.support.factories import refused
from tests.support.model import chain_model, op, t
from tests.support.refusals import unquantised

EXACT = ("ABS", "NEG", "SIGN", "SQUARE", "FLOOR", "ROUND", "CEIL")
ROUNDED = {"SQRT": np.sqrt, "RSQRT": lambda x: 1 / np.sqrt(x), "EXP": np.exp, "LOG": np.log}
ROUNDED |= {"SIN": np.sin, "COS": np.cos}
HAS_MORE = installed_rules().saturating_cast  # NEG and LOG of quantised types
TABLES = ["ABS", "EXP", *(("NEG", "LOG") if HAS_MORE else ())]
ROOTS = ["RSQRT", *(("SQRT",) if installed_rules().newer_types else ())]  # of quantised types
TABLES_16 = ["ABS", "EXP", *(("NEG",) if HAS_MORE else ())]
TABLES_16 += ["LOG"] if installed_rules().newer_types else []


def node(name: str, dtype: str = "float32", shape: tuple[int, ...] = (2, 3, 5, 7)) -> Node:
    return op(name, [t(shape, dtype)], [t(shape, dtype)], version=1)


@pytest.mark.parametrize(
    ("dtype", "kernel", "way", "tiles"),
    [
        ("float32", "unary_float", SIMT, 4),
        ("int32", "unary_int32", SIMT, 4),
        ("float32", "unary_float", LANES_8, 1),
    ],
    ids=str,
)
def test_launch(dtype: str, kernel: str, way: Way, tiles: int) -> None:
    (plain,) = ops.lower(node("NEG", dtype), way.target)
    launch = only_launch(plain)
    assert (launch.kernel, launch.tiles, dict(launch.defines)) == (
        kernel,
        tiles,
        {"OP": "NEGATIVE"},
    )


def test_tables() -> None:
    case = Activation(op="EXP", dtype="int8")
    assert only_launch(ops.lower(case.node(), SIMT.target)[0]).file == "lookup"


def test_older_runtime_has_fewer_tables() -> None:
    older = replace(SIMT.target, rules=Rules(saturating_cast=False))
    for name in ("NEG", "LOG"):
        reason = refusal(Activation(op=name, dtype="int8").node(), older)
        assert reason == f"int8: {name} fails in this TFLite"


def test_older_runtime_has_no_quantised_root() -> None:
    older = replace(SIMT.target, rules=Rules(newer_types=False))
    case = Activation(op="SQRT", dtype="int8", zeros=(-128, 0))
    assert refusal(case.node(), older) == "int8: SQRT fails in this TFLite"
    for name in ("RSQRT", "LOG"):
        case = Activation(op=name, dtype="int16")
        assert refusal(case.node(), older) == f"int16: {name} fails in this TFLite"


INT8 = Activation(op="ABS", dtype="int8").node()
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
        Activation(op="SQRT", dtype="int8", zeros=(-128, 0), scales=(1e20, 1.0)).node(),
        "output scale 1.0: the root of 255 is 1.59687e+11 of it",
    ),
    "wide_reciprocal": (
        Activation(op="RSQRT", dtype="int8", zeros=(-128, 0), scales=(1.0, 1e-7)).node(),
        "a scale ratio of 1e+07: not within 2^-10 and 2^20",
    ),
    "small_reciprocal": (
        Activation(op="RSQRT", dtype="int8", zeros=(-128, 0), scales=(1.0, 1e4)).node(),
        "a scale ratio of 0.0001: not within 2^-10 and 2^20",
    ),
    "scale": unquantised(INT8, 0),
    "ratio": (
        changed(INT8, -1, quantization=quantization(1e-11)),
        "a scale ratio of 1e+10: more than 2^30",
    ),
}

test_refusal = refused(REFUSALS)


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_exact_floats(name: str, way: Way, device: DeviceInfo) -> None:
    values = floats_of_all_sizes()
    values = values[~((np.abs(values) < 1e-18) & (values != 0))]  # whose squares are denormal
    halves = np.arange(-20, 20, 0.5, np.float32)
    values = np.concatenate([values, halves, np.nextafter(halves, np.float32(9))])
    values[np.abs(values) < 1e-6] = 0  # a denormal float's floor may be taken for zero's
    if name == "SIGN" and installed_rules().runtime == "tflite-runtime":
        values = values[~np.isnan(values)]  # of which its sign is 0, and ai-edge-litert's NaN
    model = chain_model([node(name, shape=values.shape)])
    if name == "CEIL":  # some of TFLite's have 0 for -0
        case = Activation(op=name, dtype="float32", shape=values.shape)
        assert_float_function(case, device, way, np.zeros_like, inputs=[[values]])
    else:
        assert_exact_way(model, device, way, inputs=[[values]])


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_floats(name: str, way: Way, device: DeviceInfo) -> None:
    values = floats_of_all_sizes()
    values = values[~((np.abs(values) < 1.2e-38) & (values != 0))]
    case = Activation(op=name, dtype="float32", shape=values.shape)
    assert_float_function(case, device, way, ROUNDED[name], inputs=[[values]])


@pytest.mark.parametrize("name", ["SIN", "COS"])
def test_angles_near_quarter_turns_and_of_any_size(name: str, device: DeviceInfo) -> None:
    """What whole turns leave of a large float is lost where 2 / pi has too few digits."""
    quarters = (np.arange(1, 4000) * (np.pi / 2)).astype(np.float32)
    exponents = np.arange(127, 255, dtype=np.uint32) << 23
    digits = np.random.default_rng(0).integers(0, 1 << 23, (32, 128)).astype(np.uint32)
    values = np.concatenate([quarters, (exponents | digits).view(np.float32).ravel()])
    case = Activation(op=name, dtype="float32", shape=values.shape)
    assert_float_function(case, device, LANES_8, ROUNDED[name], inputs=[[values], [-values]])


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (65,), (2, 3, 5, 7), (4097,)], ids=str)
@pytest.mark.parametrize("name", ["ABS", "NEG", "SIGN"])
def test_int32(name: str, shape: tuple[int, ...], way: Way, device: DeviceInfo) -> None:
    # The least number has no opposite: what ABS makes of it differs between TFLite's versions.
    values = np.random.default_rng(0).integers(-(2**31) + 1, 2**31, shape).astype(np.int32)
    model = chain_model([node(name, "int32", shape)])
    assert_exact_way(model, device, way, inputs=[[values], [np.full(shape, -7, np.int32)]])


@pytest.mark.parametrize(
    ("scales", "zeros"),
    [
        ((0.1, 0.1), (3, 3)),
        ((0.1, 0.1), (-128, -128)),
        ((0.02, 0.5), (-20, -100)),
        ((1.0, 0.01), (127, 5)),
    ],
)
@pytest.mark.parametrize("name", TABLES)
def test_every_8_bit_value(
    name: str, scales: tuple[float, float], zeros: tuple[int, int], device: DeviceInfo
) -> None:
    case = Activation(op=name, dtype="int8", scales=scales, zeros=zeros)
    assert_every_value(case, device, LANES_8)


@pytest.mark.parametrize("out_zero", [-128, 5, 127])
@pytest.mark.parametrize(
    "scales", [(0.1, 0.1), (0.01, 0.1), (0.02, 0.5), (1.0, 1.0), (0.0039, 0.002), (7.0, 0.01)]
)
@pytest.mark.parametrize("name", ROOTS)
def test_every_root(
    name: str, scales: tuple[float, float], out_zero: int, device: DeviceInfo
) -> None:
    case = Activation(op=name, dtype="int8", scales=scales, zeros=(-128, out_zero), version=2)
    assert_every_value(case, device, LANES_8)


@pytest.mark.parametrize("zero", [-127, -8, 5, 126])
@pytest.mark.parametrize("name", ROOTS)
def test_every_root_of_another_zero_point(name: str, zero: int, device: DeviceInfo) -> None:
    values = np.arange(zero, 128).astype(np.int8)
    shape, scales = values.shape, (0.02, 0.07)
    case = Activation(op=name, dtype="int8", shape=shape, scales=scales, zeros=(zero, 5), version=2)
    assert_exact_way(case.model(), device, LANES_8, inputs=[[values]])


@pytest.mark.skipif(not installed_rules().newer_types, reason="which tflite-runtime lacks")
@pytest.mark.parametrize("scales", [(1e-4, 1e-3), (0.01, 0.0005), (1.0, 1e-5), (3e-5, 0.005)])
@pytest.mark.parametrize("name", ["SQRT", "RSQRT"])
def test_every_root_of_16_bits(name: str, scales: tuple[float, float], device: DeviceInfo) -> None:
    values = np.arange(1 << 15).astype(np.int16)
    version = 3 if name == "RSQRT" else 1
    case = Activation(op=name, dtype="int16", shape=values.shape, scales=scales, version=version)
    assert_exact_way(case.model(), device, LANES_8, inputs=[[values]])


def test_roots_are_required_to_be_of_nothing_below_0() -> None:
    for dtype, zero, found in (("int8", -128, []), ("int8", 3, [3]), ("int16", 0, [0])):
        case = Activation(op="RSQRT", dtype=dtype, zeros=(zero, 0))
        (*_, plain) = ops.lower(case.node(), SIMT.target)
        assert [need.least for need in plain.requirements] == found


@given(data=st.data(), name=st.sampled_from(ROOTS), way=DRAWN_WAYS, seed=SEEDS)
def test_drawn_roots(
    device: DeviceInfo, data: st.DataObject, name: str, way: Way, seed: int
) -> None:
    case = data.draw(activations(name, ["int8"]))
    assert_drawn(replace(case, zeros=(-128, case.zeros[1]), version=2), device, way, seed)


@pytest.mark.parametrize("scales", [(0.001, 0.001), (0.0002, 0.003), (0.0007, 0.0008)])
@pytest.mark.parametrize("name", TABLES_16)
def test_every_16_bit_value(name: str, scales: tuple[float, float], device: DeviceInfo) -> None:
    assert_every_value(Activation(op=name, dtype="int16", scales=scales), device, LANES_8)


@pytest.mark.parametrize("scale", [1e-38, 0.001, 3e38])
@pytest.mark.parametrize("name", ["EXP", "LOG"])
def test_a_16_bit_table_of_what_is_no_number_says_nothing(name: str, scale: float) -> None:
    # Warnings are errors here. In a start they would stand among a command's lines.
    tensor = t((1, 8), "int16", scale)
    answers = table_of(name, tensor, tensor, Rules())
    assert answers(np.arange(-(2**15), 2**15)).dtype == np.int16


@given(data=st.data(), name=st.sampled_from(TABLES), way=DRAWN_WAYS, seed=SEEDS)
def test_drawn_tables(
    device: DeviceInfo, data: st.DataObject, name: str, way: Way, seed: int
) -> None:
    types = ["int8", "int16"] if name in ("ABS", "NEG") else ["int8"]
    assert_drawn(data.draw(activations(name, types)), device, way, seed)


@given(
    shape=st.lists(st.integers(1, 11), max_size=4),
    name=st.sampled_from(EXACT[:-1]),
    is_float=st.booleans(),
    way=DRAWN_WAYS,
    seed=SEEDS,
)
def test_drawn(
    device: DeviceInfo, shape: list[int], name: str, is_float: bool, way: Way, seed: int
) -> None:
    dtype = "float32" if is_float or name != "NEG" else "int32"
    assert_exact_or_refused(chain_model([node(name, dtype, tuple(shape))]), device, way, seed)


NODES = {name: node(name) for name in (*EXACT, *ROUNDED)}
BUILT = [node(name, "int32") for name in ("ABS", "NEG", "SIGN")]

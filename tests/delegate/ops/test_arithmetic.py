# SPDX-License-Identifier: Apache-2.0
"""SUB, MUL, DIV, MAXIMUM and the like: launches, refusals, and their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo, ops
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Node
from delegate.target import Rules
from tests.support.cases import (
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    STRATEGIES,
    Strategy,
    assert_exact_strategy,
    changed,
    forced,
    only_launch,
    quantization,
    refusal,
    retyped,
)
from tests.support.compare import Arrays, Bounds, assert_within, inputs_for
from tests.support.factories import drawn, refused
from tests.support.model import chain_model, const, graph_of, t
from tests.support.pairs import (
    BROADCASTS,
    MOST_DIMENSIONS,
    QUANT,
    Shape,
    assert_pair_or_refused,
    every_pair,
    pairs,
)
from tests.support.refusals import activated
from tests.support.suite_cases import from_suite
from tflite_opencl.conformance.cases.binary import DIVISORS, pair

NUMBERS = ("int32", "float32")
TYPES = {
    "SUB": (*QUANT, *NUMBERS),
    "MUL": (*QUANT, *NUMBERS),
    "MAXIMUM": (*QUANT, *NUMBERS),
    "MINIMUM": (*QUANT, *NUMBERS),
    "SQUARED_DIFFERENCE": ("int8", *NUMBERS),
    "DIV": (*(QUANT if installed_rules().newer_types else ("uint8",)), "int32"),
    "FLOOR_DIV": ("int8", "int16", *NUMBERS),
    "FLOOR_MOD": ("int8", "int16", "int32"),
}
OF_STABLEHLO = ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM", "AND", "SHIFT_LEFT")
WIDE = ((4, 20), (4, 20))  # fills every vector

test_arithmetic = from_suite(*TYPES)
test_functions = from_suite("POW", "ATAN2")
test_stablehlo = from_suite(*(f"STABLEHLO_{name}" for name in OF_STABLEHLO))
test_bits = from_suite("BITWISE_XOR", "RIGHT_SHIFT")


def node(
    op: str, dtype: str = "int8", shapes: tuple[Shape, Shape] | None = None, **options: Any
) -> Node:
    """Return a node that divides by constants without zeros, and raises integers to the third."""
    if op in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        options = {"constant": "right", "values": DIVISORS[dtype], **options}
    if op == "POW" and dtype == "int32":
        options = {"constant": "right", "values": (3,), **options}
        shapes = shapes or ((1, 7, 5, 3), (1,))
    return pair(op, dtype, shapes or BROADCASTS["equal"], **options).nodes[0]


@pytest.mark.parametrize(
    ("shapes", "rows", "row", "steps"),
    [
        ("equal", 1, 105, (1, 1)),
        ("scalar", 1, 660, (1, 0)),
        ("channels", 40, 33, (1, 1)),
        ("squeeze", 20, 17, (1, 1)),
        ("pixels", 20, 7, (1, 0)),
        ("both", 31, 37, (0, 1)),
        ("many", 120 if MOST_DIMENSIONS == 5 else 60, 20, (1, 1)),
    ],
)
def test_rows(shapes: str, rows: int, row: int, steps: tuple[int, int]) -> None:
    vector, plain = ops.lower(node("MUL", shapes=BROADCASTS[shapes]), SIMT.target)
    assert (vector.name, plain.name) == ("vector 4", "plain")
    for alternative, lanes in ((vector, 4), (plain, 1)):
        launch = only_launch(alternative)
        assert (launch.kernel, launch.defines["LANES"]) == ("binary_quant8", lanes)
        assert (launch.params["rows"], launch.params["row"]) == (rows, row)
        assert (launch.params["left_step"], launch.params["right_step"]) == steps
        assert launch.params["items"] == rows * -(-row // lanes)


def test_lanes_follow_type_and_row() -> None:
    names = {
        (dtype, shape): [found.name for found in ops.lower(maximum, LANES_16.target)]
        for dtype in ("uint8", "int16", "float32")
        for shape in ("one", "equal")
        for maximum in [node("MAXIMUM", dtype, BROADCASTS[shape])]
    }
    assert {names[dtype, "one"][0] for dtype in ("uint8", "int16", "float32")} == {"plain"}
    assert names["uint8", "equal"] == ["vector 16", "plain"]
    assert names["int16", "equal"] == names["float32", "equal"] == ["vector 8", "plain"]


@pytest.mark.parametrize(
    ("shapes", "constant", "rows", "row"),
    [
        (((1, 8, 12, 3), (1, 1, 1, 3)), "right", 4, 72),
        (((3,), (2, 12, 3)), "left", 1, 72),
        (((7, 3), (3,)), "right", 7, 3),  # too few pixels to join
        (((509, 3), (3,)), "right", 509, 3),  # a prime number of them
        (((8, 64), (64,)), "right", 8, 64),
        (((2, 32, 3), (2, 1, 3)), "right", 64, 3),  # not the same row everywhere
        (((8, 12, 3), (8, 12, 1)), "right", 96, 3),
    ],
    ids=str,
)
def test_short_constant_rows_are_repeated(
    shapes: tuple[Shape, Shape], constant: str, rows: int, row: int, device: DeviceInfo
) -> None:
    product = node("MUL", "int16", shapes, constant=constant)
    launch = only_launch(ops.lower(product, LANES_8.target)[-1])
    assert (launch.params["rows"], launch.params["row"]) == (rows, row)
    assert launch.params[f"{constant}_is_constant"] == (row == 72)
    assert len(launch.reads) == (1 if row == 72 else 2)
    for strategy in (LANES_8, PLAIN):
        assert_exact_strategy(chain_model([product]), device, strategy)


NODE = node("SUB")
NUMBER = node("DIV", "int32")
REFUSALS = {
    "types": (changed(NODE, 1, dtype="uint8"), "int8 and uint8 -> int8: they must be equal"),
    "float64": (
        retyped(NODE, "float64", (0, 1, -1)),
        "float64: only uint8, int8, int16, int32, float32, int64 are implemented",
    ),
    "shapes": (
        changed(NODE, 1, shape=(1, 7, 5, 2)),
        "1x7x5x3 and 1x7x5x2 -> 1x7x5x3: not the broadcast shape",
    ),
    "result": (
        changed(NODE, -1, shape=(2, 7, 5, 3)),
        "1x7x5x3 and 1x7x5x3 -> 2x7x5x3: not the broadcast shape",
    ),
    "empty": (changed(NODE, 0, shape=(0,)), "shape 0: it is empty"),
    "scale": (changed(NODE, 1, quantization=None), "int8 without quantisation: "),
    "tiny_output": (changed(NODE, -1, quantization=quantization(1e-12)), "output scale "),
    "large_ratio": (
        changed(node("MUL"), -1, quantization=quantization(1e-12)),
        "a scale ratio of ",
    ),
    "large_squares": (
        changed(node("SQUARED_DIFFERENCE"), -1, quantization=quantization(1e-15)),
        "a scale ratio of ",
    ),
    "fused_tanh": activated(NODE, "TANH"),
    "fused_tanh_int32": activated(NUMBER, "TANH"),
    "computed_divisor": (
        node("FLOOR_DIV", constant=""),
        "the divisors are not constant",
    ),
    "zero": (changed(NUMBER, 1, data=np.zeros((1, 7, 5, 3), np.int32)), "a divisor is 0"),
    "minus_one": (node("FLOOR_MOD", "int32", values=(-1,)), "a divisor is -1"),
    "quantised_by_zero": (
        node("DIV", "uint8", values=(119, 120)),
        "a divisor is 120, which stands for 0",
    ),
    "quotient_of_scales": (
        node("DIV", "uint8", scales=(1.0, 1e-4, 0.1)),
        "a scale ratio of 100000: not within 2^-15 and 2^15",
    ),
    "small_quotient_of_scales": (
        node("DIV", "uint8", scales=(1e-4, 10.0, 1.0)),
        "a scale ratio of 1e-05: not within 2^-15 and 2^15",
    ),
    "floored_by_zero": (node("FLOOR_DIV", "int16", values=(7, 0)), "a divisor is 0"),
    "floored_by_minus_one": (node("FLOOR_DIV", values=(7, -1)), "a divisor is -1"),
    "modulo_zero": (node("FLOOR_MOD", values=(7, 0)), "a divisor is 0"),
    "floored_uint8": (
        node("FLOOR_DIV", "uint8"),
        "uint8: only int8, int16, int32, float32 are implemented",
    ),
    "quantised_powers": (node("POW"), "int8: only int32, float32 are implemented"),
    "negative_power": (
        node("POW", "int32", values=(-1,)),
        "an exponent is -1: 0 or more is needed",
    ),
    "computed_power": (node("POW", "int32", constant=""), "the exponents are not constant"),
    "many_powers": (
        node("POW", "int32", shapes=((2, 3), (3,)), values=(1, 2)),
        "int32: only one exponent, which is broadcast",
    ),
    "power_of_one": (
        node("POW", "int32", shapes=((1,), (1,))),
        "int32: only one exponent, which is broadcast",
    ),
    "one_input": (replace(NODE, inputs=NODE.inputs[:1]), "1 inputs: 2 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
    "dimensions": (
        node("MAXIMUM", shapes=((2, 1) * 5, (1, 2) * 5)),
        "9 dimensions that differ: at most 7 are implemented",
    ),
    "shifts": (
        node("SUB", "int16", scales=(0.5, 0.25, 1.0), shifts=True),
        "int16 shifts by 1 and 2: one must be 0, none to the left",
    ),
    "broadcast_shifts": (
        node("SUB", "int16", BROADCASTS["scalar"], scales=(0.5, 0.5, 0.5), shifts=True),
        "int16 of scales that are powers of two: only equal shapes",
    ),
}

test_refusal = refused(REFUSALS, are_beginnings=True)


def test_older_runtime_divides_fewer_types() -> None:
    older = replace(SIMT.target, rules=Rules(newer_types=False))
    assert ops.lower(node("DIV", "uint8"), older)
    for dtype in ("int8", "int16"):
        reason = refusal(node("DIV", dtype), older)
        assert reason == f"{dtype}: DIV fails in this TFLite"


def test_the_same_twice(device: DeviceInfo) -> None:
    product = node("MUL")
    product = replace(product, inputs=(product.inputs[0],) * 2)
    assert_exact_strategy(chain_model([product]), device, SIMT)


@pytest.mark.parametrize("strategy", [SIMT, LANES_8], ids=str)
@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("op", ["FLOOR_DIV", "FLOOR_MOD"])
def test_small_integers_are_floored(
    op: str, dtype: str, strategy: Strategy, device: DeviceInfo
) -> None:
    for shapes in ("equal", "channels"):
        assert_exact_strategy(chain_model([node(op, dtype, BROADCASTS[shapes])]), device, strategy)


def test_divisors_of_one(device: DeviceInfo) -> None:
    for op, dtype in (("FLOOR_DIV", "int32"), ("FLOOR_MOD", "int8"), ("FLOOR_MOD", "int16")):
        assert_exact_strategy(chain_model([node(op, dtype, values=(-1, 1))]), device, LANES_8)


COMPUTED = [
    *(("DIV", dtype) for dtype in TYPES["DIV"]),
    *(("FLOOR_DIV", dtype) for dtype in NUMBERS),
    *(("FLOOR_MOD", dtype) for dtype in ("int8", "int16", "int32")),
]


@pytest.mark.parametrize("shapes", ["equal", "channels", "pixels"])
@pytest.mark.parametrize("strategy", [SIMT, LANES_8], ids=str)
@pytest.mark.parametrize(("op", "dtype"), COMPUTED)
def test_divisors_that_a_run_brings(
    op: str, dtype: str, strategy: Strategy, shapes: str, device: DeviceInfo
) -> None:
    quotient = node(op, dtype, BROADCASTS[shapes], constant="", values=())
    (need,) = ops.lower(quotient, strategy.target)[0].requirements
    left, right = inputs_for(graph_of([quotient]))[0]
    right = np.resize(np.array(DIVISORS[dtype]), right.shape).astype(dtype)
    right[right == need.excluded] = 77
    assert_exact_strategy(chain_model([quotient]), device, strategy, inputs=[[left, right]])


EVERY: list[tuple[str, str, dict[str, Any]]] = [
    ("SUB", "uint8", {"scales": (0.4015, 0.2758, 0.4322), "zeros": (136, 119, 133)}),
    ("SUB", "int8", {"scales": (0.19, 0.17, 0.05), "fused": "RELU"}),
    ("MUL", "uint8", {"fused": "RELU6"}),
    ("MUL", "int8", {"scales": (0.5, 0.5, 0.5), "zeros": (0, -1, 4)}),
    ("SQUARED_DIFFERENCE", "int8", {"scales": (0.19, 0.17, 0.5)}),
    ("MAXIMUM", "int8", {}),
    ("MINIMUM", "uint8", {}),
    *((op, "int8", {}) for op in ("FLOOR_DIV", "FLOOR_MOD")),
    *(
        ("DIV", "uint8", {"scales": scales, "zeros": zeros})
        for scales in ((0.1, 0.07, 0.13), (0.1, 0.1, 1.0), (0.02, 0.9, 0.5), (0.5, 0.01, 0.004))
        for zeros in ((131, 120, 125), (0, 0, 0), (255, 255, 3))
    ),
    *(
        ("DIV", "int8", {"scales": scales})
        for scales in ((0.1, 0.07, 0.13), (0.02, 0.9, 0.5))
        if installed_rules().newer_types
    ),
]


@pytest.mark.parametrize(("op", "dtype", "options"), EVERY, ids=str)
def test_every_pair_of_inputs(
    op: str, dtype: str, options: dict[str, Any], device: DeviceInfo
) -> None:
    every = pair(op, dtype, ((256, 256), (256, 256)), **options).nodes[0]
    inputs = every_pair(dtype)
    divisors = every.inputs[1]
    assert divisors is not None
    if op in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        # Constant divisors, all but what stands for 0.
        right = inputs.pop()
        zero = divisors.quantization.zero_point[0] if divisors.quantization else 0
        right[right == (zero if op == "DIV" else 0)] = 77
        if op == "FLOOR_DIV":
            right[right == -1] = 77
        every = replace(every, inputs=(every.inputs[0], replace(divisors, data=right)))
    assert_exact_strategy(chain_model([every]), device, LANES_8, inputs=[inputs])


def power_bounds(inputs: Arrays) -> Bounds:
    with np.errstate(all="ignore"):
        found = np.power(*(values.astype(np.float64) for values in inputs))
        places = np.spacing(np.abs(found.astype(np.float32))).astype(np.float64)
    return [2 * np.where(np.isfinite(places), places, 0) + float(np.finfo(np.float32).tiny)]


@pytest.mark.parametrize("strategy", [SIMT, LANES_8], ids=str)
def test_powers(strategy: Strategy, device: DeviceInfo) -> None:
    rng = np.random.default_rng(0)
    count = 5000
    left = [10 ** rng.uniform(-37, 37, count), rng.uniform(0.5, 2, count)]
    right = [rng.uniform(-3, 3, count), rng.uniform(-120, 120, count)]
    left.append(rng.uniform(-3, 3, count))
    right.append(rng.integers(-9, 9, count))
    ends = [0, 1, 2, 3, 0.5, 1.5, np.inf, 1e38, 1e-38, 3e9, 2**24 + 2, 2**24 - 1]
    special = np.array([np.nan, *ends, *(-x for x in ends)], np.float32)
    left.append(np.repeat(special, len(special)))
    right.append(np.tile(special, len(special)))
    inputs = [np.concatenate(each).astype(np.float32) for each in (left, right)]
    shape = inputs[0].shape
    model = chain_model([node("POW", "float32", shapes=(shape, shape))])
    with forced(strategy):
        assert_within(model, device, power_bounds, inputs=[inputs])


def test_rounded_quotients_of_floats(device: DeviceInfo) -> None:
    # Quotients at integers, where the last bit decides which one the result is.
    rng = np.random.default_rng(3)
    divisors = (rng.standard_normal(4096) * 10 ** rng.uniform(-3, 3, 4096)).astype(np.float32)
    divisors[:99] *= np.float32(1e28)
    whole = rng.integers(-4000, 4000, 4096).astype(np.float32) * divisors
    floored = node("FLOOR_DIV", "float32", ((4096,), (4096,)))
    floored = replace(floored, inputs=(floored.inputs[0], const(divisors)))
    near = [[np.nextafter(whole, np.float32(to))] for to in (-np.inf, np.inf)]
    assert_exact_strategy(
        chain_model([floored]), device, LANES_8, inputs=[[whole], *near, [whole * 1e-30]]
    )


SUMS = ("SUB", "MUL", "MAXIMUM", "MINIMUM")
DIVISIONS = ("DIV", "FLOOR_DIV", "FLOOR_MOD")
test_drawn = drawn(pairs(SUMS, (*QUANT, *NUMBERS)), STRATEGIES, assert_pair_or_refused)
test_drawn_squares = drawn(
    pairs(("SQUARED_DIFFERENCE",), ("int8", *NUMBERS)), STRATEGIES, assert_pair_or_refused
)
test_drawn_divisions = drawn(
    pairs(DIVISIONS, TYPES["DIV"][1:], divisors=True) | pairs(("DIV",), ("uint8",), divisors=True),
    STRATEGIES,
    assert_pair_or_refused,
)


ANGLE = node("ATAN2", "float32", WIDE)


@pytest.mark.parametrize("strategy", [SIMT, LANES_8], ids=str)
def test_angles(strategy: Strategy, device: DeviceInfo) -> None:
    """Points of every size and direction, and those whose direction C's atan2f() defines."""
    rng = np.random.default_rng(0)
    y, x = (
        (10 ** rng.uniform(-30, 30, 2000) * rng.choice([-1, 1], 2000)).astype(np.float32)
        for _ in range(2)
    )
    x[1000:] = y[1000:] * rng.uniform(-3, 3, 1000).astype(np.float32)
    ends = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-37], np.float32)
    pairs = np.array(np.meshgrid(ends, ends)).reshape(2, -1)
    inputs = [np.concatenate([y, pairs[0]]), np.concatenate([x, pairs[1]])]
    shapes = (inputs[0].shape,) * 2

    def bounds(given: Arrays) -> Bounds:
        with np.errstate(all="ignore"):
            exact = np.arctan2(*(each.astype(np.float64) for each in given))
            places = np.spacing(np.abs(np.nan_to_num(exact)).astype(np.float32))
        return [2 * places.astype(np.float64) + float(np.finfo(np.float32).tiny)]

    model = chain_model([node("ATAN2", "float32", shapes=shapes)])
    with forced(strategy):
        assert_within(model, device, bounds, inputs=[inputs])


def test_angles_are_not_broadcast() -> None:
    broadcast = replace(ANGLE, inputs=(ANGLE.inputs[0], t((20,))))
    assert refusal(broadcast) == "shapes 4x20 and 20: where they differ TFLite reads past the end"


def stablehlo(name: str, dtype: str, shapes: tuple[Shape, Shape] = WIDE, **options: Any) -> Node:
    return node(f"STABLEHLO_{name}", dtype, shapes, **options)


def shorter(name: str, dtype: str) -> Node:
    """Return a node whose right input would have to be broadcast."""
    return changed(stablehlo(name, dtype), 1, shape=(20,))


@pytest.mark.parametrize("name", ["MAXIMUM", "MINIMUM"])
def test_of_zeros_and_what_is_no_number_the_left_one_is_taken(
    name: str, device: DeviceInfo
) -> None:
    left, right = np.float32([[np.nan, 1, np.nan, 0, -0.0], [1, np.nan, 2, -0.0, 0]])
    model = chain_model([stablehlo(name, "float32", ((5,), (5,)))])
    assert_exact_strategy(model, device, SIMT, inputs=[[left, right]])


@pytest.mark.parametrize("strategy", [SIMT, LANES_8], ids=str)
@pytest.mark.parametrize("name", ["ADD", "MULTIPLY"])
def test_what_is_infinite_as_it_is_stays_infinite(
    name: str, strategy: Strategy, device: DeviceInfo
) -> None:
    large, nothing = np.float32(3e38), np.float32(np.nan)
    left = np.resize(np.float32([large, -large, np.inf, -np.inf, nothing, 1, large]), 21)
    right = np.resize(np.float32([large, large, 2, np.inf, 1, nothing, -large]), 21)
    right[1::7] = -large if name == "ADD" else large
    model = chain_model([stablehlo(name, "float32", ((21,), (21,)))])
    assert_exact_strategy(model, device, strategy, inputs=[[left, right]])


def test_tensors_as_they_are_are_not_broadcast() -> None:
    assert refusal(shorter("ADD", "float32")) == "4x20 -> 20: the shape must stay"
    assert refusal(stablehlo("ADD", "int8")) == "int8: only int32, float32, int64 are implemented"


test_refused_bits = refused(
    {
        "shape": (shorter("AND", "int32"), "4x20 -> 20: the shape must stay"),
        "type": (
            stablehlo("AND", "float32"),
            "float32: only bool, int8, int16, int32, int64 are imp",
        ),
        "computed": (stablehlo("SHIFT_LEFT", "int32"), "the shifts are not constant"),
        "below": (
            stablehlo("SHIFT_LEFT", "int32", constant="right", values=(1, -1)),
            "a shift by -1: only 0 to 31",
        ),
        "beyond": (
            stablehlo("SHIFT_LEFT", "int8", constant="right", values=(1, 32)),
            "a shift by 32: only 0 to 31",
        ),
        "shift_type": (stablehlo("SHIFT_LEFT", "int64"), "int64: only int8, int16, int32 are"),
    },
    are_beginnings=True,
)

SHIFTED = ("uint8", "int8", "int16", "int32")


@pytest.mark.skipif(MOST_DIMENSIONS < 5, reason="an op that tflite-runtime lacks")
@pytest.mark.parametrize("dtype", SHIFTED)
def test_shifts_beyond_the_width(dtype: str, device: DeviceInfo) -> None:
    shifts = node("RIGHT_SHIFT", dtype, BROADCASTS["channels"])
    rng, limits = np.random.default_rng(3), np.iinfo(dtype)
    left = rng.integers(limits.min, limits.max, (2, 5, 4, 33), endpoint=True).astype(dtype)
    right = rng.integers(-3 if limits.min else 0, 35, (1, 1, 1, 33)).astype(dtype)
    for strategy in (SIMT, LANES_8):
        assert_exact_strategy(chain_model([shifts]), device, strategy, inputs=[[left, right]])


test_refused_bitwise = refused(
    {
        op: (node(op, "float32"), "float32: only uint8, int8, int16, int32 are")
        for op in ("BITWISE_XOR", "RIGHT_SHIFT")
    },
    are_beginnings=True,
)

NODES = {op: node(op, dtypes[0]) for op, dtypes in TYPES.items()}
NODES |= {"POW": node("POW", "int32"), "ATAN2": ANGLE}
NODES |= {op: node(op) for op in ("BITWISE_XOR", "RIGHT_SHIFT")}
NODES |= {
    f"STABLEHLO_{name}": stablehlo(name, "int32", constant="right", values=(3,))
    for name in OF_STABLEHLO
}
BUILT = [
    *(stablehlo(name, dtype) for name in OF_STABLEHLO[:2] for dtype in (*NUMBERS, "int64")),
    *(
        stablehlo(name, dtype)
        for name in OF_STABLEHLO[2:4]
        for dtype in (*QUANT, *NUMBERS, "int64")
    ),
    *(stablehlo("AND", dtype) for dtype in ("bool", "int8", "int16", "int32", "int64")),
    *(
        stablehlo("SHIFT_LEFT", dtype, constant="right", values=(0, 1, 7))
        for dtype in ("int8", "int16", "int32")
    ),
    *(
        node(op, dtype, BROADCASTS[shapes])
        for op in ("BITWISE_XOR", "RIGHT_SHIFT")
        for dtype in SHIFTED
        for shapes in ("equal", "channels", "both")
    ),
    node("MUL", "float32", ((2, 1, 3, 1, 2, 1, 4, 1), (1, 2, 1, 3, 1, 2, 1, 5))),
    *(node(op, dtype, WIDE) for op in TYPES for dtype in TYPES[op]),
    *(node(op, "float32", WIDE, values=(3,)) for op in ("DIV", "POW")),
    node("SUB", "int16", WIDE, scales=(0.5, 0.25, 0.5), shifts=True),
]

# SPDX-License-Identifier: Apache-2.0
"""SUB, MUL, DIV, MAXIMUM and the like: launches, refusals, and their numbers against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Node
from delegate.target import Rules
from tests.support.cases import (
    DRAWN_WAYS,
    FUSED,
    LANES_8,
    LANES_16,
    PLAIN,
    SEEDS,
    SIMT,
    Way,
    assert_exact_or_refused,
    assert_exact_way,
    changed,
    forced,
    only_launch,
    quantization,
    refusal,
    retyped,
)
from tests.support.compare import Arrays, Bounds, assert_within, inputs_for
from tests.support.factories import exact, refused
from tests.support.floats import assert_float_ways
from tests.support.model import chain_model, const, graph_of
from tests.support.pairs import BROADCASTS, MOST_DIMENSIONS, QUANT, Case, cases, every_pair
from tests.support.refusals import activated

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
DIVISORS = {
    "uint8": (1, 2, 3, 7, 119, 121, 200, 255),
    "int8": (-128, -7, -3, -2, 1, 2, 3, 5, 127),
    "int16": (-32768, -700, -3, -2, 1, 2, 3, 5, 32767),
    "int32": (-1000003, -7, -3, -2, 1, 2, 3, 5, 1000003),
    "float32": (-1000003, -7, -3, -2, 1, 2, 3, 5, 1000003),
}


def case(op: str, dtype: str = "int8", **fields: object) -> Case:
    """Return a case that divides by constants without zeros, and raises integers to the third."""
    if op in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        fields = {"constant": "right", "values": DIVISORS[dtype], **fields}
    if op == "POW" and dtype == "int32":
        fields = {"constant": "right", "values": (3,), "shapes": ((1, 7, 5, 3), (1,)), **fields}
    return Case(op=op, dtype=dtype, **fields)  # type: ignore[arg-type]


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
    vector, plain = ops.lower(case("MUL", shapes=BROADCASTS[shapes]).node(), SIMT.target)
    assert (vector.name, plain.name) == ("vector 4", "plain")
    for alternative, lanes in ((vector, 4), (plain, 1)):
        launch = only_launch(alternative)
        assert (launch.kernel, launch.defines["LANES"]) == ("binary_quant8", lanes)
        assert launch.defines["OP"] == "MULTIPLY"
        assert (launch.params["rows"], launch.params["row"]) == (rows, row)
        assert (launch.params["left_step"], launch.params["right_step"]) == steps
        assert launch.params["items"] == rows * -(-row // lanes)


def test_lanes_follow_type_and_row() -> None:
    names = {
        (dtype, shape): [a.name for a in ops.lower(node, LANES_16.target)]
        for dtype in ("uint8", "int16", "float32")
        for shape in ("one", "equal")
        for node in [Case(op="MAXIMUM", dtype=dtype, shapes=BROADCASTS[shape]).node()]
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
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    constant: str,
    rows: int,
    row: int,
    device: DeviceInfo,
) -> None:
    node = case("MUL", "int16", shapes=shapes, constant=constant).node()
    launch = only_launch(ops.lower(node, LANES_8.target)[-1])
    assert (launch.params["rows"], launch.params["row"]) == (rows, row)
    assert launch.params[f"{constant}_is_constant"] == (row == 72)
    assert len(launch.reads) == (1 if row == 72 else 2)
    for way in (LANES_8, PLAIN):
        assert_exact_way(chain_model([node]), device, way)


NODE = case("SUB").node()
NUMBER = case("DIV", "int32").node()
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
        changed(case("MUL").node(), -1, quantization=quantization(1e-12)),
        "a scale ratio of ",
    ),
    "large_squares": (
        changed(case("SQUARED_DIFFERENCE").node(), -1, quantization=quantization(1e-15)),
        "a scale ratio of ",
    ),
    "fused_tanh": activated(NODE, "TANH"),
    "fused_tanh_int32": activated(NUMBER, "TANH"),
    "computed_divisor": (
        case("FLOOR_DIV", constant="").node(),
        "the divisors are not constant",
    ),
    "zero": (changed(NUMBER, 1, data=np.zeros((1, 7, 5, 3), np.int32)), "a divisor is 0"),
    "minus_one": (case("FLOOR_MOD", "int32", values=(-1,)).node(), "a divisor is -1"),
    "quantised_by_zero": (
        case("DIV", "uint8", values=(119, 120)).node(),
        "a divisor is 120, which stands for 0",
    ),
    "quotient_of_scales": (
        case("DIV", "uint8", scales=(1.0, 1e-4, 0.1)).node(),
        "a scale ratio of 100000: not within 2^-15 and 2^15",
    ),
    "small_quotient_of_scales": (
        case("DIV", "uint8", scales=(1e-4, 10.0, 1.0)).node(),
        "a scale ratio of 1e-05: not within 2^-15 and 2^15",
    ),
    "floored_by_zero": (case("FLOOR_DIV", "int16", values=(7, 0)).node(), "a divisor is 0"),
    "floored_by_minus_one": (case("FLOOR_DIV", values=(7, -1)).node(), "a divisor is -1"),
    "modulo_zero": (case("FLOOR_MOD", values=(7, 0)).node(), "a divisor is 0"),
    "floored_uint8": (
        Case(op="FLOOR_DIV", dtype="uint8").node(),
        "uint8: only int8, int16, int32, float32 are implemented",
    ),
    "quantised_powers": (case("POW").node(), "int8: only int32, float32 are implemented"),
    "negative_power": (case("POW", "int32", values=(-1,)).node(), "an exponent is -1"),
    "computed_power": (case("POW", "int32", constant="").node(), "the exponents are not constant"),
    "many_powers": (
        case("POW", "int32", shapes=((2, 3), (3,)), values=(1, 2)).node(),
        "int32: only one exponent, which is broadcast",
    ),
    "power_of_one": (
        case("POW", "int32", shapes=((1,), (1,))).node(),
        "int32: only one exponent, which is broadcast",
    ),
    "one_input": (replace(NODE, inputs=NODE.inputs[:1]), "1 inputs: 2 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
    "dimensions": (
        case("MAXIMUM", shapes=((2, 1) * 5, (1, 2) * 5)).node(),
        "9 dimensions that differ: at most 7 are implemented",
    ),
    "shifts": (
        case("SUB", "int16", scales=(0.5, 0.25, 1.0)).node(),
        "int16 shifts by 1 and 2: one must be 0, none to the left",
    ),
    "broadcast_shifts": (
        case("SUB", "int16", scales=(0.5, 0.5, 0.5), shapes=BROADCASTS["scalar"]).node(),
        "int16 of scales that are powers of two: only equal shapes",
    ),
}

test_refusal = refused(REFUSALS, are_beginnings=True)


def test_older_runtime_divides_fewer_types() -> None:
    older = replace(SIMT.target, rules=Rules(newer_types=False))
    assert ops.lower(case("DIV", "uint8").node(), older)
    for dtype in ("int8", "int16"):
        reason = refusal(case("DIV", dtype).node(), older)
        assert reason == f"{dtype}: DIV fails in this TFLite"


KINDS = [case(op, dtype, shapes=BROADCASTS["channels"]) for op in TYPES for dtype in TYPES[op]]
CASES = [
    *KINDS,
    *(case("MUL", shapes=BROADCASTS[name]) for name in BROADCASTS if name != "channels"),
    *(case("SUB", "float32", shapes=BROADCASTS[name]) for name in ("both", "many", "pixels")),
    *(case("MAXIMUM", "int16", shapes=BROADCASTS[name]) for name in ("one", "both", "squeeze")),
    case("MUL", "float32", shapes=((7, 3, 8), (8,)), constant="right"),
    case("SUB", shapes=((48, 4, 1), (1, 17)), constant="left"),
    *(case(op, dtype, fused="RELU6") for op in ("SUB", "MUL") for dtype in ("uint8", "int32")),
    *(case("MUL", dtype, fused="RELU_N1_TO_1") for dtype in ("int16", "float32")),
    case("DIV", "int32", fused="RELU"),
    case("FLOOR_DIV", "int32", values=(-1, 1)),
    *(case("FLOOR_MOD", dtype, values=(-1, 1)) for dtype in ("int8", "int16")),
    *(case("SUB", zeros=(a, -a - 1, a)) for a in (-128, 127)),
    *(case("MUL", "uint8", zeros=(a, 255 - a, a)) for a in (0, 255)),
    *(
        case(op, scales=scales)
        for op in ("SUB", "MUL", "SQUARED_DIFFERENCE")
        for scales in ((0.5, 0.5, 0.5), (1.0, 1e-6, 1.0), (3.0, 0.7, 0.01))
    ),
    case("SUB", "int16", options={"pot_scale_int16": False}, scales=(0.5, 0.25, 0.5)),
    case("SUB", "int16", options={"pot_scale_int16": True}, scales=(0.5, 0.25, 0.5)),
    case("SUB", "int16", scales=(0.125, 0.5, 0.5), fused="RELU6"),
    case("MUL", "int16", scales=(3.0, 0.7, 0.01)),
    *(case("DIV", "uint8", fused=fused) for fused in ("RELU", "RELU6", "RELU_N1_TO_1")),
    *(case("DIV", "uint8", shapes=BROADCASTS[name]) for name in ("one", "both", "many", "pixels")),
    *(case("POW", "int32", values=(power,)) for power in (0, 1, 2, 5, 31, 64, 2**31 - 1)),
    *(case("POW", "int32", shapes=(shape, ())) for shape in ((4097,), (1, 1), (2, 3, 5, 8))),
]

test_exact = exact(CASES, [LANES_8])


@pytest.mark.parametrize("case", KINDS, ids=str)
def test_plain(case: Case, device: DeviceInfo) -> None:
    assert assert_exact_way(chain_model([case.node()]), device, PLAIN) == {"plain"}


@pytest.mark.parametrize("way", [SIMT, LANES_16], ids=str)
@pytest.mark.parametrize("shapes", BROADCASTS)
def test_every_vector(shapes: str, way: Way, device: DeviceInfo) -> None:
    (name,) = assert_exact_way(
        chain_model([case("MUL", "uint8", shapes=BROADCASTS[shapes]).node()]), device, way
    )
    assert (name == "plain") == (shapes == "one")


def test_the_same_twice(device: DeviceInfo) -> None:
    node = case("MUL").node()
    node = replace(node, inputs=(node.inputs[0],) * 2)
    assert_exact_way(chain_model([node]), device, SIMT)


COMPUTED = [
    *(case("DIV", dtype, constant="") for dtype in TYPES["DIV"]),
    *(case("FLOOR_DIV", dtype, constant="") for dtype in NUMBERS),
    *(case("FLOOR_MOD", dtype, constant="") for dtype in ("int8", "int16", "int32")),
]


@pytest.mark.parametrize("shapes", ["equal", "channels", "pixels"])
@pytest.mark.parametrize("way", [SIMT, LANES_8], ids=str)
@pytest.mark.parametrize("case", COMPUTED, ids=str)
def test_divisors_that_a_run_brings(case: Case, way: Way, shapes: str, device: DeviceInfo) -> None:
    node = replace(case, shapes=BROADCASTS[shapes]).node()
    (need,) = ops.lower(node, way.target)[0].requirements
    left, right = inputs_for(graph_of([node]))[0]
    right = np.resize(np.array(DIVISORS[case.dtype]), right.shape).astype(case.dtype)
    right[right == need.excluded] = 77
    assert_exact_way(chain_model([node]), device, way, inputs=[[left, right]])


EVERY = [
    case("SUB", "uint8", scales=(0.4015, 0.2758, 0.4322), zeros=(136, 119, 133)),
    case("SUB", scales=(0.19, 0.17, 0.05), fused="RELU"),
    case("MUL", "uint8", fused="RELU6"),
    case("MUL", scales=(0.5, 0.5, 0.5), zeros=(0, -1, 4)),
    case("SQUARED_DIFFERENCE", scales=(0.19, 0.17, 0.5)),
    case("MAXIMUM"),
    case("MINIMUM", "uint8"),
    *(case(op) for op in ("FLOOR_DIV", "FLOOR_MOD")),
    *(
        case("DIV", "uint8", scales=scales, zeros=zeros)
        for scales in ((0.1, 0.07, 0.13), (0.1, 0.1, 1.0), (0.02, 0.9, 0.5), (0.5, 0.01, 0.004))
        for zeros in ((131, 120, 125), (0, 0, 0), (255, 255, 3))
    ),
    *(
        case("DIV", scales=scales, zeros=(3, -8, -3))
        for scales in ((0.1, 0.07, 0.13), (0.02, 0.9, 0.5))
        if installed_rules().newer_types
    ),
]


@pytest.mark.parametrize("case", EVERY, ids=str)
def test_every_pair_of_inputs(case: Case, device: DeviceInfo) -> None:
    node = replace(case, shapes=((256, 256), (256, 256)), constant="").node()
    inputs = every_pair(case.dtype)
    if case.constant:
        # Constant divisors, all but what stands for 0.
        right = inputs.pop()
        zero = (case.zeros or {"uint8": (131, 120)}.get(case.dtype, (3, -8)))[1]
        right[right == (zero if case.op == "DIV" else 0)] = 77
        if case.op == "FLOOR_DIV":
            right[right == -1] = 77
        numbers = (case.scales[1], zero)
        node = replace(node, inputs=(node.inputs[0], const(right, *numbers)))
    assert_exact_way(chain_model([node]), device, LANES_8, inputs=[inputs])


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("shapes", ["equal", "channels", "pixels"])
def test_quotients_of_floats(shapes: str, fused: str, device: DeviceInfo) -> None:
    node = case("DIV", "float32", shapes=BROADCASTS[shapes], fused=fused, constant="").node()

    def bounds(inputs: Arrays) -> Bounds:
        with np.errstate(all="ignore"):
            return [2 * np.spacing(np.abs(np.divide(*inputs))).astype(np.float64)]

    assert assert_float_ways(node, device, LANES_8, bounds) == [
        "vector 4" if shapes == "pixels" else "vector 8",
        "plain",
    ]


def power_bounds(inputs: Arrays) -> Bounds:
    with np.errstate(all="ignore"):
        found = np.power(*(values.astype(np.float64) for values in inputs))
        places = np.spacing(np.abs(found.astype(np.float32))).astype(np.float64)
    return [2 * np.where(np.isfinite(places), places, 0) + float(np.finfo(np.float32).tiny)]


@pytest.mark.parametrize("way", [SIMT, LANES_8], ids=str)
def test_powers(way: Way, device: DeviceInfo) -> None:
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
    model = chain_model([case("POW", "float32", shapes=(shape, shape)).node()])
    with forced(way):
        assert_within(model, device, power_bounds, inputs=[inputs])


@pytest.mark.parametrize("shapes", ["scalar", "channels", "both", "many"])
def test_powers_of_shapes(shapes: str, device: DeviceInfo) -> None:
    node = case("POW", "float32", shapes=BROADCASTS[shapes]).node()
    assert assert_float_ways(node, device, LANES_8, power_bounds) == ["plain"]


def test_rounded_quotients_of_floats(device: DeviceInfo) -> None:
    # Quotients at integers, where the last bit decides which one the result is.
    rng = np.random.default_rng(3)
    divisors = (rng.standard_normal(4096) * 10 ** rng.uniform(-3, 3, 4096)).astype(np.float32)
    divisors[:99] *= np.float32(1e28)
    whole = rng.integers(-4000, 4000, 4096).astype(np.float32) * divisors
    node = case("FLOOR_DIV", "float32", shapes=((4096,), (4096,))).node()
    node = replace(node, inputs=(node.inputs[0], const(divisors)))
    near = [[np.nextafter(whole, np.float32(to))] for to in (-np.inf, np.inf)]
    assert_exact_way(chain_model([node]), device, LANES_8, inputs=[[whole], *near, [whole * 1e-30]])


@given(
    case=cases(("DIV", "FLOOR_DIV", "FLOOR_MOD"), TYPES["DIV"]),
    divisors=st.lists(st.integers(-32768, 32767), min_size=1, max_size=9),
    way=DRAWN_WAYS,
    seed=SEEDS,
)
def test_drawn_divisions(
    device: DeviceInfo, case: Case, divisors: list[int], way: Way, seed: int
) -> None:
    if case.dtype == "uint8":
        case = replace(case, op="DIV")
    is_quantised = case.op == "DIV" and case.dtype in QUANT
    zero = case.zeros[1] if is_quantised and case.zeros else 0
    values = np.array(divisors, np.int64).astype(case.dtype)
    values[values == zero] = 1 if zero != 1 else 2
    case = replace(case, constant="right", values=tuple(values.tolist()))
    assert_exact_or_refused(chain_model([case.node()]), device, way, seed)


@given(
    case=cases(("SUB", "MUL", "MAXIMUM", "MINIMUM"), (*QUANT, *NUMBERS)),
    squares=st.booleans(),
    general=st.booleans(),
    way=DRAWN_WAYS,
    seed=SEEDS,
)
def test_drawn(
    device: DeviceInfo, case: Case, squares: bool, general: bool, way: Way, seed: int
) -> None:
    if squares and case.dtype in ("int8", *NUMBERS):
        case = replace(case, op="SQUARED_DIFFERENCE")
    if case.op == "SUB" and case.dtype == "int16":
        # Shifts by powers of two take equal shapes and few scales: they are among CASES.
        case = replace(case, options={"pot_scale_int16": not general and _is_general(case)})
    assert_exact_or_refused(chain_model([case.node()]), device, way, seed)


def _is_general(case: Case) -> bool:
    return any(abs(np.log2(scale) - round(np.log2(scale))) > 0.01 for scale in case.scales)


ANGLE = case("ATAN2", "float32", shapes=((4, 20), (4, 20))).node()


@pytest.mark.parametrize("way", [SIMT, LANES_8], ids=str)
def test_angles(way: Way, device: DeviceInfo) -> None:
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

    model = chain_model([case("ATAN2", "float32", shapes=shapes).node()])
    with forced(way):
        assert_within(model, device, bounds, inputs=[inputs])


def test_angles_are_not_broadcast() -> None:
    node = case("ATAN2", "float32", shapes=((4, 20), (20,))).node()
    assert refusal(node) == "shapes 4x20 and 20: where they differ TFLite reads past the end"


def plain(name: str, dtype: str, shapes: object = ((4, 20), (4, 20))) -> Node:
    return replace(
        case("MUL", dtype, shapes=shapes).node(), op=f"STABLEHLO_{name}", version=1, options={}
    )


PLAIN_TYPES = {
    **dict.fromkeys(("ADD", "MULTIPLY"), ("float32", "int32", "int64")),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), (*QUANT, "float32", "int32", "int64")),
}
PLAIN_NODES = [plain(name, dtype) for name, types in PLAIN_TYPES.items() for dtype in types]


@pytest.mark.parametrize("way", [SIMT, LANES_8], ids=str)
@pytest.mark.parametrize("node", PLAIN_NODES, ids=lambda n: f"{n.op}-{n.outputs[0].dtype}")
def test_two_tensors_as_they_are(node: Node, way: Way, device: DeviceInfo) -> None:
    assert_exact_way(chain_model([node]), device, way)


@pytest.mark.parametrize("name", ["MAXIMUM", "MINIMUM"])
def test_of_zeros_and_what_is_no_number_the_left_one_is_taken(
    name: str, device: DeviceInfo
) -> None:
    left, right = np.float32([[np.nan, 1, np.nan, 0, -0.0], [1, np.nan, 2, -0.0, 0]])
    model = chain_model([plain(name, "float32", ((5,), (5,)))])
    assert_exact_way(model, device, SIMT, inputs=[[left, right]])


@pytest.mark.parametrize("way", [SIMT, LANES_8], ids=str)
@pytest.mark.parametrize("name", ["ADD", "MULTIPLY"])
def test_what_is_infinite_as_it_is_stays_infinite(name: str, way: Way, device: DeviceInfo) -> None:
    large, nothing = np.float32(3e38), np.float32(np.nan)
    left = np.resize(np.float32([large, -large, np.inf, -np.inf, nothing, 1, large]), 21)
    right = np.resize(np.float32([large, large, 2, np.inf, 1, nothing, -large]), 21)
    right[1::7] = -large if name == "ADD" else large
    model = chain_model([plain(name, "float32", ((21,), (21,)))])
    assert_exact_way(model, device, way, inputs=[[left, right]])


def test_tensors_as_they_are_are_not_broadcast() -> None:
    node = plain("ADD", "float32", ((4, 20), (20,)))
    assert refusal(node) == "4x20 -> 20: the shape must stay"
    assert refusal(plain("ADD", "int8")) == "int8: only int32, float32, int64 are implemented"


BITS = ("bool", "int8", "int16", "int32", "int64")


def shifted(dtype: str, *shifts: int) -> Node:
    """Return a node that shifts 4 x 20 numbers, by these shifts over and over."""
    node = plain("SHIFT_LEFT", dtype)
    values = np.resize(np.array(shifts), (4, 20)).astype(dtype)
    left = node.inputs[0]
    assert left is not None
    return replace(node, inputs=(left, const(values)))


BIT_NODES = [plain("AND", dtype) for dtype in BITS]
BIT_NODES += [shifted(dtype, 0, 1, 7, 8, 15, 31, 2) for dtype in BITS[1:4]]


@pytest.mark.parametrize("way", [SIMT, LANES_8], ids=str)
@pytest.mark.parametrize("node", BIT_NODES, ids=lambda n: f"{n.op}-{n.outputs[0].dtype}")
def test_bits(node: Node, way: Way, device: DeviceInfo) -> None:
    assert_exact_way(chain_model([node]), device, way)


test_refused_bits = refused(
    {
        "shape": (plain("AND", "int32", ((4, 20), (20,))), "4x20 -> 20: the shape must stay"),
        "type": (plain("AND", "float32"), "float32: only bool, int8, int16, int32, int64 are imp"),
        "computed": (plain("SHIFT_LEFT", "int32"), "the shifts are not constant"),
        "below": (shifted("int32", 1, -1), "a shift by -1: only 0 to 31"),
        "beyond": (shifted("int8", 1, 32), "a shift by 32: only 0 to 31"),
        "shift_type": (plain("SHIFT_LEFT", "int64"), "int64: only int8, int16, int32 are"),
    },
    are_beginnings=True,
)

_LEFT, _RIGHT = (2, 1, 3, 1, 2, 1, 4, 1), (1, 2, 1, 3, 1, 2, 1, 5)
DEEP = {rank: (_LEFT[:rank], _RIGHT[:rank]) for rank in (6, 7, 8)}


@pytest.mark.skipif(MOST_DIMENSIONS < 5, reason="which end tflite-runtime's process")
@pytest.mark.parametrize("way", [SIMT, LANES_8], ids=str)
@pytest.mark.parametrize("rank", DEEP)
@pytest.mark.parametrize("op", ["ADD", "MUL", "DIV", "MAXIMUM", "POW", "EQUAL"])
def test_broadcasts_of_many_dimensions(op: str, rank: int, way: Way, device: DeviceInfo) -> None:
    node = Case(op=op, dtype="int32", shapes=DEEP[rank]).node()  # type: ignore[arg-type]
    if op == "POW":
        node = replace(node, op="SUB", options={"fused_activation_function": "NONE"})
    if op == "EQUAL":
        node = replace(node, outputs=(replace(node.outputs[0], dtype="bool"),))
    left, right = (
        np.random.default_rng(3).integers(1, 9, shape).astype(np.int32) for shape in DEEP[rank]
    )
    assert_exact_way(chain_model([node]), device, way, inputs=[[left, right]])


SHIFTED = ("uint8", "int8", "int16", "int32")
BITWISE = [
    replace(Case(op=op, dtype=dtype, shapes=BROADCASTS[shapes]).node(), version=1, options={})
    for op in ("BITWISE_XOR", "RIGHT_SHIFT")
    for dtype in SHIFTED
    for shapes in ("equal", "channels", "both")
]


@pytest.mark.skipif(MOST_DIMENSIONS < 5, reason="ops that tflite-runtime lacks")
@pytest.mark.parametrize("way", [SIMT, LANES_8], ids=str)
@pytest.mark.parametrize("node", BITWISE, ids=lambda n: f"{n.op}-{n.outputs[0].dtype}")
def test_bitwise(node: Node, way: Way, device: DeviceInfo) -> None:
    rng, dtype = np.random.default_rng(3), node.outputs[0].dtype
    limits = np.iinfo(dtype)
    shapes = [each.shape for each in node.inputs if each is not None]
    left, right = (
        rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype) for shape in shapes
    )
    few = rng.integers(-3 if limits.min else 0, 35, shapes[1]).astype(dtype)
    assert_exact_way(chain_model([node]), device, way, inputs=[[left, right], [left, few]])


test_refused_bitwise = refused(
    {
        op: (Case(op=op, dtype="float32").node(), "float32: only uint8, int8, int16, int32 are")
        for op in ("BITWISE_XOR", "RIGHT_SHIFT")
    },
    are_beginnings=True,
)

NODES = {op: case(op, dtypes[0]).node() for op, dtypes in TYPES.items()}
NODES["POW"] = case("POW", "int32").node()
NODES["ATAN2"] = ANGLE
NODES |= {node.op: node for node in [*PLAIN_NODES, *BIT_NODES, *BITWISE]}
WIDE = ((4, 20), (4, 20))  # fills every vector
BUILT = [
    *PLAIN_NODES,
    *BIT_NODES,
    *BITWISE,
    Case(op="MUL", dtype="float32", shapes=DEEP[8]).node(),  # type: ignore[arg-type]
    *(case(op, dtype, shapes=WIDE).node() for op in TYPES for dtype in TYPES[op]),
    *(case(op, "float32", shapes=WIDE, values=(3,)).node() for op in ("DIV", "POW")),
    case("SUB", "int16", shapes=WIDE, scales=(0.5, 0.25, 0.5)).node(),
]

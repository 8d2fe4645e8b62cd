# SPDX-License-Identifier: Apache-2.0
"""EQUAL, LESS and the like: launches, refusals, and their answers against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from delegate import DeviceInfo, ops
from delegate.host.tflite.library import installed_rules
from delegate.target import Rules
from tests.support.cases import (
    DRAWN_WAYS,
    LANES_8,
    LANES_16,
    PLAIN,
    SEEDS,
    SIMT,
    Way,
    assert_exact_or_refused,
    assert_exact_way,
    changed,
    only_launch,
    quantization,
    refusal,
)
from tests.support.factories import exact, refused
from tests.support.model import chain_model
from tests.support.pairs import BROADCASTS, COMPARISONS, QUANT, Case, cases, every_pair

TYPES = (*QUANT, "int32", "float32")
IS_OLDER = installed_rules().older_comparisons
FAILING = ("NOT_EQUAL", "GREATER", "LESS_EQUAL") if IS_OLDER else ()  # of int16
OLDER = replace(SIMT.target, rules=Rules(older_comparisons=True))
NODE = Case(op="GREATER").node()


def test_launch() -> None:
    vector, plain = ops.lower(NODE, SIMT.target)
    left, right = NODE.inputs
    for alternative in (vector, plain):
        launch = only_launch(alternative)
        assert (launch.defines["OP"], launch.defines["RESULT"]) == ("LESS", "uchar")
        assert (launch.params["left"], launch.params["right"]) == (right, left)
        assert (launch.params["left_zero"], launch.params["right_zero"]) == (-8, 3)


@pytest.mark.parametrize(("op", "invert"), [("EQUAL", 0), ("NOT_EQUAL", 1)])
def test_not_equal_inverts(op: str, invert: int) -> None:
    launch = only_launch(ops.lower(Case(op=op).node(), SIMT.target)[0])
    assert (launch.defines["OP"], launch.params["invert"]) == ("EQUAL", invert)


def test_older_runtime_takes_int16_as_it_is() -> None:
    node = Case(op="EQUAL", dtype="int16").node()
    lifts = [
        only_launch(ops.lower(node, target)[0]).params["left_lift"]
        for target in (SIMT.target, OLDER)
    ]
    assert lifts == [256, 1]
    failing = Case(op="GREATER", dtype="int16").node()
    assert refusal(failing, OLDER) == "int16: GREATER fails in this TFLite"


REFUSALS = {
    "no_bools": (changed(NODE, -1, dtype="int8"), "int8 and int8 -> int8: they must be equal, "),
    "ordered_bools": (
        Case(op="LESS", dtype="bool").node(),
        "bool: only uint8, int8, int16, int32, int64, float32 are implemented",
    ),
    "types": (changed(NODE, 0, dtype="int32"), "int32 and int8 -> bool: they must be equal, "),
    "scale": (
        changed(NODE, 0, quantization=quantization(1.0)),
        "scale 1.0: int8 is compared at scales below 1 only",
    ),
    "no_scale": (changed(NODE, 1, quantization=None), "int8 without quantisation: "),
    "shapes": (
        changed(NODE, -1, shape=(7, 5, 3)),
        "1x7x5x3 and 1x7x5x3 -> 7x5x3: not the broadcast shape",
    ),
    "empty": (changed(NODE, 0, shape=(0,)), "shape 0: it is empty"),
    "inputs": (replace(NODE, inputs=NODE.inputs[:1]), "1 inputs: 2 expected"),
}

test_refusal = refused(REFUSALS, are_beginnings=True)

CASES = [
    *(
        Case(op=op, dtype=dtype, shapes=BROADCASTS["channels"])
        for op in COMPARISONS
        for dtype in TYPES
        if dtype != "int16" or op not in FAILING
    ),
    *(Case(op=op, dtype="bool", shapes=BROADCASTS["both"]) for op in ("EQUAL", "NOT_EQUAL")),
    *(Case(op="LESS", shapes=BROADCASTS[name]) for name in BROADCASTS if name != "channels"),
    Case(op="EQUAL", dtype="float32", constant="right", values=(0, 1)),
]

test_exact = exact(CASES, [LANES_8])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op", ["EQUAL", "LESS", "GREATER_EQUAL"])
def test_plain(op: str, dtype: str, device: DeviceInfo) -> None:
    case = Case(op=op, dtype=dtype, shapes=BROADCASTS["pixels"])
    assert assert_exact_way(chain_model([case.node()]), device, PLAIN) == {"plain"}


@pytest.mark.parametrize("op", COMPARISONS)
def test_nan_infinities_and_zeros(op: str, device: DeviceInfo) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3e38], np.float32)
    inputs = [np.repeat(values, 8), np.tile(values, 8)]
    model = chain_model([Case(op=op, dtype="float32", shapes=((64,), (64,))).node()])
    assert_exact_way(model, device, LANES_8, inputs=[inputs])


@pytest.mark.parametrize("op", ["EQUAL", "LESS", "LESS_EQUAL"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_every_pair_of_inputs(op: str, dtype: str, device: DeviceInfo) -> None:
    scales = (0.0625, 0.03125, 1.0) if dtype == "int8" else (0.11, 0.07, 1.0)
    model = chain_model(
        [Case(op=op, dtype=dtype, shapes=((256, 256), (256, 256)), scales=scales).node()]
    )
    assert_exact_way(model, device, LANES_16, inputs=[every_pair(dtype)])


@pytest.mark.parametrize("op", [op for op in COMPARISONS if op not in FAILING])
def test_equal_16_bit_numbers(op: str, device: DeviceInfo) -> None:
    rng = np.random.default_rng(5)
    left = rng.integers(-20000, 20000, 4096).astype(np.int16)
    right = np.round(left * 0.11 / 0.07).clip(-32768, 32767).astype(np.int16)
    right[::3] = left[::3]
    case = Case(op=op, dtype="int16", shapes=((4096,), (4096,)), scales=(0.11, 0.07, 1.0))
    assert_exact_way(chain_model([case.node()]), device, LANES_8, inputs=[[left, right]])


@given(case=cases(COMPARISONS, TYPES), way=DRAWN_WAYS, seed=SEEDS)
def test_drawn(device: DeviceInfo, case: Case, way: Way, seed: int) -> None:
    if case.dtype == "int16" and case.op in FAILING:
        case = replace(case, op="LESS")
    assert_exact_or_refused(chain_model([case.node()]), device, way, seed)


NODES = {op: Case(op=op).node() for op in COMPARISONS}
BUILT = [
    Case(op=op, dtype=dtype, shapes=((4, 20), (4, 20))).node()
    for op in ("EQUAL", "LESS", "LESS_EQUAL")
    for dtype in TYPES
]

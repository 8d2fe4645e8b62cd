# SPDX-License-Identifier: Apache-2.0
"""EQUAL, LESS and the like: launches, refusals, and their answers."""

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
    SIMT,
    STRATEGIES,
    changed,
    only_launch,
    quantization,
    refusal,
)
from tests.support.factories import drawn, refused
from tests.support.pairs import (
    BROADCASTS,
    COMPARISONS,
    QUANT,
    Shape,
    assert_pair_or_refused,
    every_pair,
    pairs,
)
from tests.support.suite_cases import assert_graph, from_suite
from tflite_opencl.conformance.cases.binary import pair

TYPES = (*QUANT, "int32", "float32")
IS_OLDER = installed_rules().older_comparisons
FAILING = ("NOT_EQUAL", "GREATER", "LESS_EQUAL") if IS_OLDER else ()  # of int16
OLDER = replace(SIMT.target, rules=Rules(older_comparisons=True))

test_comparisons = from_suite(*COMPARISONS)


def node(
    op: str, dtype: str = "int8", shapes: tuple[Shape, Shape] = BROADCASTS["equal"], **options: Any
) -> Node:
    return pair(op, dtype, shapes, **options).nodes[0]


NODE = node("GREATER")


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
    launch = only_launch(ops.lower(node(op), SIMT.target)[0])
    assert (launch.defines["OP"], launch.params["invert"]) == ("EQUAL", invert)


def test_older_runtime_takes_int16_as_it_is() -> None:
    equal = node("EQUAL", "int16")
    lifts = [
        only_launch(ops.lower(equal, target)[0]).params["left_lift"]
        for target in (SIMT.target, OLDER)
    ]
    assert lifts == [256, 1]
    failing = node("GREATER", "int16")
    assert refusal(failing, OLDER) == "int16: GREATER fails in this TFLite"


REFUSALS = {
    "no_bools": (changed(NODE, -1, dtype="int8"), "int8 and int8 -> int8: they must be equal, "),
    "ordered_bools": (
        node("LESS", "bool"),
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


@pytest.mark.parametrize("op", COMPARISONS)
def test_nan_infinities_and_zeros(op: str, device: DeviceInfo) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3e38], np.float32)
    inputs = [np.repeat(values, 8), np.tile(values, 8)]
    assert_graph(pair(op, "float32", ((64,), (64,))), device, LANES_8, [inputs])


@pytest.mark.parametrize("op", ["EQUAL", "LESS", "LESS_EQUAL"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_every_pair_of_inputs(op: str, dtype: str, device: DeviceInfo) -> None:
    scales = (0.0625, 0.03125, 1.0) if dtype == "int8" else (0.11, 0.07, 1.0)
    graph = pair(op, dtype, ((256, 256), (256, 256)), scales=scales)
    assert_graph(graph, device, LANES_16, [every_pair(dtype)])


@pytest.mark.parametrize("op", [op for op in COMPARISONS if op not in FAILING])
def test_equal_16_bit_numbers(op: str, device: DeviceInfo) -> None:
    rng = np.random.default_rng(5)
    left = rng.integers(-20000, 20000, 4096).astype(np.int16)
    right = np.round(left * 0.11 / 0.07).clip(-32768, 32767).astype(np.int16)
    right[::3] = left[::3]
    graph = pair(op, "int16", ((4096,), (4096,)), scales=(0.11, 0.07, 1.0))
    assert_graph(graph, device, LANES_8, [[left, right]])


test_drawn = drawn(
    pairs(COMPARISONS, TYPES if not FAILING else tuple({*TYPES} - {"int16"})),
    STRATEGIES,
    assert_pair_or_refused,
)

NODES = {op: node(op) for op in COMPARISONS}
BUILT = [
    node(op, dtype, ((4, 20), (4, 20))) for op in ("EQUAL", "LESS", "LESS_EQUAL") for dtype in TYPES
]

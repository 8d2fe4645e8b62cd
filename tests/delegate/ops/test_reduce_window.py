# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_REDUCE_WINDOW and REDUCE_WINDOW against TFLite, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node, read_model
from tests.support.cases import GROUPS, changed, retyped
from tests.support.factories import drawn, exact, refused
from tests.support.model import chain_model, const, op, t
from tflite_opencl.conformance.cases.stablehlo import reduced_windows

ONES = (1, 1)


def windows(
    shape: tuple[int, ...] = (5, 7),
    window: tuple[int, ...] = (2, 3),
    strides: tuple[int, ...] = ONES,
    between: tuple[int, ...] = ONES,
    dilations: tuple[int, ...] = ONES,
    padding: tuple[int, ...] = (0, 0, 0, 0),
    body: str = "ADD",
    dtype: str = "float32",
    initial: Any = 1,
) -> Node:
    first = const(np.array(initial, dtype))
    given = window, strides, between, dilations, padding
    made: Node = reduced_windows(t(shape, dtype), first, body, *given)
    return made


def older(how: str = "ADD", dtype: str = "int32") -> Node:
    sizes = [const(np.array(each, np.int64)) for each in ((2, 3), (2, 1), (1, 2))]
    inputs = [t((7, 9), dtype), const(np.array(5, dtype)), *sizes]
    return op("REDUCE_WINDOW", inputs, [t((3, 5), dtype)], {"reduce_function": how})


test_exact = exact(
    {
        "floats": windows(padding=(1, 0, 2, 2), initial=0.1),
        "products": windows(body="MUL", strides=(2, 2)),
        "int8": windows(body="ADD", dtype="int8", initial=120),
        "int16": windows(body="MUL", dtype="int16", initial=-77),
        "int32": windows(body="STABLEHLO_MULTIPLY", dtype="int32", initial=2**31 - 1),
        "cut": windows(body="MAXIMUM", padding=(-1, -2, 3, -1), dilations=(1, 2)),
        "between": windows(body="MINIMUM", between=(2, 3), dtype="uint8"),
        "bool": windows(body="LOGICAL_OR", dtype="bool", initial=False),
        "all": windows(body="LOGICAL_AND", dtype="int32", initial=3),
        "row": windows((40,), (40,), (1,), (1,), (1,), (39, 0)),
        "six": windows((2, 3, 2, 2, 3, 2), (1, 2, 2, 1, 2, 1), *[(1,) * 6] * 3, (0,) * 12),
        "older": older(),
        "older_any": older("ANY", "float32"),
    },
    GROUPS,
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    rank = draw(st.integers(1, 4))

    def each(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(least, most)) for _ in range(rank))

    shape, window = each(2, 7), each(1, 3)
    strides, between, dilations = each(1, 3), each(1, 2), each(1, 2)
    padding = tuple(draw(st.integers(-1, 3)) for _ in range(2 * rank))
    dtype = draw(st.sampled_from(["float32", "int32", "int8", "uint8", "int16"]))
    body = draw(st.sampled_from(["ADD", "MUL", "MINIMUM", "MAXIMUM", "LOGICAL_AND", "LOGICAL_OR"]))
    initial = draw(st.integers(0, 100))
    node = windows(shape, window, strides, between, dilations, padding, body, dtype, initial)
    hypothesis.assume(0 not in node.outputs[0].shape)
    return node


test_drawn = drawn(nodes(), GROUPS)


def test_the_body_is_read_and_written_again() -> None:
    node = read_model(chain_model([windows(body="MAXIMUM")])).nodes[0]
    assert node.body is not None
    assert [each.op for each in node.body.nodes] == ["MAXIMUM"]


NODE = windows()
test_refusal = refused(
    {
        "no_body": (
            replace(NODE, body=None),
            "the body must be one op: a sum, product, extreme or logical op",
        ),
        "another_body": (
            windows(body="SUB"),
            "the body must be one op: a sum, product, extreme or logical op",
        ),
        "int64": (
            windows(dtype="int64"),
            "int64: only uint8, int8, int16, int32, float32, bool",
        ),
        "sums_of_bool": (
            windows(dtype="bool"),
            "ADD of bool: the results would not be booleans",
        ),
        "initial": (
            changed(NODE, 1, shape=(2,), data=np.zeros(2, np.float32)),
            "initial value 2: one number is needed",
        ),
        "another_type": (retyped(NODE, "int32", [1]), "int32 in, float32 out: they must be equal"),
        "rank": (
            changed(NODE, options={"window_strides": (1,)}),
            "windows of another rank than 2",
        ),
        "stride": (
            changed(NODE, options={"window_strides": (0, 1)}),
            "a window, stride or dilation below 1",
        ),
        "large": (windows((300, 300), (200, 200)), "a window of 40000: at most 21666"),
        "function": (
            changed(older(), options={"reduce_function": "UNSUPPORTED"}),
            "function UNSUPPORTED: only ADD, MUL, MINIMUM, MAXIMUM, ALL, ANY",
        ),
        "computed": (
            changed(older(), 2, data=None),
            "windows that are constants of int64 are needed",
        ),
        "output": (changed(NODE, -1, shape=(4, 4)), "output 4x4: the inputs give 4x5"),
    }
)

NODES = {"STABLEHLO_REDUCE_WINDOW": NODE, "REDUCE_WINDOW": older()}
BUILT = [
    windows(shape, shape, shape, shape, shape, (0, 0) * len(shape), body, dtype)
    for dtype in ("float32", "int32", "int16", "int8", "uint8", "bool")
    for body in ("ADD", "MUL", "MINIMUM", "MAXIMUM", "LOGICAL_AND", "LOGICAL_OR")
    for shape in ((1,), (1, 1))
    if dtype != "bool" or body not in ("ADD", "MUL")
]

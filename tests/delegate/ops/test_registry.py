# SPDX-License-Identifier: Apache-2.0
"""The registry, and what holds for every op: a malformed node is refused, never an error."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate import Node, Quantization, Tensor, Unsupported, ops
from delegate.launch import Constant, size_bytes
from delegate.ops import _registry
from tests.support.cases import PLAIN, WAYS, Way, refusal
from tests.support.model import op, t
from tests.support.nodes import other_nodes, valid_nodes

VALID = valid_nodes("uint8")
NODES = {**VALID, **other_nodes()}
FUSED = {"conv_2d_add"}  # made by passes alone


def test_ops_are_sorted_and_known() -> None:
    assert list(ops.ops()) == sorted({node.op for node in NODES.values()} | FUSED)


def test_unknown_op() -> None:
    assert refusal(op("LSTM", [t((1,))], [t((1, 1))])) == "op LSTM is not implemented"


def test_custom_op_of_a_builtin_s_name() -> None:
    node = replace(VALID["ADD"], is_custom=True)
    assert refusal(node) == "custom op ADD is not implemented"


def test_one_function_an_op() -> None:
    with pytest.raises(ValueError, match=r"^ADD is lowered by delegate\.ops\.add already$"):
        _registry.lowers("ADD")(_registry.lower)


@pytest.mark.parametrize("name", sorted(NODES))
def test_the_plain_alternative_is_last(name: str) -> None:
    for way in WAYS:
        *others, last = ops.lower(NODES[name], way.target)
        assert last.name == ("plain" if last.launches else "view")
        assert all(alternative.name != "plain" for alternative in others)


FLOAT32 = st.floats(width=32)
DTYPES = st.sampled_from(
    ["uint8", "int8"] * 3
    + ["int16", "int32", "int64", "float16", "float32", "bool", "complex64", "string", "int4"]
    + ["bfloat16", "resource", "variant", "type_99"]
)
SHAPES = st.lists(st.integers(0, 7), max_size=5).map(tuple) | st.sampled_from(
    [(1, 7, 5, 4), (8, 3, 3, 3), (1, 2**16, 2**16, 4), (2**31 - 1,), (1, 1, 1, 1)]
)
SCALES = FLOAT32 | st.sampled_from([0.5, 1e-45, 3.4e38, 0.0, math.nan, math.inf])
OPTIONS = (
    st.integers(-3, 5)
    | st.integers(-(2**33), 2**33)
    | FLOAT32
    | st.booleans()
    | st.none()
    | st.sampled_from(["SAME", "VALID", "NONE", "RELU6", "RELU_N1_TO_1", "TANH", "DEFAULT", ""])
    | st.binary(max_size=3)
    | st.tuples(st.integers(0, 3))
    | st.lists(st.integers(0, 3), max_size=2)
)


@st.composite
def quantizations(draw: st.DrawFn) -> Quantization | None:
    count = draw(st.sampled_from([0, 1, 1, 1, 2, 4, 8]))
    return draw(
        st.none()
        | st.builds(
            Quantization,
            st.lists(SCALES, min_size=count, max_size=count).map(tuple),
            st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 300), max_size=8).map(
                tuple
            ),
            st.integers(-5, 5),
        )
    )


@st.composite
def constants(draw: st.DrawFn, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any] | None:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        return np.zeros(draw(st.integers(0, 9)), np.uint8)  # raw bytes, as the reader gives them
    if math.prod(shape) > 4096 or draw(st.booleans()):
        return None
    values = draw(st.sampled_from([0, 1, -1, 3, 100, -128, 2**31 - 1, -(2**31)]))
    with np.errstate(all="ignore"):
        return np.full(shape, values).astype(kind)


@st.composite
def tensors(draw: st.DrawFn, like: Tensor | None = None) -> Tensor:
    """Draw any tensor, or one that differs from `like` in a few fields."""
    base = like or t(draw(SHAPES), draw(DTYPES))
    fields: dict[str, Any] = {}
    what = draw(st.sets(st.sampled_from(["shape", "dtype", "quantization", "data", "is_sparse"])))
    if "shape" in what:
        fields["shape"] = draw(SHAPES)
    if "dtype" in what:
        fields["dtype"] = draw(DTYPES)
    if "quantization" in what:
        fields["quantization"] = draw(quantizations())
    if "data" in what or {"shape", "dtype"} & what:
        # A constant's values always fit its shape and type: the reader sees to that.
        shape, dtype = fields.get("shape", base.shape), fields.get("dtype", base.dtype)
        fields["data"] = draw(constants(shape, dtype))
    if "is_sparse" in what:
        fields["is_sparse"] = draw(st.booleans())
    return replace(base, **fields)


@st.composite
def malformed(draw: st.DrawFn, node: Node) -> Node:
    """Draw a node of an op: made of anything, or a valid one with a few things changed."""
    if draw(st.booleans()):
        inputs = draw(st.lists(st.none() | tensors(), max_size=4))
        outputs = draw(st.lists(tensors(), max_size=2))
        options = draw(
            st.dictionaries(
                st.sampled_from([key for node in VALID.values() for key in node.options]), OPTIONS
            )
        )
        return op(node.op, inputs, outputs, options)
    inputs = [
        draw(st.just(tensor) | st.just(tensor) | st.none() | tensors(tensor))
        for tensor in node.inputs
    ]
    outputs = [draw(st.just(tensor) | tensors(tensor)) for tensor in node.outputs]
    options = dict(node.options)
    for key in draw(st.sets(st.sampled_from([*node.options, "new_shape"]), max_size=2)):
        options[key] = draw(OPTIONS)
    return op(node.op, inputs, outputs * draw(st.sampled_from([1, 1, 1, 0, 2])), options)


@pytest.mark.parametrize("name", sorted(NODES))
@given(data=st.data(), way=st.sampled_from([way for way in WAYS if way is not PLAIN]))
@settings(max_examples=100)
def test_a_malformed_node_is_refused_or_lowers(name: str, data: st.DataObject, way: Way) -> None:
    node = data.draw(malformed(NODES[name]))
    try:
        alternatives = ops.lower(node, way.target)
    except Unsupported:
        return
    assert alternatives
    for alternative in alternatives:
        for launch in alternative.launches:
            if any(size_bytes(tensor) >= 2**24 for tensor in (*launch.reads, *launch.writes)):
                continue  # the executor refuses what no arena holds, before it reads on
            assert launch.tiles > 0
            for field, value in launch.params.items():
                if isinstance(value, Constant):
                    assert value.pack().nbytes == value.size_bytes, field
                elif isinstance(value, int):
                    assert -(2**31) <= value < 2**31, field

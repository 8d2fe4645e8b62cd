# SPDX-License-Identifier: Apache-2.0
"""Input sets, differences, and the bound of floats."""

from __future__ import annotations

import numpy as np
import pytest

from delegate.inspect import write_model
from tflite_opencl.conformance.cases._convolution import ConvCase
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.models.build import graph, node, numbers, tensor
from tflite_opencl.oracle.oracle import oracle
from tflite_opencl.oracle.values import compare, input_sets


def test_input_sets_reach_ends_within_limits() -> None:
    inputs = [
        tensor((500,), "int8", 0.5, 3),
        tensor((500,), "int32", limits=(1, 40)),
        tensor((500,), limits=(0.5, 2.0)),
        tensor((4,), "bool"),
    ]
    whole = graph([], inputs, [])
    random, ends, zeros = input_sets(whole)
    assert random[0].min() < -120
    assert random[0].max() > 120
    assert set(ends[0]) == {-128, 127}
    assert set(zeros[0]) == {3}
    for values in (random, ends, zeros):
        assert 1 <= values[1].min() <= values[1].max() <= 40
        assert 0.5 <= values[2].min() <= values[2].max() <= 2
        assert values[3].dtype == np.bool_
    assert all(map(np.array_equal, input_sets(whole)[0], random))


def test_row_indices_are_valid() -> None:
    words, columns, both = tensor((500,), "int32"), tensor((500,), "int64"), tensor((8,), "int32")
    table, flat = tensor((7, 3)), tensor((500, 1), "int32")
    nodes = [
        node("RESHAPE", [words, None], [flat]),
        node("EMBEDDING_LOOKUP", [flat, table], [tensor((500, 3))]),
        node("GATHER", [table, columns], [tensor((7, 500))], {"axis": 1}),
        node("GATHER", [table, both], [tensor((8, 3))], {"axis": 0}),
        node("GATHER", [table, both], [tensor((7, 8))], {"axis": -1}),
    ]
    inputs = [words, columns, both, table]
    whole = graph(nodes, inputs, [each.outputs[0] for each in nodes])
    for values in input_sets(whole):
        for indices, most in zip(values, (6, 2, 2), strict=False):
            assert 0 <= indices.min() <= indices.max() <= most
    assert {*input_sets(whole)[0][0]} == {*range(7)}


@pytest.mark.parametrize(("added", "least"), [(7, -7), (6, 0)])
def test_negative_indices_if_allowed(added: int, least: int) -> None:
    words, zero, count = tensor((500,), "int32"), numbers(0), numbers(added)
    is_below, moved, rows = (tensor((500,), dtype) for dtype in ("bool", "int32", "int32"))
    nodes = [
        node("LESS", [words, zero], [is_below]),
        node("ADD", [words, count], [moved]),
        node("SELECT_V2", [is_below, moved, words], [rows]),
        node(
            "GATHER", [tensor((7, 3), data=np.ones((7, 3))), rows], [tensor((500, 3))], {"axis": 0}
        ),
    ]
    whole = graph(nodes, [words], nodes[-1].outputs)
    random, ends, zeros = input_sets(whole)
    assert {*random[0]} == {*range(least, 7)}
    assert {*ends[0]} == {least, 6}
    assert {*zeros[0]} == {0}
    other = node("SELECT_V2", [is_below, words, moved], [rows])
    assert (
        input_sets(graph([*nodes[:2], other, nodes[3]], [words], nodes[-1].outputs))[1][0].max() > 6
    )


def test_table_without_axis() -> None:
    rows, table = tensor((4,), "int32"), tensor((7, 3))
    nodes = [
        node("GATHER", [table, rows], [tensor((4, 3))], {"axis": 5}),
        node("GATHER", [table], [tensor((4, 3))], {"axis": 0}),
        node("RESHAPE", [], [tensor((4, 1), "int32")]),
    ]
    whole = graph(nodes, [rows, table], [each.outputs[0] for each in nodes])
    assert input_sets(whole)[1][0].max() == 2**31 - 1


def test_difference_has_position_and_size() -> None:
    expected = np.zeros((2, 3), np.int8)
    got = expected.copy()
    got[1, 1], got[1, 2] = 5, -2
    result = compare(got, expected, None, 0, "output 0")
    assert result is not None
    assert (result.count, result.first, result.greatest, result.is_beyond) == (2, (1, 1), 5, True)
    assert str(result).startswith("output 0: 2 of 6 elements differ, by up to 5 quanta; first at")
    assert "in 1 of 2 rows" in str(result)
    tolerated = compare(got, expected, None, 5, "output 0")
    assert tolerated is not None
    assert not tolerated.is_beyond
    assert compare(expected, expected, None, 0, "") is None


def test_int64_beyond_double_precision() -> None:
    values = np.array([2**62, 1], np.int64)
    assert compare(values + np.array([1, 0]), values, None, 0, "") is not None


def test_nan_equals_only_nan() -> None:
    nan = np.array([np.nan, np.inf, 1], np.float32)
    assert compare(nan, nan, np.zeros(3), 0, "") is None
    assert compare(np.array([0, np.inf, 1], np.float32), nan, np.ones(3), 0, "") is not None
    assert compare(nan, np.array([np.nan, 1, 1], np.float32), np.ones(3), 0, "") is not None


def test_other_type_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"int8 \[2\] instead of uint8 \[2\]"):
        compare(np.zeros(2, np.int8), np.zeros(2, np.uint8), None, 0, "output 0")


def test_bound_of_convolution() -> None:
    result = ConvCase(size=(4, 4, 6), kernel=(1, 1), out_c=3).graph("float32")
    sets = input_sets(result)
    known = oracle(find_runtime(), result, write_model(result), sets)
    _, weights, bias = result.nodes[0].inputs
    assert weights is not None
    assert bias is not None
    kernel = np.abs(np.asarray(weights.data, np.float64)).reshape(3, 6)
    size = np.abs(sets[0][0].astype(np.float64)) @ kernel.T + np.abs(np.asarray(bias.data))
    wanted = 2 * np.sqrt(7) * np.spacing(size.astype(np.float32)).astype(np.float64)
    bound = known.bounds[0][0]
    assert bound is not None
    # The sum was rounded: near a power of two the spacing doubles.
    assert np.median(bound / wanted) == pytest.approx(1, rel=1e-6)


def test_same_tensor_as_both_inputs() -> None:
    both = tensor((5,))
    whole = graph([node("SQUARED_DIFFERENCE", [both, both], [tensor((5,))])])
    sets = input_sets(whole)
    known = oracle(find_runtime(), whole, write_model(whole), sets)
    assert known.bounds[0][0] is not None
    assert (known.bounds[0][0] > 0).all()


def test_moved_floats_have_no_bound() -> None:
    whole = graph([node("RELU", [tensor((5,))], [tensor((5,))])])
    known = oracle(find_runtime(), whole, write_model(whole), input_sets(whole))
    assert known.bounds[0][0] is not None
    assert not known.bounds[0][0].any()

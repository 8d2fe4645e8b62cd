# SPDX-License-Identifier: Apache-2.0
"""Bounds of floats hold for sums in any order, and detect a wrong term."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from delegate.inspect import Graph, Node, sum_bound
from tests.support.variables import counter
from tflite_opencl.conformance.cases.recurrent import lstm
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.models.build import graph, node, numbers, tensor
from tflite_opencl.oracle.bounds import float_bounds, terms_of
from tflite_opencl.oracle.oracle import run_graph

_RUN = partial(run_graph, find_runtime())


def _summed(op: str, terms: int, function: str = "") -> Graph:
    """Return the sum of int16 values, or of a function of them, as floats."""
    x = tensor((1, terms), "int16", 2.0**-15)
    y = tensor((1, terms), "int16", 2.0**-15)
    floats, total = tensor((1, terms)), tensor((1,))
    nodes = [node(function, [x], [y])] if function else []
    nodes += [
        node("DEQUANTIZE", [y if function else x], [floats]),
        node(op, [floats, numbers([1])], [total], {"keep_dims": False}),
    ]
    return graph(nodes)


# Terms: equal ones, with rounding errors of one sign, and ones that cancel.
_EQUAL = np.full((1, 7410), 32101, np.int16)
_CANCELLING = np.resize([32767, -32766, 25000, -25001], (1, 272)).astype(np.int16)


@pytest.mark.parametrize("op", ["MEAN", "SUM"])
@pytest.mark.parametrize("values", [_EQUAL, _CANCELLING], ids=["equal", "cancelling"])
@pytest.mark.parametrize("function", ["", "TANH"])
def test_bound_allows_other_order_but_no_wrong_term(
    op: str, values: np.ndarray, function: str
) -> None:
    whole, terms = _summed(op, values.shape[1], function), values.shape[1]
    (expected,) = _RUN(whole, [values])
    (bound,) = float_bounds(_RUN, whole, [values], [expected])
    assert bound is not None
    given = values if not function else 32768 * np.tanh(values / 32768.0)
    floats = (given / 32768).astype(np.float32).ravel()
    divisor = terms if op == "MEAN" else 1

    def is_taken(total: float) -> bool:
        return bool((np.abs(total - expected.astype(np.float64)) <= bound).all())

    if not function:  # otherwise the values differ from TFLite's
        assert is_taken(np.float32(np.sum(floats.reshape(-1, 2), dtype=np.float32)) / divisor)
    assert is_taken(float(expected[0]))
    exact = floats.astype(np.float64).sum()
    assert not is_taken((exact - floats[5]) / divisor)
    assert not is_taken(exact / (divisor - 1 if op == "MEAN" else 1.001)) or values is _CANCELLING


def test_error_of_reference_exceeds_random_rounding() -> None:
    whole = _summed("SUM", 7410)
    (expected,) = _RUN(whole, [_EQUAL])
    exact = (_EQUAL / 32768.0).sum()
    (bound,) = float_bounds(_RUN, whole, [_EQUAL], [expected])
    assert bound is not None
    assert 0 < abs(expected[0] - exact) < bound[0] < 2 * abs(expected[0] - exact) + 0.2


def test_node_without_outputs() -> None:
    result = counter()
    terms = {node.op: terms_of(node) for node in result.nodes}
    assert terms["ASSIGN_VARIABLE"] == terms["CALL_ONCE"] == 0 < terms["ADD"]


def _exact(one: Node, values: np.ndarray) -> np.ndarray:
    """Return the LSTM's outputs for one row in float64."""
    none = np.zeros(())  # for missing inputs
    data = [none if t is None or t.data is None else np.float64(t.data) for t in one.inputs]
    hidden = cell = np.zeros(one.outputs[0].shape[-1])
    results = []
    for x in values[0].astype(np.float64):
        sums = [data[1 + g] @ x + data[5 + g] @ hidden + data[12 + g] for g in range(4)]
        fresh, forget, _, given = (1 / (1 + np.exp(-each)) for each in sums)
        cell = forget * cell + fresh * np.tanh(sums[2])
        hidden = given * np.tanh(cell)
        results.append(hidden)
    return np.array([results])


def test_error_of_cell_near_zero_depends_on_terms() -> None:
    """TFLite's LSTM has a larger error than the rounding of its small results."""
    result = lstm("float32", (1, 20, 16, 24), "plain")
    (one,) = result.nodes
    beyond_own_size = 0
    for seed in range(6):
        values = np.random.default_rng(seed).normal(0, 1, (1, 20, 16)).astype(np.float32)
        (expected,) = _RUN(result, [values])
        (bound,) = float_bounds(_RUN, result, [values], [expected])
        assert bound is not None
        exact = _exact(one, values)
        off = np.abs(exact - expected)
        assert (off <= bound).all()
        beyond_own_size += int((off > sum_bound(np.abs(exact), terms_of(one))).sum())
        without_one = values.copy()
        without_one[0, 7, 3] = 0  # a term of each gate, in one step
        assert (np.abs(_exact(one, without_one) - expected)[0, 7] > bound[0, 7]).any()
    assert beyond_own_size

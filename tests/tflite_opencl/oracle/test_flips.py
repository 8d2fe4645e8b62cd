# SPDX-License-Identifier: Apache-2.0
"""The effect of values in the middle of two int8 values, compared with TFLite's runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate.inspect import Graph, Tensor, read_model, with_tensors, write_model
from tests.support.compare import Arrays, interpreter, invoke
from tflite_opencl.conformance.cases.recurrent import both_lstm, lstm
from tflite_opencl.conformance.cases.rnns import rnn
from tflite_opencl.oracle import flips
from tflite_opencl.oracle.flips import off_by_flips
from tflite_opencl.oracle.remembered import remembered_bounds

SHAPE = (2, 4, 13, 9)
GRAPHS = {
    "lstm": lstm("hybrid", SHAPE, "plain"),
    "asymmetric": lstm("hybrid", SHAPE, "cifg-peephole-projection-asymmetric", True),
    "norm": lstm("hybrid", SHAPE, "norm-peephole"),
    "both": both_lstm("hybrid", SHAPE, "projection", True, True),
    "auxiliary": both_lstm("hybrid", SHAPE, "plain-auxiliary"),
    "linked": both_lstm("hybrid", SHAPE, "cifg-linked-asymmetric"),
    "rnn": rnn("hybrid", SHAPE, "TANH", "BIDIRECTIONAL_SEQUENCE_RNN"),
}


def sets_of(graph: Graph, seed: int) -> list[Arrays]:
    rng = np.random.default_rng(seed)
    shapes = [each.shape for each in graph.inputs]
    return [[rng.uniform(-2, 2, each).astype(np.float32) for each in shapes] for _ in range(3)]


def run(graph: Graph, sets: list[Arrays]) -> list[Arrays]:
    try:
        interp = interpreter(write_model(graph))
    except (RuntimeError, ValueError) as error:
        pytest.skip(f"this TFLite does not run it: {error}")
    return [invoke(interp, inputs) for inputs in sets]


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_node_is_computed_like_tflite(graph: Graph) -> None:
    graph = read_model(write_model(graph))
    (node,) = graph.nodes
    sets = sets_of(graph, 2)
    parts = [flips._Run(node, part).outputs(sets) for part in flips._parts(node)]
    if node.options.get("merge_outputs"):
        parts = [[np.concatenate(each, -1) for each in zip(*parts, strict=True)]]
    off = off_by_flips(node, sets)
    for got, expected, allowed in zip(zip(*parts, strict=True), run(graph, sets), off, strict=True):
        for own, other, most in zip(got, expected, allowed, strict=True):
            assert np.all(np.abs(own - other) <= most + 2e-6)


def raised(graph: Graph, by: float) -> Graph:
    """Return the graph with slightly larger float constants."""

    def changed(tensor: Tensor) -> Tensor:
        if tensor.data is None or tensor.dtype != "float32":
            return tensor
        return replace(tensor, data=tensor.data + np.float32(by))

    return with_tensors(graph, {each: changed(each) for each in graph.tensors})


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_value_in_the_middle_is_detected(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    # With differences larger than rounding errors, values often cross a middle.
    monkeypatch.setattr(flips, "_VALUE", 5e-5)
    graph = read_model(write_model(graph))
    crossed, other = 0, raised(graph, 1e-5)
    for seed in range(8):
        sets = sets_of(graph, seed)
        off = off_by_flips(graph.nodes[0], sets)
        for got, expected, allowed in zip(run(other, sets), run(graph, sets), off, strict=True):
            for own, one, most in zip(got, expected, allowed, strict=True):
                difference = np.abs(own.astype(np.float64) - one)
                assert np.all(difference <= most + 1.5e-4)
                crossed += int((difference > 1.5e-4).any())
    assert crossed


def test_values_far_from_middles() -> None:
    (node,) = GRAPHS["norm"].nodes
    (result,) = off_by_flips(node, [[np.zeros((2, 1, 13), np.float32)]])
    assert [each.any() for each in result] == [False]


def test_order_of_outputs() -> None:
    """The directions may have states of different sizes."""
    graph = read_model(write_model(rnn("hybrid", SHAPE, "TANH", "BIDIRECTIONAL_SEQUENCE_RNN")))
    assert len(graph.outputs) == 2
    turned = replace(graph, outputs=graph.outputs[::-1])
    sets = sets_of(graph, 0)  # one direction has a value near a middle
    given = [[np.zeros(each.shape, np.float32) for each in graph.outputs] for _ in sets]
    one, other = (
        remembered_bounds(lambda *_: [], each, sets, result)
        for each, result in ((graph, given), (turned, [each[::-1] for each in given]))
    )
    assert any(not np.array_equal(*of_set) for of_set in one)
    for bounds, swapped in zip(one, other, strict=True):
        for bound, same in zip(bounds, swapped[::-1], strict=True):
            assert bound is not None
            assert same is not None
            np.testing.assert_array_equal(bound, same)

# SPDX-License-Identifier: Apache-2.0
"""SVDF: refusals, and runs whose state goes on, against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, ops
from delegate.inspect import Graph, Node, read_model, write_model
from tests.support.cases import (
    FUSED,
    GROUPS,
    SIMT,
    Strategy,
    changed,
    forced,
    only_launch,
    quantization,
)
from tests.support.compare import assert_exact, assert_within, interpreter, invoke
from tests.support.factories import refused
from tests.support.model import chain_model, remembering
from tests.support.refusals import activated
from tflite_opencl.conformance.cases.recurrent import svdf
from tflite_opencl.oracle.remembered import remembered_bounds

SHAPE = (2, 21, 9, 2, 5)
LONG = (2, 21, 9, 2, 37)  # vectors over time, and a rest


def node_of(graph: Graph) -> Node:
    """Return the one node of a graph as `lower` sees it."""
    return remembering(graph.nodes[0])


INT8, FLOAT, HYBRID = (node_of(svdf(kind, SHAPE)) for kind in ("int8", "float32", "hybrid"))


def test_a_unit_is_an_item() -> None:
    (plain,) = ops.lower(INT8, SIMT.target)
    launch = only_launch(plain)
    assert (launch.kernel, launch.params["items"]) == ("svdf_quant8", 18)
    (plain,) = ops.lower(HYBRID, SIMT.target)
    assert [each.kernel for each in plain.launches] == ["quantize_row_float", "svdf_hybrid"]


def without_next(node: Node) -> Node:
    return replace(node, outputs=node.outputs[:1])


test_refusal = refused(
    {
        "no_state": (without_next(INT8), "the state must be an input and an output"),
        "types": (
            changed(INT8, 2, dtype="int8"),
            "int8, int8, int8, int32, int16, int8: no such TFLite kernel",
        ),
        "computed": (changed(INT8, 1, data=None), "weights are not constant"),
        "activation": (
            changed(INT8, options={"fused_activation_function": "NONE"}),
            "fused activation NONE: TFLite requires RELU",
        ),
        "rank": (
            changed(FLOAT, options={"rank": 4}),
            "18 filters of rank 4: a unit has as many as the rank",
        ),
        "state": (changed(FLOAT, 4, shape=(2, 89)), "the state becomes another type or shape"),
        "input": (
            changed(FLOAT, 0, shape=(2, 20)),
            "input 2x20, weights of time 18x5: they do not fit",
        ),
        "zero_point": (
            changed(INT8, 1, quantization=quantization(0.1, 3)),
            "weights with zero point 3: it must be 0",
        ),
        "tanh": activated(FLOAT, "TANH"),
    }
)


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("shape", [SHAPE, (1, 40, 70, 1, 8)], ids=str)
def test_50_runs_of_int8_are_exact(
    shape: tuple[int, int, int, int, int], strategy: Strategy, device: DeviceInfo
) -> None:
    graph = svdf("int8", shape)
    rng = np.random.default_rng(0)
    source = graph.inputs[0].shape
    runs = [[rng.integers(-128, 128, source).astype(np.int8)] for _ in range(50)]
    with forced(strategy):
        assert_exact(write_model(graph), device, inputs=runs)


@pytest.mark.parametrize("kind", ["float32", "hybrid", "asymmetric"])
@pytest.mark.parametrize("shape", [SHAPE, LONG], ids=str)
def test_runs_of_floats_are_in_bound(
    shape: tuple[int, int, int, int, int], kind: str, device: DeviceInfo
) -> None:
    graph = svdf("float32" if kind == "float32" else "hybrid", shape, True, kind == "asymmetric")
    rng = np.random.default_rng(1)
    source = graph.inputs[0].shape
    runs = [[rng.standard_normal(source).astype(np.float32)] for _ in range(12)]
    model = write_model(graph)
    graph = read_model(model)

    def run(graph: Graph, sets: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
        made = interpreter(write_model(graph))
        return [invoke(made, inputs) for inputs in sets]

    try:
        outputs = run(graph, runs)
    except (RuntimeError, ValueError):
        pytest.skip("this TFLite does not run it")
    bounds = remembered_bounds(run, graph, runs, outputs)
    of_run = {inputs[0].tobytes(): bound for inputs, bound in zip(runs, bounds, strict=True)}
    assert_within(model, device, lambda inputs: of_run[inputs[0].tobytes()], inputs=runs)


@pytest.mark.parametrize("fused", FUSED)
def test_sums_that_are_no_finite_numbers(fused: str, device: DeviceInfo) -> None:
    bias = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 1, -1, 9, 0], np.float32)
    node = changed(FLOAT, 3, data=bias, options={"fused_activation_function": fused})
    # Without an input each sum is the bias.
    assert_exact(chain_model([node]), device, inputs=[[np.zeros((2, 21), np.float32)]])


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    if dtype != "int8":
        return []
    return [node_of(svdf("int8", (1, channels, size, 2, 3)))]


NODES = {"SVDF": INT8, "float SVDF": FLOAT, "hybrid SVDF": HYBRID}
BUILT = [
    *(node_of(svdf("float32", shape)) for shape in (SHAPE, LONG)),
    *(
        node_of(svdf("hybrid", shape, True, is_asymmetric))
        for shape in (SHAPE, LONG)
        for is_asymmetric in (False, True)
    ),
]


def test_a_file_s_node_has_one_output() -> None:
    (written,) = read_model(chain_model([INT8])).nodes
    assert [len(written.outputs), len(INT8.outputs)] == [1, 2]

# SPDX-License-Identifier: Apache-2.0
"""UNIDIRECTIONAL_SEQUENCE_LSTM and LSTM: refusals, and runs whose state goes on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, ops
from delegate.inspect import Graph, Node, read_model, write_model
from tests.support.cases import GROUPS, SIMT, Way, changed, forced, quantization
from tests.support.compare import assert_exact, assert_within, interpreter, invoke
from tests.support.factories import refused
from tests.support.model import remembering
from tflite_opencl.common.remembered import remembered_bounds
from tflite_opencl.conformance.cases.recurrent import lstm

SHAPE = (2, 3, 11, 6)


def node_of(graph: Graph) -> Node:
    """Return the one node of a graph as `lower` sees it."""
    return remembering(graph.nodes[0])


INT8, FLOAT = (node_of(lstm(kind, SHAPE, "plain")) for kind in ("int8", "float32"))
SINGLE = node_of(lstm("int8", SHAPE, "plain", op="LSTM"))
PROJECTED = [
    node_of(lstm(kind, SHAPE, form)) for kind in ("int8", "float32")
    for form in ("cifg", "projection", "cifg-peephole-projection")
]  # fmt: skip


def test_a_step_is_a_launch() -> None:
    (plain,) = ops.lower(INT8, SIMT.target)
    assert [launch.kernel for launch in plain.launches] == ["lstm_quant8"] * 3
    (plain,) = ops.lower(SINGLE, SIMT.target)
    assert [launch.kernel for launch in plain.launches] == ["lstm_quant8"]
    (plain,) = ops.lower(PROJECTED[1], SIMT.target)
    pair = ["lstm_quant8", "lstm_projection_quant8"]
    assert [launch.kernel for launch in plain.launches] == pair * 3


test_refusal = refused(
    {
        "basic": (
            changed(SINGLE, options={"kernel_type": "BASIC"}),
            "the basic kernel is not implemented",
        ),
        "no_state": (
            replace(INT8, outputs=INT8.outputs[:1]),
            "two variable tensors and what they become are needed",
        ),
        "intermediates": (replace(INT8, intermediates=()), "0 intermediate tensors: 5 are needed"),
        "norm": (
            replace(INT8, inputs=(*INT8.inputs[:20], INT8.inputs[12], *INT8.inputs[21:])),
            "layer normalisation is not implemented",
        ),
        "hybrid": (
            changed(FLOAT, 1, dtype="int8"),
            "float32 with int8 weights: float32, or int8 with int16 cells",
        ),
        "scale": (
            changed(INT8, 19, quantization=quantization(0.001)),
            f"cells of scale {float(np.float32(0.001))}: no power of two from 2^-15 to 2^-9",
        ),
        "activation": (
            changed(FLOAT, options={"fused_activation_function": "NONE"}),
            "fused activation NONE: only TANH, RELU, RELU6",
        ),
        "computed": (changed(INT8, 3, data=None), "weights are not constant"),
        "long": (node_of(lstm("int8", (1, 1001, 2, 1), "plain")), "1001 steps: more than 1000"),
        "state": (changed(FLOAT, 19, shape=(2, 5)), "a tensor 2x5: the others give (2, 6)"),
    }
)


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("form", ["plain", "cifg-peephole-projection"])
def test_50_runs_of_int8_are_exact(form: str, way: Way, device: DeviceInfo) -> None:
    graph = lstm("int8", SHAPE, form)
    rng = np.random.default_rng(0)
    source = graph.inputs[0].shape
    runs = [[rng.integers(-128, 128, source).astype(np.int8)] for _ in range(50)]
    with forced(way):
        assert_exact(write_model(graph), device, inputs=runs)


@pytest.mark.parametrize("is_time_major", [False, True], ids=["batch_major", "time_major"])
@pytest.mark.parametrize("form", ["peephole", "projection"])
def test_int8_in_both_orders(form: str, is_time_major: bool, device: DeviceInfo) -> None:
    assert_exact(write_model(lstm("int8", SHAPE, form, is_time_major)), device)


@pytest.mark.parametrize("activation", ["TANH", "RELU6"])
@pytest.mark.parametrize("form", ["plain", "cifg-peephole-projection"])
def test_runs_of_floats_are_in_bound(form: str, activation: str, device: DeviceInfo) -> None:
    graph = lstm("float32", SHAPE, form)
    rng = np.random.default_rng(1)
    source = graph.inputs[0].shape
    runs = [[rng.uniform(-1, 1, source).astype(np.float32)] for _ in range(4)]
    own = changed(graph.nodes[0], options={"fused_activation_function": activation})
    model = write_model(replace(graph, nodes=(own,)))
    graph = read_model(model)

    def run(graph: Graph, sets: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
        made = interpreter(write_model(graph))
        return [invoke(made, inputs) for inputs in sets]

    bounds = remembered_bounds(run, graph, runs, run(graph, runs))
    of_run = {inputs[0].tobytes(): bound for inputs, bound in zip(runs, bounds, strict=True)}
    assert_within(model, device, lambda inputs: of_run[inputs[0].tobytes()], inputs=runs)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    if dtype != "int8":
        return []
    shape = (1, min(size, 3), channels, size)
    single = lstm("int8", shape, "projection", op="LSTM")
    return [node_of(lstm("int8", shape, "plain")), node_of(single)]


NODES = {"UNIDIRECTIONAL_SEQUENCE_LSTM": INT8, "LSTM": SINGLE, "float LSTM": FLOAT}
BUILT = [
    FLOAT,
    *PROJECTED,
    changed(FLOAT, options={"fused_activation_function": "RELU"}),
]

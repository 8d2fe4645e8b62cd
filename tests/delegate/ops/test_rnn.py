# SPDX-License-Identifier: Apache-2.0
"""RNN and the sequences of it, in one direction and both: refusals, runs whose state goes on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Graph, Node, write_model
from delegate.target import Rules, Target
from tests.support.cases import GROUPS, SIMT, Strategy, changed, forced, refusal
from tests.support.compare import assert_exact, interpreter, invoke
from tests.support.factories import refused
from tests.support.model import remembering
from tests.support.refusals import activated
from tests.support.remembering import assert_runs, drawn
from tests.support.tiers import where_rows_are_known
from tflite_opencl.conformance.cases.rnns import rnn

AARCH64 = Rules(processor="aarch64", rows_round_by_adding=False)
SHAPE = (2, 3, 11, 6)
SINGLE, SEQUENCE, BOTH = OPS = (
    "RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"
)  # fmt: skip
KINDS = ["float32", pytest.param("hybrid", marks=where_rows_are_known)]


def node_of(graph: Graph) -> Node:
    """Return the one node of a graph as `lower` sees it."""
    return remembering(graph.nodes[0])


FLOATS = [node_of(rnn("float32", SHAPE, "TANH", op)) for op in OPS]
LINKED = node_of(rnn("float32", SHAPE, "TANH", BOTH, "-linked"))
HYBRIDS = [
    node_of(rnn("hybrid", SHAPE, function, SEQUENCE, form))
    for function, form in (("TANH", ""), ("RELU", "-asymmetric"), ("NONE", ""))
]


def kernels_of(node: Node) -> list[str]:
    """Return what a node launches, one after the other."""
    (plain,) = ops.lower(node, SIMT.target)
    return [launch.kernel for launch in plain.launches]


def test_a_step_is_a_launch() -> None:
    assert [len(kernels_of(node)) for node in FLOATS] == [1, 3, 6]
    # The rows of all inputs become int8 at once, those of the state at each step.
    assert kernels_of(HYBRIDS[0]) == [
        "quantize_row_float",
        *["quantize_row_float", "rnn_hybrid"] * 3,
    ]


test_refusal = refused(
    {
        "no_state": (
            replace(FLOATS[0], outputs=FLOATS[0].outputs[:1]),
            "states must be inputs and outputs",
        ),
        "types": (
            changed(FLOATS[1], 1, dtype="int8"),
            "float32 with int8 weights: float32 with float32 or int8",
        ),
        "computed": (changed(FLOATS[1], 1, data=None), "weights are not constant"),
        "activation": activated(FLOATS[1], "SIGN_BIT"),
        "rank": (changed(FLOATS[1], 0, shape=(2, 11)), "input 2x11: rank 3 is needed"),
        "weights": (changed(FLOATS[1], 2, shape=(6, 5)), "weights 6x11, 6x5: they do not fit"),
        "depth": (
            changed(FLOATS[1], 0, shape=(2, 3, 10)),
            "input 2x3x10, weights 6x11: they do not fit",
        ),
        "state": (
            changed(FLOATS[1], 3, shape=(5,)),
            "a bias and a state 5, 2x6: the others give (2, 6)",
        ),
        "time_major": (
            node_of(rnn("hybrid", SHAPE, "RELU", BOTH, "-time_major")),
            "time_major: TFLite repeats all steps at each step",
        ),
        "one_link": (
            replace(LINKED, inputs=(*LINKED.inputs[:11], None)),
            "an auxiliary input and weights of both directions need each other",
        ),
        "link_shape": (
            changed(LINKED, 10, shape=(6, 5)),
            "an auxiliary input and its weights 2x3x12, 6x5: they do not fit",
        ),
        **{
            f"linked_{kind}{form}": (
                node_of(rnn(kind, SHAPE, "RELU", BOTH, f"-linked{form}")),
                "weights of an auxiliary input: TFLite is wrong where steps come first or they "
                "are int8",
            )
            for kind, form in (("hybrid", ""), ("float32", "-time_major"))
        },
        "long": (
            node_of(rnn("float32", (1, 1001, 2, 1), "TANH", SEQUENCE)),
            "1001 steps: more than 1000",
        ),
    }
)


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
def test_sums_that_are_rounded_once(strategy: Strategy, device: DeviceInfo) -> None:
    """As on aarch64. Rows are whole numbers with a scale of 1; the state is 0 at first."""
    shape = rows, _, depth, units = 3, 1, 31, 40
    graph = rnn("hybrid", shape, "NONE", SINGLE)
    weights, bias = (each for each in graph.tensors if each.shape in ((units, depth), (units,)))
    assert weights.data is not None
    assert weights.quantization is not None
    values = np.random.default_rng(1).integers(-126, 127, (rows, depth)).astype(np.float32)
    values[:, 0] = 127
    model = write_model(graph)
    with forced(replace(strategy, facts={**strategy.facts, "rules": AARCH64})):
        delegate = OpenCLDelegate(model, device.index, tune="off")
        (found,) = invoke(interpreter(model, delegate), [values])
    sums = values.astype(np.int64) @ weights.data.T.astype(np.int64)
    products = sums * np.longdouble(weights.quantization.scale[0])
    once = (products + bias.data).astype(np.float32)
    assert np.sum(once != products.astype(np.float32) + bias.data) > units // 8, (
        "nothing was compared"
    )
    np.testing.assert_array_equal(found, once)


def test_rows_that_dot_products_round_otherwise() -> None:
    node = node_of(rnn("hybrid", (4, 2, 16, 10), "NONE", SINGLE))
    reason = "hybrid: how sums of 4 rows are rounded is the processor's"
    assert refusal(node, Target(rules=AARCH64)) == reason
    row_by_row = node_of(rnn("hybrid", (4, 2, 16, 10), "NONE", SEQUENCE))
    assert ops.lower(row_by_row, Target(rules=AARCH64))


@where_rows_are_known
@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("form", ["", "-asymmetric"])
def test_50_hybrid_runs_are_exact(form: str, strategy: Strategy, device: DeviceInfo) -> None:
    graph = rnn("hybrid", SHAPE, "RELU6", SEQUENCE, form)
    rng = np.random.default_rng(0)
    shape = graph.inputs[0].shape
    runs = [[rng.standard_normal(shape).astype(np.float32)] for _ in range(50)]
    with forced(strategy):
        assert_exact(write_model(graph), device, inputs=runs)


@pytest.mark.parametrize("function", ["NONE", "TANH"])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("kind", KINDS)
def test_50_runs_with_resets(kind: str, op: str, function: str, device: DeviceInfo) -> None:
    assert_runs(rnn(kind, SHAPE, function, op), device, (20, 10, 5, 15))


@where_rows_are_known
@pytest.mark.parametrize("form", ["-merged", "-asymmetric"])
def test_both_directions(form: str, device: DeviceInfo) -> None:
    assert_runs(rnn("hybrid", SHAPE, "RELU", BOTH, form), device, (4, 3))


@pytest.mark.parametrize("form", ["-linked", "-auxiliary", "-auxiliary-time_major"])
def test_an_auxiliary_input(form: str, device: DeviceInfo) -> None:
    assert_runs(rnn("float32", SHAPE, "TANH", BOTH, form), device, (4, 3))


def test_merged_outputs_of_floats(device: DeviceInfo) -> None:
    assert_runs(rnn("float32", SHAPE, "TANH", BOTH, "-merged-time_major"), device, (4, 3))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_drawn(kind: str, seed: int, device: DeviceInfo) -> None:
    rows, steps, depth, units = drawn(seed, 3, 4, 70, 40)
    graph = rnn(kind, (rows, steps, depth, units), "TANH" if seed % 2 else "RELU", BOTH)
    assert_runs(graph, device, (3, 2), seed)


NODES = {
    **dict(zip(OPS, FLOATS, strict=True)),
    "hybrid RNN": HYBRIDS[0],
    "asymmetric RNN": HYBRIDS[1],
}
BUILT = [*FLOATS, LINKED, *HYBRIDS, node_of(rnn("float32", SHAPE, "RELU6", SEQUENCE))]

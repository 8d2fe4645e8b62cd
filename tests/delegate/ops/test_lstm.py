# SPDX-License-Identifier: Apache-2.0
"""LSTM and the sequences of them, in one direction and both: refusals, runs whose state goes on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.errors import Unsupported
from delegate.inspect import Graph, Node, Quantization, write_model
from delegate.target import Rules
from tests.support.cases import (
    AMX,
    ARM_OR_OTHER,
    GROUPS,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    VNNI,
    X86,
    Strategy,
    changed,
    forced,
    quantization,
    require_isa,
)
from tests.support.compare import RUNTIME, assert_exact, interpreter, invoke
from tests.support.factories import refused
from tests.support.floats import kinds
from tests.support.model import remembering
from tests.support.remembering import assert_runs, drawn
from tests.support.tiers import where_rows_are_known
from tflite_opencl.conformance.cases.recurrent import basic_lstm, both_lstm, lstm
from tflite_opencl.models.build import graph as graph_of

Floats = NDArray[np.float32]
SHAPE = (2, 3, 11, 6)
KINDS = ["float32", pytest.param("hybrid", marks=where_rows_are_known)]


def node_of(graph: Graph) -> Node:
    """Return the one node of a graph as `lower` sees it."""
    return remembering(graph.nodes[0])


INT8, FLOAT, HYBRID = (node_of(lstm(k, SHAPE, "plain")) for k in ("int8", "float32", "hybrid"))
SINGLE = node_of(lstm("int8", SHAPE, "plain", op="LSTM"))
WIDE = (2, 3, 70, 17)  # a matrix of gates has a block of channels, and a rest
WIDE_HYBRID = node_of(lstm("hybrid", WIDE, "plain"))
PRODUCTS = (PLAIN, SIMT, LANES_8, LANES_16, *X86, AMX, *ARM_OR_OTHER)
BASIC = node_of(basic_lstm((2, 11, 6)))
PROJECTED = [
    node_of(lstm(kind, SHAPE, form)) for kind in ("int8", "float32", "hybrid")
    for form in ("cifg", "projection", "cifg-peephole-projection")
]  # fmt: skip


NORMAL = node_of(lstm("int8", SHAPE, "norm"))
NORMALISED = [
    node_of(lstm(kind, SHAPE, form)) for kind in ("float32", "hybrid")
    for form in ("norm", "cifg-norm-projection", "norm-asymmetric")
]  # fmt: skip
LINKED = [node_of(both_lstm(kind, SHAPE, "plain-linked")) for kind in ("float32", "hybrid")]
BOTH = [node_of(both_lstm(kind, SHAPE, "plain")) for kind in ("float32", "hybrid")]


def test_a_step_is_a_launch() -> None:
    (plain,) = ops.lower(INT8, SIMT.target)
    assert [launch.kernel for launch in plain.launches] == ["lstm_quant8"] * 3
    (plain,) = ops.lower(SINGLE, SIMT.target)
    assert [launch.kernel for launch in plain.launches] == ["lstm_quant8"]
    (plain,) = ops.lower(PROJECTED[1], SIMT.target)
    pair = ["lstm_quant8", "lstm_projection_quant8"]
    assert [launch.kernel for launch in plain.launches] == pair * 3


def test_tflite_runtime_s_linked_lstms_are_left() -> None:
    older = replace(SIMT.target, rules=Rules(linked_lstms=False))
    with pytest.raises(Unsupported, match="this TFLite reads past it"):
        ops.lower(LINKED[0], older)


def kernels_of(node: Node) -> list[str]:
    """Return what a node launches in the plain way, one after the other."""
    return [launch.kernel for launch in ops.lower(node, SIMT.target)[-1].launches]


def test_a_step_is_several_launches() -> None:
    own = ["quantize_row_float", "lstm_sums_hybrid", "lstm_cells_float"]
    # The rows of all inputs become int8 at once.
    assert kernels_of(HYBRID) == ["quantize_row_float", *own * 3]
    assert kernels_of(BOTH[1]) == ["quantize_row_float", *own * 6]
    assert kernels_of(LINKED[1]) == [*["quantize_row_float"] * 2, *own * 6]
    normalised = ["lstm_sums_float", "lstm_cells_float", "lstm_output_float"]
    assert kernels_of(NORMALISED[0]) == normalised * 3
    assert kernels_of(NORMAL) == [each.replace("float", "quant8") for each in normalised] * 3


def test_inputs_of_all_steps_are_one_product() -> None:
    rows, product = "quantize_row_float", "fully_connected_vnni_hybrid"
    first, *_, plain = ops.lower(WIDE_HYBRID, VNNI.target)
    step = [rows, product, "lstm_cells_float"]
    assert [launch.kernel for launch in first.launches] == [rows, product, *step * 3]
    assert (first.name, plain.name) == ("vnni 2x32", "plain")
    # Steps share their weights, and what lies between launches.
    steps = [launch for launch in first.launches if launch.kernel == product][1:]
    assert len({launch.params["weights"] for launch in steps}) == 1
    assert [launch.reads for launch in steps] == [steps[0].reads] * 3
    for form in ("peephole", "norm", "cifg-norm-projection"):
        assert len(ops.lower(node_of(lstm("hybrid", WIDE, form)), VNNI.target)) == 1
    assert len(ops.lower(LINKED[1], VNNI.target)) == 1


test_refusal = refused(
    {
        "basic_uint8": (
            changed(BASIC, 0, dtype="uint8"),
            "the basic kernel of uint8: TFLite's rounding depends on the CPU",
        ),
        "basic_types": (changed(BASIC, 4, dtype="int16"), "int16: only float32 is implemented"),
        "basic_state": (
            replace(BASIC, outputs=BASIC.outputs[:4]),
            "states must be inputs and outputs",
        ),
        "basic_shape": (changed(BASIC, 3, shape=(23,)), "a tensor 23: the others give (24,)"),
        "no_state": (
            replace(INT8, outputs=INT8.outputs[:1]),
            "states must be inputs and outputs",
        ),
        "intermediates": (replace(INT8, intermediates=()), "0 intermediate tensors: 5 are needed"),
        "norm": (
            replace(NORMAL, intermediates=(None, *NORMAL.intermediates[1:])),
            "a gate without an intermediate tensor: its scale is needed",
        ),
        "norm_types": (
            replace(INT8, inputs=(*INT8.inputs[:20], *INT8.inputs[12:16])),
            "int32: int16 is needed with int8",
        ),
        "norm_scale": (
            changed(NORMAL, 20, quantization=quantization(2.0**17, 0)),
            "a scale ratio of 2^18: more than 2^16",
        ),
        "some_norms": (
            replace(FLOAT, inputs=(*FLOAT.inputs[:20], FLOAT.inputs[12], *FLOAT.inputs[21:])),
            "1 coefficients of normalisation: 4 are needed",
        ),
        "types": (changed(FLOAT, 1, dtype="int8"), "float32: int8 is needed with float32"),
        "int16": (
            changed(FLOAT, 1, dtype="int16"),
            "float32 with int16 weights: float32 with float32 or int8, or int8 with int16 cells",
        ),
        "scales": (
            changed(HYBRID, 2, quantization=Quantization((0.1, 0.2), (0, 0))),
            "2 scales: only one per tensor here",
        ),
        "zero_point": (
            changed(HYBRID, 2, quantization=quantization(0.1, 3)),
            "weights with zero point 3: it must be 0",
        ),
        "merged": (
            node_of(both_lstm("float32", SHAPE, "plain", True)),
            "merged outputs of several rows: TFLite uses other rows' states",
        ),
        "auxiliary_left_out": (
            replace(LINKED[0], inputs=(*LINKED[0].inputs[:39], None, *LINKED[0].inputs[40:])),
            "weights of an auxiliary input that is left out",
        ),
        "auxiliary_weights": (
            replace(LINKED[0], inputs=(*LINKED[0].inputs[:47], None)),
            "3 auxiliary weights: 4 are needed",
        ),
        "auxiliary_shape": (
            changed(LINKED[0], 39, shape=(2, 4, 12)),
            "a tensor 2x4x12: the others give (2, 3, 12)",
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


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize(
    "form", ["plain", "cifg-peephole-projection", "norm-peephole", "cifg-norm-projection"]
)
def test_50_runs_of_int8_are_exact(form: str, strategy: Strategy, device: DeviceInfo) -> None:
    graph = lstm("int8", SHAPE, form)
    rng = np.random.default_rng(0)
    source = graph.inputs[0].shape
    runs = [[rng.integers(-128, 128, source).astype(np.int8)] for _ in range(50)]
    with forced(strategy):
        assert_exact(write_model(graph), device, inputs=runs)


@pytest.mark.parametrize("form", ["plain", "norm", "cifg-norm-projection", "norm-peephole"])
def test_50_runs_of_int8_with_resets(form: str, device: DeviceInfo) -> None:
    assert_runs(lstm("int8", SHAPE, form), device, (20, 10, 5, 15))


def test_normalised_sums_far_from_0(device: DeviceInfo) -> None:
    # 34 is no power of two: TFLite's variance comes out below 0, and products beyond 32 bits.
    (node,) = lstm("int8", (1, 3, 7, 34), "norm").nodes
    inputs = [*node.inputs]
    for gate in range(4):
        for place, least, scale in ((1, 100, 0.01), (20, 30_000, 3e-5)):
            tensor = inputs[place + gate]
            assert tensor is not None
            assert tensor.data is not None
            data = least + (tensor.data & 1)
            inputs[place + gate] = replace(tensor, data=data, quantization=quantization(scale, 0))
    graph = graph_of([replace(node, inputs=tuple(inputs))])
    runs = [[np.full((1, 3, 7), value, np.int8)] for value in (127, 90, 60)]
    assert_exact(write_model(graph), device, inputs=runs)


@pytest.mark.parametrize("is_time_major", [False, True], ids=["batch_major", "time_major"])
@pytest.mark.parametrize("form", ["peephole", "projection"])
def test_int8_in_both_orders(form: str, is_time_major: bool, device: DeviceInfo) -> None:
    assert_exact(write_model(lstm("int8", SHAPE, form, is_time_major)), device)


@pytest.mark.parametrize("activation", ["TANH", "RELU6"])
@pytest.mark.parametrize("form", ["plain", "cifg-peephole-projection", "norm-peephole"])
@pytest.mark.parametrize("kind", KINDS)
def test_runs_of_floats_are_in_bound(
    kind: str, form: str, activation: str, device: DeviceInfo
) -> None:
    graph = lstm(kind, SHAPE, form)
    own = changed(graph.nodes[0], options={"fused_activation_function": activation})
    assert_runs(replace(graph, nodes=(own,)), device, (4, 4))


def _of_odd_rows(graph: Graph, device: DeviceInfo) -> list[tuple[Floats, Floats]]:
    """Return our outputs and the reference's, of rows with what is not finite, each from zeros."""
    model = write_model(graph)
    found: list[tuple[Floats, Floats]] = []
    delegate = OpenCLDelegate(model, device.index, tune="off", min_nodes_per_partition=0)
    made = interpreter(model), interpreter(model, delegate)
    for odd in ([np.inf], [-np.inf], [np.nan], [3e38], [np.inf, -np.inf]):
        values = np.random.default_rng(0).normal(size=graph.inputs[0].shape).astype(np.float32)
        values[..., : len(odd)] = odd
        given = [values, *(np.zeros(each.shape, np.float32) for each in graph.inputs[1:])]
        theirs, ours = (invoke(each, given) for each in made)
        found += zip(ours, theirs, strict=True)
        for each in made:
            each.reset_all_variables()
    assert delegate.partitions == [[0]]
    return found


@pytest.mark.parametrize("form", ["plain", "cifg", "peephole", "projection", "norm"])
def test_what_is_not_finite_is_tflite_s_without_clips(form: str, device: DeviceInfo) -> None:
    graph = lstm("float32", SHAPE, form)
    own = changed(graph.nodes[0], options={"cell_clip": 0.0, "proj_clip": 0.0})
    pairs = _of_odd_rows(replace(graph, nodes=(own,)), device)
    assert any(kinds(theirs).any() for _, theirs in pairs)
    for ours, theirs in pairs:
        np.testing.assert_array_equal(kinds(ours), kinds(theirs))


@pytest.mark.parametrize("form", ["plain", "projection"])
def test_a_nan_that_is_clipped_stays_one(form: str, device: DeviceInfo) -> None:
    """TFLite makes the clip of it, as docs/ops.md says; all else is the same."""
    pairs = _of_odd_rows(lstm("float32", SHAPE, form), device)
    differ = [(ours, theirs, kinds(ours) != kinds(theirs)) for ours, theirs in pairs]
    assert any(places.any() for *_, places in differ)
    for ours, theirs, places in differ:
        assert np.isnan(ours[places]).all()
        assert np.isfinite(theirs[places]).all()


@pytest.mark.parametrize("shape", [(2, 11, 6), (1, 1, 1), (3, 40, 33)])
def test_runs_of_the_basic_kernel(shape: tuple[int, int, int], device: DeviceInfo) -> None:
    assert_runs(basic_lstm(shape), device, (6, 4))


@where_rows_are_known
@pytest.mark.parametrize("form", ["plain", "cifg-norm-projection", "peephole-asymmetric"])
def test_50_hybrid_runs_with_resets(form: str, device: DeviceInfo) -> None:
    assert_runs(lstm("hybrid", SHAPE, form), device, (20, 10, 5, 15))


@where_rows_are_known
@pytest.mark.parametrize("strategy", PRODUCTS, ids=str)
@pytest.mark.parametrize("form", ["plain", "projection", "cifg-asymmetric"])
def test_sums_of_gates_are_products(form: str, strategy: Strategy, device: DeviceInfo) -> None:
    require_isa(strategy, device)
    with forced(strategy):
        assert_runs(lstm("hybrid", WIDE, form), device, (3, 2))


@where_rows_are_known
@pytest.mark.parametrize("seed", range(6))
def test_drawn_hybrid_lstms(seed: int, device: DeviceInfo) -> None:
    rows, steps, depth, cells = drawn(seed, 3, 4, 70, 40)
    forms = ("plain", "cifg", "peephole", "projection", "norm", "cifg-norm-projection")
    form = forms[seed % len(forms)] + ("-asymmetric" if seed % 2 else "")
    graph = lstm("hybrid", (rows, steps, depth, cells), form, seed % 3 == 0)
    assert_runs(graph, device, (3, 2), seed)


@pytest.mark.parametrize("is_merged", [False, True], ids=["apart", "merged"])
@pytest.mark.parametrize("form", ["plain", "cifg-peephole-projection", "projection-asymmetric"])
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind: str, form: str, is_merged: bool, device: DeviceInfo) -> None:
    # Merged outputs of several rows are right in TFLite where steps come first.
    assert_runs(both_lstm(kind, SHAPE, form, is_merged, is_merged), device, (4, 3))


@pytest.mark.parametrize("is_time_major", [False, True], ids=["batch_major", "time_major"])
@pytest.mark.parametrize("form", ["auxiliary", "linked", "cifg-linked", "asymmetric-linked"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_auxiliary_input(kind: str, form: str, is_time_major: bool, device: DeviceInfo) -> None:
    if "linked" in form and RUNTIME.name == "tflite-runtime":
        pytest.skip("tflite-runtime reads past the auxiliary input")
    assert_runs(both_lstm(kind, SHAPE, form, False, is_time_major), device, (4, 3))


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    if dtype != "int8":
        return []
    shape = (1, min(size, 3), channels, size)
    single = lstm("int8", shape, "projection", op="LSTM")
    return [node_of(lstm("int8", shape, "plain")), node_of(single)]


NODES = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": INT8,
    "LSTM": SINGLE,
    "BIDIRECTIONAL_SEQUENCE_LSTM": BOTH[0],
    "float LSTM": FLOAT,
    "basic LSTM": BASIC,
    "hybrid LSTM": HYBRID,
    "normalised LSTM": NORMALISED[0],
    "normalised LSTM of int8": NORMAL,
}
BUILT = [
    FLOAT,
    HYBRID,
    WIDE_HYBRID,
    *PROJECTED,
    NORMAL,
    *NORMALISED,
    *LINKED,
    *(
        changed(node, options={"fused_activation_function": "RELU"})
        for node in (FLOAT, HYBRID, *NORMALISED)
    ),
]

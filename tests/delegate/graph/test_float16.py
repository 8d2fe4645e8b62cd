# SPDX-License-Identifier: Apache-2.0
"""FLOAT16 tensors: every op on them, rounding, and who runs what the delegate leaves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from delegate import DeviceInfo, Model, OpenCLDelegate, ops
from delegate.graph.float16 import has_float16, widened
from delegate.host.tflite.library import installed_rules
from delegate.host.tflite.reference import reference_outputs
from delegate.inspect import Graph, write_model
from delegate.isa import FP16, FP16_STORAGE
from delegate.launch import Alternative
from delegate.target import Target
from tests.support.compare import RUNTIME, interpreter, invoke
from tests.support.model import const, graph_of, op, t
from tflite_opencl.conformance.cases import float16
from tflite_opencl.models.build import Case
from tflite_opencl.oracle.oracle import oracle
from tflite_opencl.oracle.values import compare, input_sets

CASES = [*float16.cases()]
CONV = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
pytestmark = pytest.mark.skipif(
    RUNTIME.name != "ai-edge-litert", reason="tflite-runtime has no CAST of float16"
)


def half(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(0, 0.3, shape).astype(np.float16)


def mixed() -> Graph:
    """Return a graph of float32 and float16, whose SOFTMAX is the last node of float16."""
    x, positive, narrow = t((1, 4, 4, 8)), t((1, 4, 4, 8)), t((1, 4, 4, 8), "float16")
    deep, shares, y = t((1, 4, 4, 5), "float16"), t((1, 4, 4, 5), "float16"), t((1, 4, 4, 5))
    cast = {"in_data_type": "float32", "out_data_type": "float16"}
    return graph_of(
        [
            op("RELU", [x], [positive]),
            op("CAST", [positive], [narrow], cast),
            op("CONV_2D", [narrow, const(half(5, 3, 3, 8)), const(half(5))], [deep], CONV),
            op("SOFTMAX", [deep], [shares], {"beta": 1.0}),
            op("DEQUANTIZE", [shares], [y]),
        ]
    )


def assert_is_right(graph: Graph, device: DeviceInfo, **options: object) -> list[str]:
    """Run a graph through TFLite; return the names of the alternatives, which took every node."""
    model, sets = write_model(graph), input_sets(graph)
    known = oracle(RUNTIME, graph, model, sets)
    delegate = OpenCLDelegate(device=device.index, tune="off", **options)
    made = interpreter(model, delegate)
    assert [each for each in delegate.verdicts if not each.is_taken] == []
    for number, inputs in enumerate(sets):
        found = zip(invoke(made, inputs), known.outputs[number], known.bounds[number], strict=True)
        for ours, theirs, bound in found:
            assert compare(ours, theirs, bound, 0, f"set {number}") is None
    names = [row.taken for row in delegate.alternatives]
    del made
    delegate.close()
    return names


@pytest.mark.parametrize("case", CASES[::12], ids=lambda case: case.name)
def test_ops_are_near_the_oracle(device: DeviceInfo, case: Case) -> None:
    assert_is_right(case.make(), device)


@pytest.mark.parametrize("without", [(), (FP16_STORAGE,)], ids=["stored", "by integers"])
def test_a_graph_of_both_types(device: DeviceInfo, without: Sequence[str]) -> None:
    names = assert_is_right(mixed(), device, exclude_isa=without)
    if without:
        assert names[2] == "floats"  # each kernel of float32 stands between two CASTs


def test_halves_are_rounded_to_the_nearest_ties_to_even(device: DeviceInfo) -> None:
    # 1 + 2^-11 is a tie; 65519 and 65520 are beside the one to infinity.
    left = np.array([1, 1 + 2**-10, 65504, 65504, -65504, 3], np.float16)
    right = np.array([2**-11, 2**-11, 15, 16, -16, np.nan], np.float16)
    x, y, z = (t((1, 6), "float16") for _ in range(3))
    graph = graph_of([op("ADD", [x, y], [z])], [x, y])
    with np.errstate(over="ignore"):
        expected = (left.astype(np.float32) + right.astype(np.float32)).astype(np.float16)
    for without in ((), (FP16_STORAGE,)):
        with Model(graph, device.index, tune="off", exclude_isa=without) as model:
            (found,) = model.run([left[None], right[None]])
        np.testing.assert_array_equal(found[0], expected)


def test_sums_are_of_floats_also_where_the_device_multiplies_halves() -> None:
    x, y = t((1, 4, 4, 64), "float16"), t((1, 4, 4, 8), "float16")
    node = op("CONV_2D", [x, const(half(8, 3, 3, 64)), const(half(8))], [y], CONV)
    target = Target(isa=frozenset({FP16_STORAGE, FP16}), rules=installed_rules())
    ways: Sequence[Alternative] = ops.lower(node, target)
    defines = [launch.defines for way in ways for launch in way.launches]
    assert any("HALVES" in each for each in defines)
    assert not any("HALF_ARITHMETIC" in each for each in defines)


@pytest.mark.parametrize("kernels", ["reference", "builtin"])
def test_what_is_left_runs_where_tflite_alone_runs(device: DeviceInfo, kernels: str) -> None:
    graph = mixed()
    model, (inputs, *_) = write_model(graph), input_sets(graph)
    known = oracle(RUNTIME, graph, model, [inputs])
    delegate = OpenCLDelegate(device=device.index, tune="off", exclude_ops=["CONV_2D"])
    if kernels == "reference":  # which have no convolution of float16
        with pytest.raises(RuntimeError, match="failed to prepare"):
            interpreter(model, delegate)
        return
    # XNNPACK, which TFLite adds after all other delegates, takes it.
    made = RUNTIME.interpreter(model, 1, "auto", [delegate], False, graph)
    made.allocate_tensors()
    assert ("CONV_2D", False) in [(each.op, each.is_taken) for each in delegate.verdicts]
    assert ("SOFTMAX", True) in [(each.op, each.is_taken) for each in delegate.verdicts]
    for ours, theirs in zip(invoke(made, inputs), known.outputs[0], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=4e-3)


def test_a_small_partition_of_float16_is_never_left(device: DeviceInfo) -> None:
    graph = mixed()
    delegate = OpenCLDelegate(device=device.index, tune="off", min_nodes_per_partition=9)
    interpreter(write_model(graph), delegate)
    assert {"CONV_2D", "SOFTMAX"} <= {each.op for each in delegate.verdicts if each.is_taken}


def test_the_judge_of_kernels_rounds_the_reference() -> None:
    x, y = t((1, 65), "float16"), t((1, 65), "float16")
    node = graph_of([op("LOGISTIC", [x], [y])]).nodes[0]
    values = half(1, 65)
    found = reference_outputs(installed_rules(), node, [values.reshape(-1)])
    assert found is not None
    exact = 1 / (1 + np.exp(-values.astype(np.float64)))
    np.testing.assert_allclose(found[0], exact.reshape(-1), rtol=2**-11)
    assert found[0].dtype == np.float16


def test_which_nodes_are_of_float16() -> None:
    x, y, wide = t((4,), "float16"), t((4,), "float16"), t((4,))
    state = t((4,), "float16", is_variable=True)
    assert not has_float16(op("CAST", [x], [wide]))
    assert not has_float16(op("DEQUANTIZE", [x], [wide]))
    assert widened(op("ADD", [wide, wide], [t((4,))])) is None
    assert widened(op("ADD", [x, state], [y])) is None
    made = widened(op("MUL", [x, x], [y]))
    assert made is not None
    assert made.inputs[0] is made.inputs[1]
    assert {each.dtype for each in (*made.inputs, *made.outputs) if each} == {"float32"}

# SPDX-License-Identifier: Apache-2.0
"""Graphs on mixed oracle kernels: the selection for each node, and the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from delegate.inspect import Graph, read_model, write_model
from tests.support import judged
from tests.support.compare import RUNTIME
from tests.support.model import const, graph_of, op, t
from tests.support.variables import counter_model
from tests.support.without_tflite import needs_tflite
from tflite_opencl.interpreters.interpreter import allocated, invoke
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.oracle.mixed import MixedInterpreter
from tflite_opencl.oracle.node_kernels import (
    BUILTIN,
    NUMPY,
    REFERENCE,
    NodeKernels,
    NoOracle,
    kind_of,
)
from tflite_opencl.oracle.values import Arrays, input_sets

pytestmark = needs_tflite


def mixed(graph: Graph, runtime: Runtime = RUNTIME, **how: Any) -> MixedInterpreter:
    return MixedInterpreter(runtime, graph, write_model(graph), **how)


def outputs_of_part(graph: Graph, count: int, kernels: str, inputs: Arrays) -> Arrays:
    """Return the outputs of a model of the first nodes."""
    return invoke(allocated(RUNTIME, write_model(graph_of(graph.nodes[:count])), kernels), inputs)


@pytest.mark.parametrize("make", [judged.lacking, judged.wrong])
def test_missing_or_wrong_reference_kernel_affects_only_its_node(make: Callable[[], Graph]) -> None:
    graph = make()
    (inputs, *_) = input_sets(graph)
    result = mixed(graph, keeps_all=True)
    (last,) = invoke(result, inputs)
    if result.kernels.by_node[1] == REFERENCE:  # TFLite has it
        return
    assert result.kernels.by_node == (REFERENCE, BUILTIN)
    assert [*result.kernels.why] == [1]
    (right,), (builtin,) = (
        outputs_of_part(graph, 1, each, inputs) for each in (REFERENCE, BUILTIN)
    )
    assert np.any(right != builtin)  # otherwise the test shows nothing
    np.testing.assert_array_equal(result.get_tensor(graph.nodes[0].outputs[0].index), right)
    if graph.nodes[1].op == "TILE":
        np.testing.assert_array_equal(last, np.tile(right, (1, 2, 1, 1)))
        assert "TILE" in result.kernels.reasons
    else:
        exact = np.rint((right.astype(int) - 3).sum((1, 2)) * 0.031 / 0.5) - 4
        np.testing.assert_array_equal(last, np.clip(exact, -128, 127))
        assert result.kernels.reasons.endswith("by built-in kernels: the reference kernel is wrong")


def test_complete_reference_runs_whole_model() -> None:
    graph = graph_of([judged.depthwise(judged.picture(), judged.picture())])
    (inputs, *_) = input_sets(graph)
    result = mixed(graph)
    np.testing.assert_array_equal(
        invoke(result, inputs), outputs_of_part(graph, 1, REFERENCE, inputs)
    )
    assert result.kernels == NodeKernels(("DEPTHWISE_CONV_2D",), (REFERENCE,), {})
    assert (result.kernels.name, result.kernels.reasons) == ("reference kernels", "")


def test_results_of_cpu_nodes_are_used() -> None:
    y, z = judged.picture(), judged.picture()
    graph = graph_of([judged.depthwise(judged.picture(), y), judged.depthwise(y, z)])
    (inputs, *_) = input_sets(graph)
    result = mixed(graph, left=[0])
    (outcome,) = invoke(result, inputs)
    assert result.kernels.by_node == (BUILTIN, REFERENCE)
    assert (result.kernels.name, result.kernels.reasons) == ("reference kernels", "")
    second = graph_of([graph.nodes[1]])
    expected = outputs_of_part(second, 1, REFERENCE, outputs_of_part(graph, 1, BUILTIN, inputs))
    np.testing.assert_array_equal([outcome], expected)


def test_fatal_node_runs_on_numpy() -> None:
    graph = judged.aborting()
    dead = {kind_of(graph.nodes[3]): "died with SIGABRT"}
    result = mixed(graph, dead=dead, is_apart=True)
    (shares,) = invoke(result, input_sets(graph)[0])
    assert result.kernels.by_node == (REFERENCE, REFERENCE, REFERENCE, NUMPY)
    assert result.kernels.reasons == (
        "SOFTMAX, node 3, by numpy's kernels: the reference kernel died with SIGABRT"
    )
    np.testing.assert_array_equal(shares, np.full((1, judged.CLASSES), -128))
    lacking = judged.lacking()
    dead = {kind_of(lacking.nodes[1]): "died with SIGABRT"}
    with pytest.raises(NoOracle, match=r"node 1 \(TILE\): the reference kernel died"):
        mixed(lacking, dead=dead)


@dataclass(frozen=True, slots=True)
class Failing(Runtime):
    """A fake TFLite whose kernels of one kind fail with an op."""

    kind: str = REFERENCE
    op: bytes = b"one of the model's tensors"  # an op of that model

    def interpreter(self, model: Any, threads: Any, cpu_kernels: str, *more: Any) -> Any:
        interp = Runtime.interpreter(self, model, threads, cpu_kernels, *more)
        return _Fails(interp) if cpu_kernels == self.kind and self.op in model else interp


class _Fails:
    def __init__(self, made: Any) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    def invoke(self) -> None:
        raise RuntimeError("Type INT8 is not supported. Node number 0 failed to invoke.")


def test_failing_reference_kernel_is_replaced_by_builtin() -> None:
    x, y, z = judged.picture(), judged.picture(), t((1, 12, 12, 16), "int8", 0.031, 3, name="last")
    graph = graph_of([judged.depthwise(x, y), op("RELU", [y], [z])])
    failing = Failing(RUNTIME.name, RUNTIME.version, RUNTIME.module, op=b"last")
    (inputs, *_) = input_sets(graph)
    result = mixed(graph, failing)
    outputs = invoke(result, inputs)
    assert result.kernels.by_node == (REFERENCE, BUILTIN)
    assert result.kernels.why == {1: "Type INT8 is not supported"}
    np.testing.assert_array_equal(outputs, outputs_of_part(graph, 2, REFERENCE, inputs))
    both = Failing(RUNTIME.name, RUNTIME.version, RUNTIME.module, kind=BUILTIN, op=b"last")
    with pytest.raises(RuntimeError, match="INT8 is not supported"):
        invoke(mixed(graph, both, left=[1]), inputs)


def test_graph_that_cannot_be_cut_runs_on_one_kind() -> None:
    content = counter_model()
    graph = read_model(content)
    interp = MixedInterpreter(RUNTIME, graph, content, left=[0])
    assert {*interp.kernels.by_node} == {REFERENCE}
    invoke(interp, input_sets(graph)[0])
    with pytest.raises(NoOracle):
        MixedInterpreter(RUNTIME, graph, content, is_apart=True)


def test_no_oracle_if_neither_kind_runs() -> None:
    with pytest.raises(NoOracle, match="Nobody"):
        mixed(judged.unknown())


def test_missing_inputs_are_zeros() -> None:
    graph = graph_of([op("ADD", [t((2,)), const(np.float32([1, 2]))], [t((2,))])])
    result = mixed(graph, is_apart=True)
    result.invoke()
    (output,) = result.get_output_details()
    np.testing.assert_array_equal(result.get_tensor(output["index"]), [1, 2])

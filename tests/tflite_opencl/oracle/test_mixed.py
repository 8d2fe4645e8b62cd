# SPDX-License-Identifier: Apache-2.0
"""Graphs on the kernels that say what is right: which run each node, and what comes of it."""

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


def alone(graph: Graph, count: int, kernels: str, inputs: Arrays) -> Arrays:
    """Return the outputs of the first nodes as a model of their own."""
    return invoke(allocated(RUNTIME, write_model(graph_of(graph.nodes[:count])), kernels), inputs)


@pytest.mark.parametrize("make", [judged.lacking, judged.wrong])
def test_a_node_that_the_reference_lacks_or_computes_wrongly_costs_no_other_one(
    make: Callable[[], Graph],
) -> None:
    graph = make()
    (inputs, *_) = input_sets(graph)
    made = mixed(graph, keeps_all=True)
    (last,) = invoke(made, inputs)
    if made.kernels.by_node[1] == REFERENCE:  # this TFLite has it
        return
    assert made.kernels.by_node == (REFERENCE, BUILTIN)
    assert [*made.kernels.why] == [1]
    (right,), (builtin,) = (alone(graph, 1, each, inputs) for each in (REFERENCE, BUILTIN))
    assert np.any(right != builtin)  # else nothing is shown
    np.testing.assert_array_equal(made.get_tensor(graph.nodes[0].outputs[0].index), right)
    if graph.nodes[1].op == "TILE":
        np.testing.assert_array_equal(last, np.tile(right, (1, 2, 1, 1)))
        assert "TILE" in made.kernels.reasons
    else:
        exact = np.rint((right.astype(int) - 3).sum((1, 2)) * 0.031 / 0.5) - 4
        np.testing.assert_array_equal(last, np.clip(exact, -128, 127))
        assert made.kernels.reasons.endswith("by built-in kernels: the reference kernel is wrong")


def test_where_the_reference_has_all_it_runs_the_whole_model() -> None:
    graph = graph_of([judged.depthwise(judged.picture(), judged.picture())])
    (inputs, *_) = input_sets(graph)
    made = mixed(graph)
    np.testing.assert_array_equal(invoke(made, inputs), alone(graph, 1, REFERENCE, inputs))
    assert made.kernels == NodeKernels(("DEPTHWISE_CONV_2D",), (REFERENCE,), {})
    assert (made.kernels.name, made.kernels.reasons) == ("reference kernels", "")


def test_what_the_cpu_runs_is_taken_as_it_is() -> None:
    y, z = judged.picture(), judged.picture()
    graph = graph_of([judged.depthwise(judged.picture(), y), judged.depthwise(y, z)])
    (inputs, *_) = input_sets(graph)
    made = mixed(graph, left=[0])
    (found,) = invoke(made, inputs)
    assert made.kernels.by_node == (BUILTIN, REFERENCE)
    assert (made.kernels.name, made.kernels.reasons) == ("reference kernels", "")
    second = graph_of([graph.nodes[1]])
    expected = alone(second, 1, REFERENCE, alone(graph, 1, BUILTIN, inputs))
    np.testing.assert_array_equal([found], expected)


def test_what_ended_a_process_is_numpy_s() -> None:
    graph = judged.aborting()
    dead = {kind_of(graph.nodes[3]): "died with SIGABRT"}
    made = mixed(graph, dead=dead, is_apart=True)
    (shares,) = invoke(made, input_sets(graph)[0])
    assert made.kernels.by_node == (REFERENCE, REFERENCE, REFERENCE, NUMPY)
    assert made.kernels.reasons == (
        "SOFTMAX, node 3, by numpy's kernels: the reference kernel died with SIGABRT"
    )
    np.testing.assert_array_equal(shares, np.full((1, judged.CLASSES), -128))
    lacking = judged.lacking()
    dead = {kind_of(lacking.nodes[1]): "died with SIGABRT"}
    with pytest.raises(NoOracle, match=r"node 1 \(TILE\): the reference kernel died"):
        mixed(lacking, dead=dead)


@dataclass(frozen=True, slots=True)
class Failing(Runtime):
    """A TFLite whose kernels of one kind fail when they run an op."""

    kind: str = REFERENCE
    op: bytes = b"one of the model's tensors"  # what such a model holds

    def interpreter(self, model: Any, threads: Any, cpu_kernels: str, *more: Any) -> Any:
        made = Runtime.interpreter(self, model, threads, cpu_kernels, *more)
        return _Fails(made) if cpu_kernels == self.kind and self.op in model else made


class _Fails:
    def __init__(self, made: Any) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    def invoke(self) -> None:
        raise RuntimeError("Type INT8 is not supported. Node number 0 failed to invoke.")


def test_a_kernel_that_fails_in_a_run_is_replaced_by_the_built_in_one() -> None:
    x, y, z = judged.picture(), judged.picture(), t((1, 12, 12, 16), "int8", 0.031, 3, name="last")
    graph = graph_of([judged.depthwise(x, y), op("RELU", [y], [z])])
    failing = Failing(RUNTIME.name, RUNTIME.version, RUNTIME.module, op=b"last")
    (inputs, *_) = input_sets(graph)
    made = mixed(graph, failing)
    outputs = invoke(made, inputs)
    assert made.kernels.by_node == (REFERENCE, BUILTIN)
    assert made.kernels.why == {1: "Type INT8 is not supported"}
    np.testing.assert_array_equal(outputs, alone(graph, 2, REFERENCE, inputs))
    both = Failing(RUNTIME.name, RUNTIME.version, RUNTIME.module, kind=BUILTIN, op=b"last")
    with pytest.raises(RuntimeError, match="INT8 is not supported"):
        invoke(mixed(graph, both, left=[1]), inputs)


def test_a_graph_that_cannot_be_cut_runs_on_one_kind() -> None:
    content = counter_model()
    graph = read_model(content)
    made = MixedInterpreter(RUNTIME, graph, content, left=[0])
    assert {*made.kernels.by_node} == {REFERENCE}
    invoke(made, input_sets(graph)[0])
    with pytest.raises(NoOracle):
        MixedInterpreter(RUNTIME, graph, content, is_apart=True)


def test_what_neither_runs_has_no_oracle() -> None:
    with pytest.raises(NoOracle, match="Nobody"):
        mixed(judged.unknown())


def test_inputs_without_values_are_zeros_and_others_are_refused() -> None:
    graph = graph_of([op("ADD", [t((2,)), const(np.float32([1, 2]))], [t((2,))])])
    made = mixed(graph, is_apart=True)
    made.invoke()
    (output,) = made.get_output_details()
    np.testing.assert_array_equal(made.get_tensor(output["index"]), [1, 2])

# SPDX-License-Identifier: Apache-2.0
"""The judge in a child process: crashes, messages and continuation."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate.guard.children.child import ChildDied, ChildExit
from delegate.inspect import Graph, with_tensors, write_model
from tests.support import judged
from tests.support.compare import RUNTIME
from tests.support.model import graph_of, op, t
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl.interpreters.interpreter import allocated, invoke
from tflite_opencl.oracle import judge, judge_process
from tflite_opencl.oracle.judge import cpu_kernels_beside, judged_outputs, open_judge, values_of
from tflite_opencl.oracle.judge_process import JudgeProcess, begin
from tflite_opencl.oracle.node_kernels import BUILTIN, NoOracle
from tflite_opencl.oracle.values import input_sets

pytestmark = needs_tflite

ABORTED = ChildExit(-6)


@slow
def test_abort_of_reference_kernel_affects_only_its_node() -> None:
    graph = judged.aborting()
    model = write_model(graph)
    (inputs, *_) = input_sets(graph)
    with contextlib.closing(open_judge(RUNTIME, graph, model, keeps_all=True)) as result:
        (shares,) = invoke(result, inputs)
        first = graph.nodes[0].outputs[0].index
        outcome = result.get_tensor(first)
    np.testing.assert_array_equal(shares, np.full((1, judged.CLASSES), -128))
    alone = allocated(RUNTIME, write_model(graph_of(graph.nodes[:1])), "reference")
    np.testing.assert_array_equal(outcome, invoke(alone, inputs)[0])
    if result.reasons:  # TFLite aborts
        assert result.name == "TFLite's reference kernels and numpy's kernels"
        assert result.reasons == (
            "SOFTMAX, node 3, by numpy's kernels: the reference kernel died with SIGABRT"
        )


class Scripted:
    """A judge process that dies when it runs a node; `trying`: the node that it reports."""

    def __init__(self, trying: int | None) -> None:
        self.trying, self.opened = trying, list[dict[str, Any]]()

    def asked(self, word: str, *request: Any) -> Any:
        if word == "run":
            raise ChildDied(ABORTED)
        self.opened.append(request[-1])
        if request[-1]["dead"]:
            raise NoOracle("node 0 (NEG): the reference kernel died with SIGABRT")
        return (None, [], [])

    def close(self) -> None:
        pass

    def wait(self, seconds: float) -> int:
        return -6


@pytest.fixture
def negation() -> Graph:
    return graph_of([op("NEG", [t((2,))], [t((2,))])])


@pytest.mark.parametrize(
    ("trying", "words"),
    [
        (None, "TFLite's reference kernels died with SIGABRT"),
        (0, r"died with SIGABRT \(node 0 \(NEG\): the reference kernel died with SIGABRT\)"),
    ],
)
def test_node_without_other_oracle_has_reason(
    negation: Graph, trying: int | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Scripted(trying)
    for module, name in ((judge, "taken"), (judge, "JudgeProcess")):
        monkeypatch.setattr(module, name, lambda runtime: process)
    result = open_judge(RUNTIME, negation, write_model(negation))
    with pytest.raises(RuntimeError, match=words):
        result.invoke()
    assert [each["is_apart"] for each in process.opened] == [False, True]  # it is repeated


def test_process_is_reused_until_ctrl_c(negation: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_process, "_idle", [])
    begin(RUNTIME)
    (first,) = judge_process._idle
    given = [np.float32([1, 2])]
    model = write_model(negation)
    for _ in range(2):
        (result,) = judged_outputs(RUNTIME, negation, model, given)
        np.testing.assert_array_equal(result, [-1, -2])
        assert judge_process._idle == [first]

    def pressed(self: JudgeProcess, seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(JudgeProcess, "event", pressed)
        with pytest.raises(KeyboardInterrupt):
            judged_outputs(RUNTIME, negation, model, given)
    assert judge_process._idle == []
    assert first.wait(0) is not None


def test_inputs_with_other_shapes() -> None:
    graph = judged.lacking()
    (source,) = graph.inputs
    small = with_tensors(graph, {source: replace(source, shape=(1, 6, *source.shape[2:]))})
    given = [np.zeros(small.inputs[0].shape, np.int8)]
    how: dict[str, Any] = {"left": [1], "keeps_all": True}  # so that each TFLite cuts it
    with contextlib.closing(open_judge(RUNTIME, small, write_model(graph), **how)) as result:
        (outcome,) = invoke(result, given)
    assert outcome.shape == (1, 12, *source.shape[2:])


def test_errors_are_tflites(negation: Graph) -> None:
    model = write_model(negation)
    with pytest.raises(ValueError, match="Cannot set tensor"):
        judged_outputs(RUNTIME, negation, model, [np.int8([1, 2])])
    with pytest.raises(NoOracle, match="Nobody"):
        open_judge(RUNTIME, judged.unknown(), write_model(judged.unknown()))


def test_cpu_uses_builtin_kernels_if_nodes_are_judged_separately(
    negation: Graph, tmp_path: Path
) -> None:
    model = write_model(negation)
    assert cpu_kernels_beside(RUNTIME, negation, model) == BUILTIN
    path = tmp_path / "negation.tflite"
    path.write_bytes(model)
    known = values_of(RUNTIME, str(path), negation, [np.float32([1, 2])])
    output = replace(negation.outputs[0], origin=negation.outputs[0].index)
    np.testing.assert_array_equal(known(output), [-1, -2])

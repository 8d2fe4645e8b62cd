# SPDX-License-Identifier: Apache-2.0
"""The conformance suite's cases as an op's tests run them: each strategy, and each alternative.

test_average_pool_2d = from_suite("AVERAGE_POOL_2D", ways=(SIMT, LANES_16))
test_drawn = drawn(pools(), WAYS, assert_graph_or_refused)

The suite's oracle has the results, and the bounds of floats. Shapes, types and quantisations that
an op needs are cases of the suite; the op's test adds inputs that no case can ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import reject

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Graph, Node, write_model
from delegate.launch import Alternative
from delegate.target import Target
from tests.support.cases import GROUPS, RUN, Strategy, forced, require_isa, strategy_on
from tests.support.compare import (
    RUNTIME,
    Arrays,
    assert_close,
    assert_same,
    interpreter,
    invoke,
    refusals,
)
from tests.support.guards import guarded
from tests.support.opencl import PROFILE
from tests.support.process import ROOT
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.models.build import Case
from tflite_opencl.oracle.node_kernels import NoOracle
from tflite_opencl.oracle.oracle import Oracle, oracle
from tflite_opencl.oracle.values import input_sets


@cache
def _suite() -> dict[str, list[Case]]:
    """Return the cases whose values the delegate computes, by op.

    Without those of float16: a node of halves runs between conversions, which have tests.
    """
    rows = (ROOT / ".ci/opencl-fails.txt").read_text("utf-8").splitlines()
    left_to_cpu = {row.split(",")[0] for row in rows}
    by_op: dict[str, list[Case]] = {}
    for case in all_cases():
        is_usual = case.check == "values" and case.kind != "float16" and not case.is_heavy
        if is_usual and case.name not in left_to_cpu:
            by_op.setdefault(case.op, []).append(case)
    return by_op


def cases_of(*names: str, first: str = "") -> list[Any]:
    """Return the parameters "dtype" and "case" of a test: the suite's cases of these ops.

    `first`: part of a name; the fast tier runs the first case of each type that has it.
    """
    cases = [case for name in names for case in _suite()[name]]
    cases.sort(key=lambda case: first not in case.name)
    return [pytest.param(case.kind, case, id=case.name) for case in cases]


def from_suite(
    *names: str, strategies: Sequence[Strategy] = GROUPS, first: str = ""
) -> Callable[..., None]:
    """Return a test that these ops' cases give the oracle's results with each strategy."""

    @pytest.mark.parametrize("strategy", strategies, ids=str)
    @pytest.mark.parametrize(("dtype", "case"), cases_of(*names, first=first))
    def test_suite(case: Case, dtype: str, strategy: Strategy, device: DeviceInfo) -> None:
        assert_alternatives(case, device, strategy)

    return test_suite


def assert_alternatives(case: Case, device: DeviceInfo, strategy: Strategy) -> set[str]:
    """Assert that each alternative of a case's node gives the oracle's results; return their names.

    If a way names an alternative, or a case has several nodes, only one alternative runs.
    """
    graph, sets, known = _prepared(case)
    with _lowered() as names:
        taken = _assert_equal(graph, sets, known, device, strategy)
    if len(graph.nodes) == 1 and not strategy.alternative:
        for name in sorted(names - taken):
            taken |= _assert_equal(graph, sets, known, device, replace(strategy, alternative=name))
    return taken


@lru_cache(maxsize=4)  # the strategies of a case follow each other
def _prepared(case: Case) -> tuple[Graph, list[Arrays], Oracle]:
    graph = case.make()
    sets = input_sets(graph)
    first = sets[0][0] if sets[0] else np.zeros(0)
    if len(sets[0]) == 1 and first.size == 256 and first.itemsize == 1:
        sets.append([np.arange(256).astype(first.dtype).reshape(first.shape)])  # every value
    return graph, sets, _known(graph, sets)


@contextmanager
def _lowered() -> Iterator[set[str]]:
    """Yield the names of all alternatives that nodes are lowered to meanwhile."""
    lower, names = ops.lower, set[str]()

    def noting(node: Node, target: Target) -> tuple[Alternative, ...]:
        found = lower(node, target)
        names.update(alternative.name for alternative in found)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "lower", noting)
        yield names


def assert_graph(
    graph: Graph, device: DeviceInfo, strategy: Strategy, inputs: Sequence[Arrays]
) -> set[str]:
    """Assert that a graph gives the oracle's results; return the alternatives' names."""
    return _assert_equal(graph, inputs, _known(graph, inputs), device, strategy)


def _known(graph: Graph, inputs: Sequence[Arrays]) -> Oracle:
    """Return the oracle; skip the test if an older TFLite does not run the graph."""
    is_deep = sum(len(tensor.shape) > 4 for tensor in graph.inputs) > 1
    if is_deep and RUNTIME.name == "tflite-runtime":
        pytest.skip("two tensors of more dimensions end its process in some ops")
    try:
        return oracle(RUNTIME, graph, write_model(graph), inputs)
    except NoOracle as error:
        if RUNTIME.name == "ai-edge-litert":
            raise
        pytest.skip(f"TFLite itself does not run it: {error}")


def assert_graph_or_refused(
    graph: Graph,
    device: DeviceInfo,
    strategy: Strategy,
    seed: int,
    inputs: Sequence[Arrays] | None = None,
) -> None:
    """The same for a drawn graph: one that TFLite itself does not run is no case."""
    inputs = inputs or input_sets(graph, seed)
    try:
        known = oracle(RUNTIME, graph, write_model(graph), inputs)
    except NoOracle:
        reject()
    _assert_equal(graph, inputs, known, device, strategy_on(device, strategy))


def _assert_equal(
    graph: Graph, sets: Sequence[Arrays], known: Oracle, device: DeviceInfo, strategy: Strategy
) -> set[str]:
    """Assert that integers and exact floats are equal, other floats within their bounds."""
    require_isa(strategy, device)
    model = write_model(graph)
    with forced(strategy) as taken, guarded() as written:
        delegate = OpenCLDelegate(model, device.index, tune="off", device_profile=PROFILE)
        ours = interpreter(model, delegate, known.cpu_kernels)
        if refusals(delegate) and RUNTIME.name == "tflite-runtime":
            pytest.skip(f"left to tflite-runtime: {refusals(delegate)}")
        assert refusals(delegate) == {}
        assert delegate.device == device
        for number, given in enumerate(sets):
            rows = zip(
                invoke(ours, given), known.outputs[number], known.bounds[number], strict=True
            )
            for output, (got, expected, bound) in enumerate(rows):
                where = f"input set {number}, output {output}"
                # tflite-runtime's CEIL has 0 for -0, and the suite's judge takes them for equal.
                has_signed_zeros = got.dtype != np.float32 or RUNTIME.name == "ai-edge-litert"
                if has_signed_zeros and (bound is None or not np.any(bound)):
                    assert_same(got, expected, where)
                else:
                    assert_close(got, expected, 0.0 if bound is None else bound, where)
    assert written == []
    RUN.update(node.op for node in graph.nodes)
    return set(taken)

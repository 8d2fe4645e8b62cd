# SPDX-License-Identifier: Apache-2.0
"""Values on which TFLite's kernels fail also fail here, with a reason; the next run is right."""

from __future__ import annotations

import numpy as np
import pytest

from delegate import DeviceInfo, Model
from delegate.errors import DelegateError, InvalidValue
from delegate.graph.ir import Graph
from delegate.graph.partition import partition_of
from delegate.inspect import read_model, write_model
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.lowering.compiler import compile_partition
from delegate.plan.tuning.agreement import random_inputs, same_outputs
from delegate.run.device import Device
from delegate.target import Target
from tests.support.compare import Arrays, interpreter, invoke
from tests.support.model import const, graph_of, op, t
from tests.support.nets import delegate_for
from tests.support.tiers import slow

NONE = {"fused_activation_function": "NONE"}
TABLE = np.arange(15, dtype=np.float32).reshape(5, 3)


def picked(is_inner: bool) -> Graph:
    """Return the graph of a GATHER with the caller's indices, or with those plus one."""
    given, places = t((1, 2), "int32"), t((1, 2), "int32")
    add = op("ADD", [given, const(np.array([[1, 1]], np.int32))], [places], NONE)
    rows, result = t((1, 2, 3)), t((1, 2, 3))
    gather = op("GATHER", [const(TABLE), places if is_inner else given], [rows], {"axis": 0})
    ends = [gather, op("ABS", [rows], [result])]
    return graph_of([add, *ends] if is_inner else ends, [given], [result])


def divided() -> Graph:
    """Return the graph of a quotient of two int8 tensors, with a doubled divisor."""
    left, right, twice = (t((1, 4), "int8", 0.1, 0) for _ in range(3))
    add = op("ADD", [right, right], [twice], NONE)
    return graph_of(
        [add, op("DIV", [left, twice], [(result := t((1, 4), "int8", 0.1, 0))], NONE)],
        [left, right],
        [result],
    )


def of(*values: object) -> Arrays:
    return [np.array(each, np.int8) for each in values]


CASES = {
    "given": (
        picked(is_inner=False),
        [np.array([[4, 0]], np.int32)],
        [np.array([[1, 5]], np.int32)],
        "node 0 (GATHER): an index is 5: outside of 5 elements",
    ),
    "below": (
        picked(is_inner=False),
        [np.array([[4, 0]], np.int32)],
        [np.array([[-1, 2]], np.int32)],
        "node 0 (GATHER): an index is -1: outside of 5 elements",
    ),
    "computed": (
        picked(is_inner=True),
        [np.array([[3, -1]], np.int32)],
        [np.array([[1, 4]], np.int32)],
        "node 1 (GATHER): an index is 5: outside of 5 elements",
    ),
    "divisor": (
        divided(),
        of([[1, 2, 3, 4]], [[1, -3, 9, 50]]),
        of([[1, 2, 3, 4]], [[1, -3, 0, 50]]),
        "node 1 (DIV): a divisor is 0: which stands for 0",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_run_fails_like_tflites_and_next_is_right(name: str, device: DeviceInfo) -> None:
    graph, right, wrong, message = CASES[name]
    model = write_model(graph)
    alone = interpreter(model)
    delegate = delegate_for(model, device)
    interp = interpreter(model, delegate)
    assert all(verdict.is_taken for verdict in delegate.verdicts)
    for _ in range(2):
        np.testing.assert_array_equal(invoke(interp, right)[0], invoke(alone, right)[0])
        for each in (alone, interp):
            with pytest.raises(RuntimeError):
                invoke(each, wrong)
        assert delegate.failure == message


@pytest.mark.parametrize("name", CASES)
def test_only_given_pictures_of_batch_are_checked(name: str, device: DeviceInfo) -> None:
    graph, right, wrong, message = CASES[name]
    expected = invoke(interpreter(write_model(graph)), right)[0]
    with Model(write_model(graph), device=device.index, tune="off") as model:
        for _ in range(2):
            np.testing.assert_array_equal(model.run(right)[0], expected)
            with pytest.raises(InvalidValue, match=message.partition(" (")[0]) as raised:
                model.run(wrong)
            assert str(raised.value) == message
            with pytest.raises(InvalidValue):
                model.run_async(wrong).result()


def test_partial_batch_is_checked_partially(device: DeviceInfo) -> None:
    graph = divided()
    with Model(write_model(graph), device=device.index, tune="off", batch=3) as model:
        good, bad = (
            [np.array(rows, np.int8) for rows in ([[1, 2, 3, 4]] * 3, divisors)]
            for divisors in ([[1, 2, 3, 4]] * 3, [[1, 2, 3, 4]] * 2 + [[1, 0, 3, 4]])
        )
        model.run(good)
        with pytest.raises(InvalidValue):
            model.run(bad)
        assert len(model.run([each[:2] for each in bad])[0]) == 2


def test_failed_run_loses_state(device: DeviceInfo) -> None:
    x, old, new = (t((1, 4), "int8", 0.1, 0, name=name) for name in ("x", "old", "new"))
    total, result = t((1, 4), "int8", 0.1, 0), t((1, 4), "int8", 0.1, 0)
    nodes = [op("ADD", [x, old], [new], NONE), op("ADD", [new, new], [total], NONE)]
    nodes.append(op("DIV", [x, total], [result], NONE))
    graph = graph_of(nodes, [x, old], [result, new])
    with Model(write_model(graph), device=device.index, tune="off", carry={"new": "old"}) as model:
        model.run(of([[1, 2, 3, 4]]))
        with pytest.raises(InvalidValue):
            model.run(of([[1, -2, 3, 4]]))
        with pytest.raises(DelegateError, match="the state is lost"):
            model.run(of([[1, 2, 3, 4]]))
        model.reset()
        model.run(of([[1, 2, 3, 4]]))


@slow
def test_wrong_value_does_not_remove_devices() -> None:
    graph, right, wrong, _ = CASES["divisor"]
    expected = invoke(interpreter(write_model(graph)), right)[0]
    with Model(write_model(graph), "all", tune="off") as model:
        for _ in range(3):
            with pytest.raises(InvalidValue):
                model.run_async(wrong).result()
            np.testing.assert_array_equal(model.run_async(right).result()[0], expected)
        assert not any(portion.failure for portion in model.portions)


def test_tuning_respects_requirements(device: DeviceInfo) -> None:
    """Tuning runs programs on random values, which must not violate a requirement."""
    graph = read_model(CASES["given"][0] and write_model(divided()))
    program = compile_partition(partition_of(graph, [1]), Target(), lambda _, ways: ways[-1])
    opened = Device(device)
    kernels = Kernels(opened)
    with (
        planned_executor(opened, kernels, program) as one,
        planned_executor(opened, kernels, program) as other,
    ):
        (need,) = program.steps[0].alternative.requirements
        for seed in range(20):
            place = program.inputs.index(need.tensor)
            assert (
                need.broken_by(random_inputs(one, seed)[place].reshape(need.tensor.shape)) is None
            )
        assert same_outputs(one, other)
    opened.close()

# SPDX-License-Identifier: Apache-2.0
"""Resource variables in an interpreter: all or none on the device, with TFLite's semantics."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import Graph, write_model
from tests.support.compare import interpreter, invoke
from tests.support.model import graph_of, op, t
from tests.support.nets import assert_equal_outputs, delegate_for
from tests.support.opencl import opencl_error
from tests.support.subgraphs import write_subgraphs
from tests.support.tiers import slow
from tests.support.variables import SHAPE, TEN, beginning, counter, counter_model, handle

INPUTS = [np.full(SHAPE, number, np.float32) for number in (1, 2, 3, 4)]


def reader(once: int = 1) -> Graph:
    """Return x -> x times the variable of `counter`."""
    node, resource = handle("sum")
    x, value, y = (t(SHAPE, "float32", name=name) for name in ("x2", "value", "y2"))
    nodes = [
        op("CALL_ONCE", [], [], {"init_subgraph_index": once}),
        node,
        op("READ_VARIABLE", [resource], [value]),
        op("MUL", [value, x], [y]),
    ]
    return graph_of(nodes, [x], [y])


def added_once() -> bytes:
    """Return a model that adds x to a variable, and doubles another input."""
    node, resource = handle("sum")
    x, before, after = (t(SHAPE, "float32", name=name) for name in ("x", "before", "after"))
    z, doubled = t((2, 3), "float32", name="z"), t((2, 3), "float32", name="doubled")
    nodes = [
        op("CALL_ONCE", [], [], {"init_subgraph_index": 1}),
        node,
        op("READ_VARIABLE", [resource], [before]),
        op("ADD", [before, x], [after]),
        op("ASSIGN_VARIABLE", [resource, after], []),
        op("ADD", [z, z], [doubled]),
    ]
    return write_subgraphs(graph_of(nodes, [x, z], [after, doubled]), beginning(TEN))


def reasons(delegate: OpenCLDelegate) -> set[str | None]:
    return {each.reason for each in delegate.verdicts}


@slow
def test_variable_stays_on_device(device: DeviceInfo) -> None:
    ours, reference = delegate_for(counter_model(), device, ()), interpreter(counter_model())
    interp = interpreter(counter_model(), ours)
    assert (reasons(ours), ours.partitions) == ({None}, [[*range(7)]])
    for x in INPUTS:
        assert_equal_outputs(invoke(interp, [x]), invoke(reference, [x]))
    interp.reset_all_variables()  # which TFLite does only to variable tensors
    reference.reset_all_variables()
    interp.allocate_tensors()
    assert_equal_outputs(invoke(interp, INPUTS[:1]), invoke(reference, INPUTS[:1]))


@slow
def test_resize_preserves_variable(device: DeviceInfo) -> None:
    model = added_once()
    both = [interpreter(model, delegate_for(model, device, ())), interpreter(model)]
    for rows in (2, 5, 1):
        outputs = []
        for each in both:
            each.resize_tensor_input(each.get_input_details()[1]["index"], (rows, 3))
            each.allocate_tensors()
            outputs.append(invoke(each, [INPUTS[0], np.ones((rows, 3), np.float32)]))
        assert_equal_outputs(*outputs)


@slow
def test_interpreters_have_separate_variables(device: DeviceInfo) -> None:
    ours = delegate_for(counter_model(), device, ())
    first, second = (interpreter(counter_model(), ours) for _ in range(2))
    alone = [interpreter(counter_model()) for _ in range(2)]
    for x, y in zip(INPUTS, INPUTS[::-1], strict=True):
        assert_equal_outputs(invoke(first, [x]), invoke(alone[0], [x]))
        assert_equal_outputs(invoke(second, [y]), invoke(alone[1], [y]))
    del first, second
    for _ in range(3):  # some at a reused address
        gc.collect()
        again, reference = interpreter(counter_model(), ours), interpreter(counter_model())
        assert_equal_outputs(invoke(again, INPUTS[:1]), invoke(reference, INPUTS[:1]))
        del again
    assert len(ours._interpreters._variables) <= 2


@slow
def test_signatures_share_variable(device: DeviceInfo) -> None:
    model = write_subgraphs(counter(), beginning(TEN), reader(), signatures=(0, 2))
    ours = delegate_for(model, device, ())
    both = [interpreter(model, ours), interpreter(model)]
    runners: list[Any] = [
        [each.get_signature_runner(f"graph {number}") for number in (0, 2)] for each in both
    ]
    for x in INPUTS:
        for number in (0, 1):
            got, expected = ([*each[number](x0=x).values()] for each in runners)
            assert_equal_outputs(got, expected)
    assert {each.reason for each in ours.subgraph_verdicts[2]} == {None}


@slow
@pytest.mark.parametrize("left", ["READ_VARIABLE", "ADD"])
def test_one_variable_on_cpu_leaves_all_there(device: DeviceInfo, left: str) -> None:
    ours, reference = delegate_for(counter_model(), device, [left]), interpreter(counter_model())
    interp = interpreter(counter_model(), ours)
    # Without ADD TFLite would run the second read before the assignment.
    why = "excluded by exclude_ops" if left != "ADD" else "would read 'sum' out of order"
    assert why in str(ours.verdicts[1].reason)
    assert ours.partitions == []
    for x in INPUTS:
        assert_equal_outputs(invoke(interp, [x]), invoke(reference, [x]))


@slow
def test_partitions_share_variable(device: DeviceInfo) -> None:
    model = added_once()
    ours, reference = delegate_for(model, device, ["ADD"]), interpreter(model)
    interp = interpreter(model, ours)
    assert ours.partitions == [[0, 1, 2], [4]]
    for x in INPUTS:
        given = [x, np.ones((2, 3), np.float32)]
        assert_equal_outputs(invoke(interp, given), invoke(reference, given))


@slow
def test_small_partition_leaves_all_variables_to_cpu(device: DeviceInfo) -> None:
    model = added_once()
    ours = delegate_for(model, device, ["ADD"], min_nodes_per_partition=2)
    interpreter(model, ours)
    assert "a partition of 1" in str(ours.verdicts[1].reason)
    assert ours.partitions == []


@slow
def test_graph_that_cannot_use_variable_is_an_error(device: DeviceInfo) -> None:
    # The first graph has the variable on the device before the second one's claim.
    model = write_subgraphs(reader(), beginning(TEN), counter(), signatures=(0, 2))
    ours = delegate_for(model, device, ["ADD"])
    with pytest.raises(RuntimeError):
        interpreter(model, ours)
    assert "graph 2 needs them on the CPU: TFLite would read 'sum' out of order" in str(
        ours.failure
    )


def test_failed_run_loses_variable(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = delegate_for(counter_model(), device, ())
    interp = interpreter(counter_model(), ours)
    invoke(interp, INPUTS[:1])

    def fail(*_: object) -> None:
        raise opencl_error(cl.Error, "clEnqueueNDRangeKernel", cl.status_code.OUT_OF_RESOURCES)

    with monkeypatch.context() as patched:
        patched.setattr(cl, "enqueue_nd_range_kernel", fail)
        with pytest.raises(RuntimeError, match="CL_OUT_OF_RESOURCES"):
            interp.invoke()
    with pytest.raises(RuntimeError, match=r"the state is lost, .*: make a new interpreter"):
        interp.invoke()
    again = interpreter(counter_model(), ours)
    reference = interpreter(counter_model())
    assert_equal_outputs(invoke(again, INPUTS[:1]), invoke(reference, INPUTS[:1]))


def test_uninitialised_variable_stays_on_cpu(device: DeviceInfo) -> None:
    node, resource = handle("new")
    x, y = t(SHAPE, "float32", name="x"), t(SHAPE, "float32", name="y")
    nodes = [node, op("ASSIGN_VARIABLE", [resource, x], []), op("READ_VARIABLE", [resource], [y])]
    model = write_model(graph_of(nodes, [x], [y]))
    ours = delegate_for(model, device, ())
    assert_equal_outputs(invoke(interpreter(model, ours), INPUTS[:1]), INPUTS[:1])
    assert reasons(ours) == {"no CALL_ONCE begins the resource variable 'new'"}


def test_nodes_with_variable_run_alone(device: DeviceInfo) -> None:
    ours = delegate_for(counter_model(), device, (), profiling=True)
    interp, reference = interpreter(counter_model(), ours), interpreter(counter_model())
    interp.set_tensor(interp.get_input_details()[0]["index"], INPUTS[0])
    expected = invoke(reference, INPUTS[:1])
    steps = ours.step_through(interp.invoke)
    (added,) = [step.values for step in steps if step.op == "ADD"]
    assert_equal_outputs([*added.values()], expected[:1])
    alone = ours.isolated(dict.fromkeys(range(8), INPUTS[0]))
    assert [step.op for step in alone] == [step.op for step in steps]
    assert_equal_outputs(invoke(interp, INPUTS[1:2]), invoke(reference, INPUTS[1:2]))

# SPDX-License-Identifier: Apache-2.0
"""Variable tensors in interpreters and Model: initial values, persistence and resets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from delegate import DeviceInfo, Model, OpenCLDelegate, Unsupported
from delegate.inspect import Graph, write_model
from tests.support.compare import interpreter, invoke
from tests.support.delay import SHAPE, delay, delays, variable
from tests.support.model import graph_of, op, t
from tests.support.nets import assert_equal_outputs, delegate_for
from tests.support.opencl import opencl_error

INPUTS = [np.arange(4, dtype=np.float32).reshape(SHAPE) + 10 * number for number in range(1, 7)]


def opened(
    graph: Graph, device: DeviceInfo, exclude_ops: tuple[str, ...] = (), **options: Any
) -> tuple[OpenCLDelegate, Any, Any]:
    """Return a delegate, an interpreter with it, and one of the reference kernels."""
    model = write_model(graph)
    ours = delegate_for(model, device, exclude_ops, in_child_first=False, **options)
    return ours, interpreter(model, ours), interpreter(model)


def reasons(delegate: OpenCLDelegate) -> list[str | None]:
    return [each.reason for each in delegate.verdicts]


def test_variable_persists_and_is_reset(device: DeviceInfo) -> None:
    ours, interp, reference = opened(delays([variable("a"), variable("b")]), device)
    assert (reasons(ours), ours.partitions) == ([None, None], [[0, 1]])
    for number, x in enumerate(INPUTS):
        if number == 4:
            interp.reset_all_variables()
            reference.reset_all_variables()
        assert_equal_outputs(invoke(interp, [x]), invoke(reference, [x]))
    for each in (interp, reference):  # which also resets
        each.resize_tensor_input(each.get_input_details()[0]["index"], SHAPE)
        each.allocate_tensors()
    for x in INPUTS[:3]:
        assert_equal_outputs(invoke(interp, [x]), invoke(reference, [x]))
    again = interpreter(write_model(delays([variable("a"), variable("b")])), ours)
    assert not invoke(again, INPUTS[:1])[0].any()
    assert_equal_outputs(invoke(interp, INPUTS[:1]), invoke(reference, INPUTS[:1]))


def test_caller_can_read_and_write_variable(device: DeviceInfo) -> None:
    _, interp, reference = opened(delays([variable()]), device)
    (index,) = (d["index"] for d in interp.get_tensor_details() if d["name"] == "state")
    for number, x in enumerate(INPUTS):
        if number == 2:
            saved = [each.get_tensor(index) for each in (interp, reference)]
            assert_equal_outputs(*([array] for array in saved))
        if number == 4:
            for each, array in zip((interp, reference), saved, strict=True):
                each.set_tensor(index, array + 1)
        assert_equal_outputs(invoke(interp, [x]), invoke(reference, [x]))


@pytest.mark.parametrize("left", [("ABS",), ("NEG",)])
def test_variable_in_several_partitions(device: DeviceInfo, left: tuple[str, ...]) -> None:
    state = variable()
    graph = delays([state, variable("other"), state], ["ABS", "NEG"])
    ours, interp, reference = opened(graph, device, left)
    assert len(ours.partitions) == 2
    for x in INPUTS:
        assert_equal_outputs(invoke(interp, [x]), invoke(reference, [x]))


def test_nodes_that_share_variable_with_cpu_stay_there(device: DeviceInfo) -> None:
    state, x = variable(), t(SHAPE, "float32", name="x")
    y, z, seen = t(SHAPE, "float32", name="y"), t(SHAPE, "float32", name="z"), t((1, 8), "float32")
    nodes = [delay(x, y, state), op("NEG", [state], [seen]), delay(x, z, variable("other"))]
    ours, interp, reference = opened(graph_of(nodes, [x], [y, seen, z]), device, ("NEG",))
    why = "node 1 (NEG), which stays on the CPU, touches the variable tensor 'state', too"
    assert reasons(ours) == [why, "excluded by exclude_ops", None]
    for given in INPUTS:
        assert_equal_outputs(invoke(interp, [given]), invoke(reference, [given]))


def test_reader_that_would_run_too_early_stays_on_cpu(device: DeviceInfo) -> None:
    # TFLite would run both NEG before ABS, which is on the CPU: it sees no dependency.
    state, x = variable(), t(SHAPE, "float32", name="x")
    first, between, y, seen = (t(s, "float32") for s in (SHAPE, SHAPE, SHAPE, (1, 8)))
    nodes = [
        op("NEG", [x], [first]),
        op("ABS", [first], [between]),
        delay(between, y, state),
        op("NEG", [state], [seen]),
    ]
    ours, interp, reference = opened(graph_of(nodes, [x], [y, seen]), device, ("ABS",))
    why = "TFLite would read 'state' out of order"
    assert reasons(ours) == [None, "excluded by exclude_ops", why, why]
    for given in INPUTS:
        assert_equal_outputs(invoke(interp, [given]), invoke(reference, [given]))


def test_variable_that_is_input_or_output_stays_on_cpu(device: DeviceInfo) -> None:
    state, x, y = variable(), t(SHAPE, "float32", name="x"), t(SHAPE, "float32", name="y")
    graph = graph_of([delay(x, y, state)], [x], [y, state])
    ours, interp, reference = opened(graph, device)
    assert reasons(ours) == ["state in a variable tensor"]
    for given in INPUTS:
        assert_equal_outputs(invoke(interp, [given]), invoke(reference, [given]))
    with pytest.raises(Unsupported, match=r"node 0 \(SVDF\): state in a variable tensor"):
        Model(write_model(graph), device.index, tune="off", in_child_first=False)


def test_failed_run_loses_variable(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    state = variable()
    graph = delays([variable("other"), state], ["ABS"])
    ours, interp, reference = opened(graph, device, ("ABS",))
    assert len(ours.partitions) == 2
    for x in INPUTS[:2]:
        assert_equal_outputs(invoke(interp, [x]), invoke(reference, [x]))
    real, calls = cl.enqueue_nd_range_kernel, []

    def fail(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:  # of the second partition
            raise opencl_error(cl.Error, "clEnqueueNDRangeKernel", cl.status_code.OUT_OF_RESOURCES)
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(cl, "enqueue_nd_range_kernel", fail)
        with pytest.raises(RuntimeError, match="CL_OUT_OF_RESOURCES"):
            interp.invoke()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"state is lost, .*call reset_all_variables\(\)"):
            interp.invoke()
    interp.reset_all_variables()
    reference.reset_all_variables()
    for x in INPUTS:
        assert_equal_outputs(invoke(interp, [x]), invoke(reference, [x]))


def test_nodes_with_variable_run_alone(device: DeviceInfo) -> None:
    ours, interp, reference = opened(delays([variable()]), device, profiling=True)
    for x in INPUTS[:3]:
        interp.set_tensor(interp.get_input_details()[0]["index"], x)
        (step,) = ours.step_through(interp.invoke)
        assert step.op == "SVDF"
        wanted = invoke(reference, [x])
        assert_equal_outputs([interp.get_tensor(interp.get_output_details()[0]["index"])], wanted)


def test_model_keeps_variable(device: DeviceInfo) -> None:
    graph = delays([variable("a"), variable("b")])
    reference = interpreter(write_model(graph))
    with Model(write_model(graph), device.index, tune="off", in_child_first=False) as model:
        for x in INPUTS[:3]:
            assert_equal_outputs(model.run([x]), invoke(reference, [x]))
        saved = model.state()
        assert {name: array.shape for name, array in saved.items()} == dict.fromkeys(
            "ab", (1, 1, 8)
        )
        later = [model.run([x]) for x in INPUTS]
        model.set_state(saved)
        for x, wanted in zip(INPUTS, later, strict=True):
            assert_equal_outputs(model.run([x]), wanted)
        model.reset()
        reference.reset_all_variables()
        for x in INPUTS[:3]:
            assert_equal_outputs(model.run([x]), invoke(reference, [x]))

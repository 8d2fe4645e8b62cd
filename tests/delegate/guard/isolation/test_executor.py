# SPDX-License-Identifier: Apache-2.0
"""Plans executed by a child process have the same results as in this process."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from delegate import DelegateError, DeviceError, DeviceInfo, Model, OpenCLDelegate, Options
from delegate.inspect import write_model
from tests.delegate.model.test_model_state import CARRIES
from tests.support.compare import inputs_for, interpreter, invoke
from tests.support.isolated import children, worker_of
from tests.support.nets import (
    CHAIN,
    THREE_PARTITIONS,
    assert_equal_outputs,
    assert_runs_exactly,
    conv_pool,
    delegate_for,
)
from tests.support.tiers import slow
from tests.support.variables import SHAPE, counter_model


@slow
def test_partitions_equal_reference_kernels(device: DeviceInfo) -> None:
    for graph in (THREE_PARTITIONS, CHAIN, conv_pool()):
        model = write_model(graph)
        delegate = delegate_for(model, device, isolate=True)
        assert_runs_exactly(model, graph, delegate)
        assert delegate.device == device
        assert worker_of(delegate).number == 1
        delegate.close()


@slow
def test_inputs_may_be_resized(device: DeviceInfo) -> None:
    graph = conv_pool(has_open_batch=True)
    model = write_model(graph)
    delegate = delegate_for(model, device, isolate=True)
    ours, reference = interpreter(model, delegate), interpreter(model)
    rng = np.random.default_rng(3)
    for batch in (1, 3, 2):
        picture = rng.integers(0, 256, (batch, 7, 6, 2)).astype(np.uint8)
        for interp in (ours, reference):
            interp.resize_tensor_input(0, picture.shape)
            interp.allocate_tensors()
        assert_equal_outputs(invoke(ours, [picture]), invoke(reference, [picture]), f"{batch}")


@slow
def test_interpreters_of_one_delegate_run_in_threads(device: DeviceInfo) -> None:
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device, isolate=True)
    wanted = invoke(interpreter(model), inputs_for(THREE_PARTITIONS)[0])
    right = []

    def work() -> None:
        interp = interpreter(model, delegate)
        for _ in range(20):
            result = invoke(interp, inputs_for(THREE_PARTITIONS)[0])
            right.append(all(map(np.array_equal, result, wanted)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert right == [True] * 60


@slow
def test_batches_of_a_model(device: DeviceInfo) -> None:
    net = write_model(conv_pool())
    pictures = np.random.default_rng(1).integers(0, 256, (4, 7, 6, 2)).astype(np.uint8)
    options: dict[str, Any] = {"device": device.index, "batch": 4, "tune": "off"}
    with Model(net, **options) as here, Model(net, isolate=True, **options) as there:
        wanted = here.run(pictures)
        assert_equal_outputs(there.run(pictures), wanted)
        assert_equal_outputs(there.run(pictures[:3]), [each[:3] for each in wanted])
        given = there.empty_input()
        given[:] = pictures
        runs = [there.run_async(pictures), there.run_async(given), there.run_async(pictures[:1])]
        for run, count in zip(runs, (4, 4, 1), strict=True):
            assert_equal_outputs(run.result(), [each[:count] for each in wanted])


@slow
@pytest.mark.parametrize("name", CARRIES)
def test_carried_state_of_model(device: DeviceInfo, name: str) -> None:
    graph, carry = CARRIES[name]
    options: dict[str, Any] = {"carry": carry, "tune": "off"}
    with (
        Model(graph, device.index, **options) as here,
        Model(graph, device.index, isolate=True, **options) as there,
    ):
        rng = np.random.default_rng(2)
        shapes = [(each.shape, each.dtype) for each in here.input_details]
        for step in range(4):
            given = [rng.integers(0, 3, shape).astype(dtype) for shape, dtype in shapes]
            assert_equal_outputs(there.run(given), here.run(given), f"run {step}")
        here_now, there_now = here.state(), there.state()
        assert here_now.keys() == there_now.keys()
        for key, values in here_now.items():
            np.testing.assert_array_equal(there_now[key], values)
        for each in (here, there):
            each.reset()
        assert_equal_outputs(there.run(given), here.run(given), "after a reset")
        for each in (here, there):
            each.set_state(here_now)
        assert_equal_outputs(there.run(given), here.run(given), "with the state put back")
        with pytest.raises(ValueError, match="no state is named 'none'"):
            there.set_state({"none": given[0]})


@slow
def test_variables_of_an_interpreter(device: DeviceInfo) -> None:
    model = counter_model()
    delegate = delegate_for(model, device, (), isolate=True)
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert delegate.partitions == [[*range(7)]]
    for number in (1, 2, 3):
        x = [np.full(SHAPE, number, np.float32)]
        assert_equal_outputs(invoke(ours, x), invoke(reference, x))


@slow
def test_users_process_opens_no_device(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object) -> None:
        raise AssertionError("a context was made")

    monkeypatch.setattr("pyopencl.Context", opened)
    model = write_model(conv_pool())
    assert_runs_exactly(model, conv_pool(), delegate_for(model, device, isolate=True))


@slow
def test_errors_equal_those_of_local_device(device: DeviceInfo) -> None:
    with pytest.raises(DelegateError, match="no OpenCL device matches"):
        OpenCLDelegate(device="no such device", isolate=True)
    with pytest.raises(ValueError, match="not profiled in a process of their own"):
        Options(isolate=True, profiling=True)
    with pytest.raises(ValueError, match="run_timeout=-1 is less than 0"):
        Options(isolate=True, run_timeout=-1)
    with Model(conv_pool(), device.index, tune="off", isolate=True) as model:
        given = model.empty_input()
    with pytest.raises(DeviceError, match="closed"):
        model.run(given)


@slow
def test_child_ends_without_references(device: DeviceInfo) -> None:
    before = children()
    interp = interpreter(write_model(CHAIN), delegate_for(write_model(CHAIN), device, isolate=True))
    assert len(children() - before) == 1
    interp.invoke()  # only the interpreter refers to the delegate
    del interp
    gc.collect()
    assert children() == before


@slow
@pytest.mark.parametrize("isolate", [True, False])
def test_concurrent_models_share_a_child(device: DeviceInfo, isolate: bool) -> None:
    before, given = children(), inputs_for(conv_pool())[0]
    options: dict[str, Any] = {"tune": "off", "isolate": isolate}
    with Model(conv_pool(), device.index, **options) as first:
        wanted = first.run(given)
        with Model(conv_pool(), device.index, 2, share_device_with=first, **options) as second:
            assert len(children() - before) == isolate
            several = [np.concatenate([each, each]) for each in given]
            assert_equal_outputs([each[1:] for each in second.run(several)], wanted)
        assert_equal_outputs(first.run(given), wanted)
    assert children() == before

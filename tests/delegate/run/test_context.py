# SPDX-License-Identifier: Apache-2.0
"""The shared OpenCL context of a process: when it is created and released."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from delegate import DeviceError, DeviceInfo, Model, OpenCLDelegate, Options
from delegate.inspect import write_model
from delegate.model.multi_device import MultiDevice
from delegate.run.context import Context, opencl
from delegate.run.device import Device
from tests.support.compare import inputs_for, interpreter, invoke
from tests.support.nets import net
from tests.support.opencl import opencl_error
from tests.support.tiers import slow

GRAPH = net([("ADD", [0, 0], 1), ("ADD", [1, 0], 2)])
MODEL = write_model(GRAPH)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Collect new contexts, after those of other tests were released."""
    gc.collect()
    created: list[object] = []
    make = cl.Context

    def counted(*arguments: object) -> cl.Context:
        created.append(arguments)
        return make(*arguments)

    monkeypatch.setattr("delegate.run.context._shared", weakref.WeakValueDictionary())
    monkeypatch.setattr(cl, "Context", counted)
    return created


def delegate_on(device: DeviceInfo, **options: Any) -> OpenCLDelegate:
    return OpenCLDelegate(
        MODEL,
        options=Options(device=device.index, min_nodes_per_partition=1, tune="off", **options),
    )


def device_of(user: OpenCLDelegate | Model) -> Device:
    opened = user if isinstance(user, OpenCLDelegate) else user._on
    assert not isinstance(opened, MultiDevice)
    return opened._engine.device


def context_of(user: OpenCLDelegate | Model) -> Context:
    return device_of(user).context


def assert_exact(delegate: OpenCLDelegate) -> None:
    inputs = inputs_for(GRAPH)[0]
    ours, expected = (invoke(interpreter(MODEL, each), inputs) for each in (delegate, None))
    assert np.array_equal(ours[0], expected[0])


def test_second_delegate_shares_context_and_programs(
    device: DeviceInfo, opened: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = delegate_on(device)
    assert_exact(first)
    assert len(opened) == 1
    monkeypatch.setattr(cl, "Program", lambda *_: pytest.fail("a program is made again"))
    second = delegate_on(device)
    assert_exact(second)
    model = Model(MODEL, device.index, tune="off")
    assert context_of(first) is context_of(second) is context_of(model)
    assert len(opened) == 1
    queues = {device_of(user).queue.int_ptr for user in (first, second, model)}
    assert len(queues) == 3


@slow
def test_profile_and_own_context_are_separate(device: DeviceInfo, opened: list[object]) -> None:
    users = [
        delegate_on(device),
        delegate_on(device, device_profile="v3d"),
        delegate_on(device, own_context=True),
        delegate_on(device, own_context=True),
        Model(MODEL, device.index, tune="off", own_context=True),
        delegate_on(device),
    ]
    assert len({id(context_of(user)) for user in users}) == len(opened) == 5
    assert context_of(users[0]) is context_of(users[-1])


def test_last_close_releases_context(device: DeviceInfo, opened: list[object]) -> None:
    first, second = delegate_on(device), delegate_on(device)
    model = Model(MODEL, device.index, tune="off")
    alive = interpreter(MODEL, first)
    context = weakref.ref(context_of(first))
    programs = [weakref.ref(each) for each in context_of(first).programs.values()]
    gc.disable()  # by reference counting alone
    try:
        for user in (first, second, first):
            user.close()
            assert context() is not None
        model.close()
        assert [each() for each in (context, *programs)] == [None] * (1 + len(programs))
    finally:
        gc.enable()
    assert first.device == model.device == device
    with pytest.raises(RuntimeError, match="the delegate was closed"):
        invoke(alive, inputs_for(GRAPH)[0])
    assert_exact(first)  # it opens a new one
    assert len(opened) == 2
    first.close()


def test_dropped_delegate_releases_context(device: DeviceInfo, opened: list[object]) -> None:
    first, second = delegate_on(device), delegate_on(device)
    assert_exact(second)
    context = weakref.ref(context_of(first))
    del first
    assert context() is not None
    del second
    assert context() is None


def fails(name: str) -> Any:
    def failing(*_: object, **__: object) -> None:
        code = getattr(cl.status_code, name)
        raise opencl_error(cl.RuntimeError, "clEnqueueNDRangeKernel", code)

    return failing


@pytest.mark.parametrize(
    ("status", "is_lost"),
    [
        ("OUT_OF_RESOURCES", True),
        ("INVALID_COMMAND_QUEUE", True),
        ("MEM_OBJECT_ALLOCATION_FAILURE", False),
        ("INVALID_BUFFER_SIZE", False),
    ],
)
def test_lost_device_does_not_affect_next(
    device: DeviceInfo,
    opened: list[object],
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    is_lost: bool,
) -> None:
    first, inputs = delegate_on(device), inputs_for(GRAPH)[0]
    ours = interpreter(MODEL, first)
    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_nd_range_kernel", fails(status))
        with pytest.raises(RuntimeError, match=f"running: CL_{status}"):
            invoke(ours, inputs)
    second, third = delegate_on(device), delegate_on(device)
    assert_exact(second)
    assert (context_of(second) is context_of(first)) is not is_lost
    assert context_of(third) is context_of(second)
    assert len(opened) == 1 + is_lost


def test_error_of_own_context_does_not_affect_shared_one(
    device: DeviceInfo, opened: list[object]
) -> None:
    first, apart = delegate_on(device), Device(device)
    with pytest.raises(DeviceError), opencl("running", apart.context):
        fails("OUT_OF_RESOURCES")()
    assert context_of(delegate_on(device)) is context_of(first)


def test_closed_device_is_an_error(device: DeviceInfo) -> None:
    closed = Device(device)
    closed.close()
    closed.close()
    for use in (lambda: closed.queue, lambda: closed.context, closed.another_queue):
        with pytest.raises(DeviceError, match="the device was closed"):
            use()


def test_threads_can_open_at_once(device: DeviceInfo, opened: list[object]) -> None:
    start, results = threading.Barrier(6), []

    def work() -> None:
        start.wait()
        delegate = delegate_on(device)
        assert_exact(delegate)
        results.append(delegate)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    assert len({id(context_of(each)) for each in results}) == len(opened) == 1

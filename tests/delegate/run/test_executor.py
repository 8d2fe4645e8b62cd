# SPDX-License-Identifier: Apache-2.0
"""Executors: memory, runs and times."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest
from numpy.typing import NDArray

from delegate import DeviceError, DeviceInfo
from delegate.inspect import Graph, read_device_profile
from delegate.isa import PARAMS_ARGUMENT
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.tuning.bench import DeviceBench
from delegate.run.copy_strategies import (
    DIRECT,
    STRATEGIES,
    CopyStrategy,
    DirectAccess,
    MappedCopy,
    PinnedCopy,
    copy_strategy_for,
)
from delegate.run.device import Device
from delegate.run.executor import Executor
from delegate.run.mapping import unmap
from tests.support.model import const, graph_of, op
from tests.support.nets import image, net
from tests.support.opencl import opencl_error
from tests.support.schedules import fallback_schedule

# 1 = 0 + 0, 2 = 1 + 0; both are outputs.
SUMS = net([("ADD", [0, 0], 1), ("ADD", [1, 0], 2)], [1])


def executor_on(device: DeviceInfo, graph: Graph = SUMS, profiling: bool = False) -> Executor:
    opened = Device(device, profiling)
    return planned_executor(opened, Kernels(opened), fallback_schedule(graph))


@cache
def transfers_on(device: DeviceInfo) -> tuple[str, ...]:
    """Return the copy strategies that copy right bytes on the device."""
    opened = Device(device)
    return tuple(DeviceBench(opened, Kernels(opened)).copy_strategies())


def require_direct(device: DeviceInfo) -> None:
    """Skip the test if kernels do not work in mapped memory."""
    if Device(device).shares_memory and DIRECT not in transfers_on(device):
        assert device.platform == "rusticl", f"'{DIRECT}' is wrong on {device.name}"
        pytest.skip(f"{device.platform} {device.driver} keeps another copy of mapped memory")


def run(executor: Executor, values: NDArray[np.uint8]) -> list[list[int]]:
    outputs = [np.zeros(values.size, np.uint8) for _ in executor.plan.outputs]
    executor.run([values], outputs)
    return [output.tolist() for output in outputs]


def sums(values: NDArray[np.uint8]) -> list[list[int]]:
    # Equal scales and zero points, so that the quantised sum is the integers' sum.
    real = values.astype(int) - 128
    once = np.clip(2 * real, -128, 127)
    return [(once + 128).tolist(), (np.clip(once + real, -128, 127) + 128).tolist()]


def test_consecutive_runs_have_their_inputs(device: DeviceInfo) -> None:
    executor = executor_on(device)
    rng = np.random.default_rng(4)
    for _ in range(4):
        values = rng.integers(0, 256, 18).astype(np.uint8)
        assert run(executor, values) == sums(values)


@pytest.mark.parametrize("transfer", STRATEGIES)
@pytest.mark.parametrize("batch", [1, 3])
def test_copy_strategies_copy_equal_bytes(device: DeviceInfo, transfer: str, batch: int) -> None:
    if (transfer, batch) == (DIRECT, 1):
        require_direct(device)
    opened = Device(device)
    executor = planned_executor(
        opened, Kernels(opened), fallback_schedule(SUMS), batch, copy_strategy=transfer
    )
    rng = np.random.default_rng(4)
    for _ in range(3):
        values = rng.integers(0, 256, batch * 18).astype(np.uint8)
        assert run(executor, values) == sums(values)
    with pytest.raises(DeviceError, match=f"17 bytes given, {18 * batch} planned"):
        executor.run([values[:17]], [values, values])
    executor.close()
    with pytest.raises(DeviceError, match="the delegate was closed"):
        run(executor, values)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("profile", [None, "v3d"])
def test_parameter_blocks_as_arguments_have_equal_results(
    device: DeviceInfo, batch: int, profile: str | None
) -> None:
    limits = None if profile is None else read_device_profile(profile)
    opened = Device(device, proven=[PARAMS_ARGUMENT], profile=limits)
    kernels, schedule = Kernels(opened), fallback_schedule(SUMS)
    assert all(kernels.is_argument(launch) for launch in schedule.launches)
    executor = planned_executor(opened, kernels, schedule, batch)
    values = np.random.default_rng(4).integers(0, 256, batch * 18).astype(np.uint8)
    assert run(executor, values) == sums(values)


def test_memory_that_cannot_be_unmapped_is_not_freed() -> None:
    # pyopencl unmaps again when the object is freed, and aborts if that fails, too.
    class Mapping:
        def release(self, queue: object) -> None:
            raise opencl_error(cl.LogicError, "clEnqueueUnmapMemObject", -5)

    refused = Mapping()
    freed = weakref.ref(refused)
    with pytest.raises(cl.Error):
        unmap(refused, None)  # type: ignore[arg-type]
    del refused
    gc.collect()
    assert freed() is not None


def test_submitted_runs_read_host_arrays(device: DeviceInfo) -> None:
    for transfer in transfers_on(device):
        opened = Device(device)
        executor = planned_executor(
            opened, Kernels(opened), fallback_schedule(SUMS), copy_strategy=transfer
        )
        given, *taken = (executor.copy_strategy.host_array(18) for _ in range(3))
        given[:] = np.arange(18) + 120
        executor.submit([given], taken)
        executor.copy_strategy.wait()
        assert [array.tolist() for array in taken] == sums(given)


def test_executors_share_a_device(device: DeviceInfo) -> None:
    opened = Device(device)
    kernels = Kernels(opened)
    first, second = (planned_executor(opened, kernels, fallback_schedule(SUMS)) for _ in range(2))
    low, high = np.full(18, 120, np.uint8), np.full(18, 150, np.uint8)
    for _ in range(2):
        assert run(first, low) == sums(low)
        assert run(second, high) == sums(high)
    first.close()
    assert run(second, low) == sums(low)


def test_constants_are_uploaded_once(device: DeviceInfo) -> None:
    ramp = const(np.arange(18, dtype=np.uint8).reshape(1, 3, 3, 2) + 119, 0.5, 128)
    source, middle, result = image(), image(), image()
    graph = graph_of([op("ADD", [source, ramp], [middle]), op("ADD", [middle, ramp], [result])])
    executor = executor_on(device, graph)
    for value in (100, 128, 140):
        expected = np.full(18, value) + 2 * (np.arange(18) + 119 - 128)
        assert run(executor, np.full(18, value, np.uint8)) == [expected.tolist()]


@pytest.mark.parametrize("wrong", [0, 17, 19])
def test_wrong_size_is_refused_before_the_run(device: DeviceInfo, wrong: int) -> None:
    executor = executor_on(device)
    good = np.full(18, 7, np.uint8)
    outputs = [np.zeros(18, np.uint8), np.zeros(18, np.uint8)]
    with pytest.raises(DeviceError, match=f"{wrong} bytes given, 18 planned"):
        executor.run([np.zeros(wrong, np.uint8)], outputs)
    with pytest.raises(DeviceError, match=f"{wrong} bytes given, 18 planned"):
        executor.run([good], [outputs[0], np.zeros(wrong, np.uint8)])
    assert not outputs[0].any()


def test_closed_executor_is_an_error_and_close_is_idempotent(device: DeviceInfo) -> None:
    executor = executor_on(device)
    executor.close()
    executor.close()
    with pytest.raises(DeviceError, match="the delegate was closed"):
        run(executor, np.zeros(18, np.uint8))


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (255, "arena of 256 bytes: one buffer of this device holds at most 255"),
        (63, "arena of 256 bytes: one buffer of this device holds at most 63"),
    ],
)
def test_program_larger_than_a_buffer_is_refused(device: DeviceInfo, limit: int, text: str) -> None:
    opened = Device(device)
    opened.max_alloc_bytes = limit
    with pytest.raises(DeviceError, match=text):
        planned_executor(opened, Kernels(opened), fallback_schedule(SUMS))
    opened.max_alloc_bytes = 256
    planned_executor(opened, Kernels(opened), fallback_schedule(SUMS)).close()


def test_failed_allocation_leaks_no_memory(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[cl.Buffer] = []
    real = cl.Buffer

    def second_fails(*arguments: object) -> cl.Buffer:
        if created:
            code = cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE
            raise opencl_error(cl.MemoryError, "clCreateBuffer", code)
        created.append(real(*arguments))
        return created[-1]

    monkeypatch.setattr(cl, "Buffer", second_fails)
    refusal = r"allocating 0 KiB of memory: CL_MEM_OBJECT_ALLOCATION_FAILURE"
    with pytest.raises(DeviceError, match=refusal):
        executor_on(device)
    with pytest.raises(cl.LogicError, match="double-unref"):
        created[0].release()


def test_times_are_of_last_run(device: DeviceInfo) -> None:
    executor = executor_on(device, profiling=True)
    assert executor.profile() == []
    run(executor, np.zeros(18, np.uint8))
    rows = executor.profile()
    assert [(row.node, row.op, row.kernel) for row in rows] == [
        (0, "ADD", "add_quant8"),
        (1, "ADD", "add_quant8"),
    ]
    assert all(row.microseconds > 0 and row.global_size > 0 for row in rows)
    executor.close()
    assert executor.profile() == []


@pytest.mark.parametrize("code", ["PROFILING_INFO_NOT_AVAILABLE", "INVALID_EVENT", "reversed"])
def test_invalid_event_times_are_zero(
    code: str, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        @property
        def profile(self) -> SimpleNamespace:
            if code == "reversed":
                return SimpleNamespace(queued=1, submit=2, start=9, end=3)
            status = getattr(cl.status_code, code)
            raise opencl_error(cl.RuntimeError, "clGetEventProfilingInfo", status)

    executor = executor_on(device, profiling=True)
    run(executor, np.zeros(18, np.uint8))
    events = executor._copy_strategy.events
    monkeypatch.setattr(executor._copy_strategy, "events", [Refusing() for _ in events])
    assert [(row.microseconds, row.clock_ns) for row in executor.profile()] == [
        (0, (0, 0, 0, 0))
    ] * 2
    run(executor, np.zeros(18, np.uint8))  # the device goes on
    executor.close()


def test_batch_is_copied_instead_of_mapped() -> None:
    def of(batch: int, shares_memory: bool) -> list[type[CopyStrategy]]:
        return [copy_strategy_for(name, batch, shares_memory) for name in STRATEGIES]

    assert of(1, True) == [CopyStrategy, MappedCopy, PinnedCopy, DirectAccess]
    assert of(1, False) == [CopyStrategy, MappedCopy, PinnedCopy, CopyStrategy]
    assert of(2, True) == [CopyStrategy, CopyStrategy, PinnedCopy, CopyStrategy]


class Interrupted(Exception):
    """An exception that interrupts a run."""


def test_interrupted_run_ends_before_next_inputs_are_written(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Device(device)
    if not opened.shares_memory:
        pytest.skip("the host does not see this device's memory")
    require_direct(device)
    executor = planned_executor(
        opened, Kernels(opened), fallback_schedule(SUMS), copy_strategy=DIRECT
    )
    transfer = executor.copy_strategy
    assert isinstance(transfer, DirectAccess)
    finish, seen = cl.CommandQueue.finish, []

    def interrupted() -> None:
        DirectAccess.enqueue(transfer)
        raise Interrupted

    def watched(queue: cl.CommandQueue) -> None:
        seen.append(transfer._inputs[0].tobytes().hex())
        finish(queue)

    first, second = (np.full(18, value, np.uint8) for value in (120, 150))
    with monkeypatch.context() as patch:
        patch.setattr(transfer, "enqueue", interrupted)
        with pytest.raises(Interrupted):
            run(executor, first)
    with monkeypatch.context() as patch:
        patch.setattr(cl.CommandQueue, "finish", watched)
        assert run(executor, second) == sums(second)
    assert seen == [first.tobytes().hex()]  # waited for, with the first inputs in place
    executor.close()


@pytest.mark.parametrize("transfer", STRATEGIES)
def test_empty_tensor(device: DeviceInfo, transfer: str) -> None:
    if transfer == DIRECT:
        require_direct(device)
    plain, opened = fallback_schedule(SUMS), Device(device)
    first, last = image(0, 3), image(0, 3)
    schedule = replace(plain, inputs=(first, *plain.inputs), outputs=(*plain.outputs, last))
    executor = planned_executor(opened, Kernels(opened), schedule, copy_strategy=transfer)
    nothing, values = np.empty(0, np.uint8), np.full(18, 130, np.uint8)
    results = [np.empty(18, np.uint8), np.empty(18, np.uint8)]
    for _ in range(2):
        executor.run([nothing, values], [*results, nothing])
        assert [set(each.tolist()) for each in results] == [{132}, {134}]
    executor.inspector().run([nothing, values], [*results, nothing], [])

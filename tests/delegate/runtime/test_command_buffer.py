# SPDX-License-Identifier: Apache-2.0
"""Recorded launches: the same outputs at each run, and what is refused."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from delegate import DeviceError, DeviceInfo
from delegate.isa import COMMAND_BUFFER
from delegate.runtime.command_buffer import CommandBuffer, _check
from delegate.runtime.device import Device
from delegate.runtime.executor import ONE_BY_ONE, RECORDED, Executor
from delegate.runtime.kernels import Kernels
from tests.delegate.runtime.test_executor import SUMS, program_of, run, sums
from tests.support.opencl import records

pytestmark = pytest.mark.every_driver


def test_the_same_outputs_at_each_run(device: DeviceInfo) -> None:
    is_recorded = records(device)
    opened = Device(device, proven=[COMMAND_BUFFER] * is_recorded)
    executor = Executor(opened, Kernels(opened), program_of(SUMS), form=RECORDED)
    assert executor.form == (RECORDED if is_recorded else ONE_BY_ONE)
    rng = np.random.default_rng(5)
    for _ in range(5):
        values = rng.integers(0, 256, 18).astype(np.uint8)
        assert run(executor, values) == sums(values)
    assert executor.repeat(3) > 0
    executor.close()
    with pytest.raises(DeviceError, match="the delegate was closed"):
        run(executor, values)


def test_without_a_proof_nothing_is_recorded(device: DeviceInfo) -> None:
    opened = Device(device)
    with pytest.raises(DeviceError, match="command buffers were not proven to work here"):
        CommandBuffer(opened, opened.queue, [])
    executor = Executor(opened, Kernels(opened), program_of(SUMS), form=RECORDED)
    assert executor.form == ONE_BY_ONE


def test_a_failing_call_is_named() -> None:
    _check("clFinalizeCommandBufferKHR", 0)
    with pytest.raises(DeviceError, match="clFinalizeCommandBufferKHR: CL_INVALID_OPERATION"):
        _check("clFinalizeCommandBufferKHR", cl.status_code.INVALID_OPERATION)

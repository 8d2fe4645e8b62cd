# SPDX-License-Identifier: Apache-2.0
"""No run uses a partial state: some faults of keeping.py, and their detection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyopencl as cl
import pytest

from delegate import DeviceInfo
from delegate.host.variable_tensors import VariableTensors
from delegate.run.state import State
from tests.attacks import keeping
from tests.attacks.faults import Fault
from tests.attacks.keeping import (
    ENDED,
    KINDS,
    REFUSED,
    RENEWED,
    RIGHT,
    STATE_LOST,
    Bed,
    Step,
    judged,
    right_of,
)
from tests.support.opencl import opencl_error
from tests.support.tiers import slow

each_kind = pytest.mark.parametrize("kind", KINDS)
INVALID_COMMAND_QUEUE = -36
BedOf = Callable[[str, DeviceInfo], Bed]


@pytest.fixture(scope="module")
def bed_of(faults: Path, tmp_path_factory: pytest.TempPathFactory) -> BedOf:
    """Return a function that makes the test bed for a kind of state on a device."""

    @cache
    def bed(kind: str, device: DeviceInfo) -> Bed:
        return Bed(kind, str(device.index), faults, tmp_path_factory.mktemp("bed"))

    return bed


@slow
@pytest.mark.parametrize(
    ("kind", "call"),
    [
        *((kind, "clEnqueueNDRangeKernel") for kind in KINDS),
        *((kind, "clEnqueueCopyBuffer") for kind in KINDS if kind != "tensors"),
    ],
)
def test_runs_after_a_failure_are_errors(
    device: DeviceInfo, bed_of: BedOf, kind: str, call: str
) -> None:
    bed = bed_of(kind, device)
    # Another status, because pyopencl retries if memory is exhausted.
    fault = Fault(call, bed.calls()[call] // 2, "error", status=INVALID_COMMAND_QUEUE)
    assert bed.ended(fault) == RENEWED


@slow
@each_kind
def test_runs_after_device_loss_are_errors(device: DeviceInfo, bed_of: BedOf, kind: str) -> None:
    bed = bed_of(kind, device)
    call = "clEnqueueNDRangeKernel"
    nth = max(1, bed.calls()[call] // 2)
    assert bed.ended(Fault(call, nth, "error", lasts=True)) in (ENDED, REFUSED)


@slow
@each_kind
def test_deaths_of_children_between_runs_lose_no_state(
    device: DeviceInfo, bed_of: BedOf, kind: str
) -> None:
    allowed = {RIGHT, RENEWED}
    if kind == "tensors":  # the resize needs a child for its kernels, and each dies
        allowed.add(ENDED)
    assert bed_of(kind, device).lonely() in allowed


@slow
@pytest.mark.device
@each_kind
def test_partial_state_is_detected(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    real: Any = cl.enqueue_nd_range_kernel
    real_run, runs, calls = keeping.run_once, [0], [0]

    def run_once(made: Any, number: int) -> Any:
        runs[0], calls[0] = runs[0] + 1, 0
        return real_run(made, number)

    def fails_once(*arguments: Any, **keywords: Any) -> Any:
        calls[0] += 1
        if (runs, calls) == ([2], [2]):  # the second launch of the second run
            raise opencl_error(cl.Error, "clEnqueueNDRangeKernel", cl.status_code.OUT_OF_RESOURCES)
        return real(*arguments, **keywords)

    def ended() -> str:
        runs[0] = 0
        return judged(kind, [*keeping.step_results(kind, str(device.index), is_lonely=False)])

    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", fails_once)
    monkeypatch.setattr(keeping, "run_once", run_once)
    assert ended() == RENEWED
    for keeper in (State, VariableTensors):
        monkeypatch.setattr(keeper, "lose", lambda *_: None)
    assert "goes on after" in ended()


def test_judged_describes_faults() -> None:
    right = right_of("variables")
    good: Sequence[Step] = [("run", False, right[0]), ("run", False, right[1])]
    bad, lost = ("run", True, "CL_OUT_OF_RESOURCES"), ("run", True, STATE_LOST)
    again, first = ("begin", False, None), ("run", False, right[0])
    unbuilt = ("resize", True, "no memory")
    for steps, ended in (
        ([], REFUSED),
        (good, RIGHT),
        ([first, bad, lost, again, first], RENEWED),
        ([first, bad, lost, lost], ENDED),
        ([first, bad, bad], f"step 2 does not say that {STATE_LOST}: CL_OUT_OF_RESOURCES"),
        ([first, unbuilt, bad, bad], ENDED),
        ([first, unbuilt, bad, good[1]], "step 3 goes on after CL_OUT_OF_RESOURCES"),
        ([first, bad, lost, good[1]], "step 3 goes on after CL_OUT_OF_RESOURCES"),
        ([first, first], f"step 1 gives {right[0]} instead of {right[1]}"),
        ("exit -9: ", "exit -9: "),
    ):
        assert judged("variables", steps) == ended

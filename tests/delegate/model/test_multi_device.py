# SPDX-License-Identifier: Apache-2.0
"""Scheduling of work on several fake devices, which are slow, fail, hang or lie."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceError, DeviceInfo
from delegate.guard.children import process
from delegate.model.multi_device import DeviceWorker, MultiDevice
from delegate.model.one_device import OneDevice
from delegate.model.run import Run
from tests.support.process import run_python
from tests.support.tiers import slow

Array = NDArray[Any]
WAIT_SECONDS = 60.0  # the limit of a test's waits


class Clock:
    """A fake clock that advances a little with each call."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now


class FakeDevice:
    """A fake device that adds a number to its input, once its gate is open."""

    slots = 2

    def __init__(self, index: int, adds: int = 1) -> None:
        self.device = DeviceInfo(index, "P", "1", f"stand-in {index}", "V", "3.0", "1", "cpu")
        self.tuning_left = index
        self.adds = adds
        self.clock = Clock()
        self.seconds = 0.0  # duration of a run, by the clock
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Semaphore(0)
        self.fails_at: int | None = None  # index of the run that fails
        self.runs = 0
        self.is_closed = False

    def start(self, arrays: list[Array], count: int, is_given: bool = False) -> FakeDevice._Run:
        number, self.runs = self.runs, self.runs + 1
        self.begun.release()
        return FakeDevice._Run(self, [array + self.adds for array in arrays], number)

    def run(self, arrays: list[Array], count: int) -> list[Array]:
        return FakeDevice._Run(self, [array + self.adds for array in arrays], self.runs).result()

    def close(self) -> None:
        self.is_closed = True

    class _Run:
        def __init__(self, owner: FakeDevice, outputs: list[Array], number: int) -> None:
            self._owner, self._outputs, self._number = owner, outputs, number

        def result(self) -> list[Array]:
            assert self._owner.gate.wait(WAIT_SECONDS)
            if self._owner.fails_at is not None and self._number >= self._owner.fails_at:
                raise DeviceError("running: CL_DEVICE_NOT_AVAILABLE")
            self._owner.clock.now += self._owner.seconds
            return self._outputs


@contextmanager
def spread_over(*devices: FakeDevice, paces: Sequence[float] = ()) -> Iterator[MultiDevice]:
    """Yield a MultiDevice with the fake clock; `paces`: known seconds of a device's run."""
    multi_device = MultiDevice([cast(OneDevice, device) for device in devices], devices[0].clock)
    for device, device.seconds in zip(devices, paces, strict=False):
        device.clock = devices[0].clock
    if paces:
        multi_device.on_each(piece(0), 2)
    for device in devices:
        device.seconds = 0.0
    try:
        yield multi_device
    finally:
        for device in devices:
            device.gate.set()
        multi_device.close()
        assert all(device.is_closed for device in devices)


def piece(number: int) -> list[Array]:
    return [np.full((2, 3), number)]


def assert_outputs(pieces: list[Run], adds: int = 1) -> None:
    """Assert that each piece of work has its outputs."""
    for number, each in enumerate(pieces):
        assert np.array_equal(each.result()[0], piece(number)[0] + adds), number


def removed(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_outputs_are_in_order(count: int) -> None:
    with spread_over(*(FakeDevice(number) for number in range(count))) as multi_device:
        pieces = [multi_device.start(piece(number), 2) for number in range(40)]
        assert_outputs(pieces)
        assert sum(portion.pictures for portion in multi_device.portions) == 80
        assert [portion.device.index for portion in multi_device.portions] == list(range(count))
        assert {portion.failure for portion in multi_device.portions} == {""}
        assert multi_device.tuning_left == sum(range(count))


@pytest.mark.parametrize(
    ("own", "other", "takes"),
    [
        ((0.0, 0), (0.0, 0), True),  # neither was measured
        ((0.0, 0), (1.0, 2), True),
        ((0.0, 1), (1.0, 2), False),  # it is measured now
        ((1.0, 0), (0.0, 1), True),
        ((1.0, 1), (0.0, 0), True),
        ((1.0, 0), (1.0, 0), True),
        ((1.0, 1), (1.0, 0), False),
        ((1.0, 1), (1.0, 1), True),
        ((1.0, 2), (1.0, 1), False),  # it is full
        ((1.9, 0), (1.0, 0), False),
        ((1.9, 0), (1.0, 1), True),
        ((3.5, 0), (1.0, 1), False),
        ((3.5, 0), (1.0, 2), True),  # the other one is full
        ((3.5, 1), (1.0, 2), False),
        ((1.4, 1), (1.0, 2), True),
        ((100.0, 0), (1.0, 2), True),
    ],
)
def test_device_takes_work_that_no_other_finishes_sooner(
    own: tuple[float, int], other: tuple[float, int], takes: bool
) -> None:
    workers = [
        DeviceWorker(cast(OneDevice, FakeDevice(number)), lambda: 0.0) for number in range(2)
    ]
    for worker, (pace, begun) in zip(workers, (own, other), strict=True):
        worker.pace = pace
        worker.running.extend(Run(lambda _: None, piece(0), 2) for _ in range(begun))
    assert workers[0].should_take(workers) == takes


def test_late_device_does_not_block_others() -> None:
    late, slow = (
        DeviceWorker(cast(OneDevice, FakeDevice(n)), lambda: 50.0, pace=2 * n + 1) for n in (0, 1)
    )
    late.running.append(Run(lambda _: None, piece(0), 2))
    late.since = 49.5
    assert not slow.should_take([late, slow])
    late.since = 40.0
    assert slow.should_take([late, slow])


def test_fast_device_runs_more() -> None:
    fast, slow = FakeDevice(0), FakeDevice(1)
    is_over = threading.Event()

    class FourTimesSlower(FakeDevice._Run):
        def result(self) -> list[Array]:
            last = fast.runs + 4
            for _ in range(100):  # at the end the fast one has no more to run
                if fast.runs >= last or is_over.wait(0.001):
                    break
            return self._outputs

    slow.start = lambda arrays, *_: FourTimesSlower(  # type: ignore[method-assign]
        slow, [array + 1 for array in arrays], 0
    )
    devices = MultiDevice([cast(OneDevice, device) for device in (fast, slow)])
    with contextlib.closing(devices):
        pieces = [devices.start(piece(number), 2) for number in range(60)]
        assert_outputs(pieces)
        is_over.set()
    ours, theirs = devices.portions
    assert ours.pictures + theirs.pictures == 120
    assert ours.pictures > 2 * theirs.pictures


def test_busy_device_leaves_work_to_idle_one() -> None:
    one, other = FakeDevice(0), FakeDevice(1)
    one.gate.clear()
    other.gate.clear()
    with spread_over(one, other) as multi_device:
        pieces = [multi_device.start(piece(number), 2) for number in range(2)]
        for device in (one, other):
            assert device.begun.acquire(timeout=WAIT_SECONDS)
        assert (one.runs, other.runs) == (1, 1)
        one.gate.set()
        other.gate.set()
        assert_outputs(pieces)


@pytest.mark.parametrize("fails_at", [0, 1, 5])
def test_work_of_failed_device_goes_to_others(
    fails_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = FakeDevice(0), FakeDevice(1)
    bad.fails_at = fails_at
    good.gate.clear()  # so that the other one takes several
    pieces: list[Run] = []
    with spread_over(good, bad) as multi_device:
        starts = (multi_device.start(piece(number), 2) for number in range(fails_at + 3))
        thread = threading.Thread(target=lambda: pieces.extend(starts))
        thread.start()
        end = time.monotonic() + WAIT_SECONDS
        while multi_device.portions[1].failure == "" and time.monotonic() < end:
            time.sleep(1e-3)
        good.gate.set()
        thread.join(WAIT_SECONDS)
        assert_outputs(pieces)
        assert multi_device.portions[1].pictures <= 2 * fails_at
        assert sum(portion.pictures for portion in multi_device.portions) == 2 * len(pieces)
        assert bad.device not in {each.device for each in pieces[fails_at + 2 :]}
    assert removed(caplog) == [
        "device 1 (stand-in 1) is left out, and the others take its pictures: "
        "running: CL_DEVICE_NOT_AVAILABLE"
    ]


def test_failure_of_all_devices_raises_last_error(caplog: pytest.LogCaptureFixture) -> None:
    devices = [FakeDevice(number) for number in range(3)]
    for device in devices:
        device.fails_at = 0
        device.gate.clear()
    with spread_over(*devices) as multi_device:
        lost = [multi_device.start(piece(number), 2) for number in range(5)]
        for device in devices:
            device.gate.set()
        for use in (
            *(each.result for each in lost),
            lambda: multi_device.start(piece(0), 2),
            lambda: multi_device.on_each(piece(0), 2),
            lambda: multi_device.empty_input(cast(Any, None)),
        ):
            with pytest.raises(DeviceError, match="CL_DEVICE_NOT_AVAILABLE"):
                use()
    assert len(removed(caplog)) == 2  # the last one is not logged: it is raised


def test_foreign_exception_removes_device(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = FakeDevice(0), FakeDevice(1)

    def start(*arguments: Any) -> None:
        bad.begun.release()
        raise MemoryError

    monkeypatch.setattr(bad, "start", start)
    with spread_over(good, bad, paces=(1.0, 1.0)) as multi_device:
        good.gate.clear()
        pieces = [multi_device.start(piece(number), 2) for number in range(2)]
        assert bad.begun.acquire(timeout=WAIT_SECONDS)
        good.gate.set()
        assert_outputs(pieces)
    assert multi_device.portions[1].failure == "MemoryError"


def test_hanging_device_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    good, hanging = FakeDevice(0), FakeDevice(1)
    multi_device = MultiDevice([cast(OneDevice, each) for each in (good, hanging)], good.clock)
    multi_device.on_each(piece(0), 2)
    hanging.gate.clear()
    done = threading.Semaphore(0)
    pieces = [multi_device.start(piece(number), 2) for number in range(2)]
    for each in pieces:
        each.when_done(done.release)
    assert hanging.begun.acquire(timeout=WAIT_SECONDS)
    assert done.acquire(timeout=WAIT_SECONDS)
    good.clock.now += 100
    pieces += [multi_device.start(piece(number), 2) for number in range(2, 5)]
    assert_outputs(pieces)
    multi_device.close()  # returns
    assert good.is_closed
    assert not hanging.is_closed
    (line,) = removed(caplog)
    assert line.startswith("device 1 (stand-in 1) is left out, and the others take its pictures: ")
    assert line.endswith("it gave no answer within 100 s")
    hanging.gate.set()


def test_only_device_is_awaited() -> None:
    only = FakeDevice(0)
    only.gate.clear()
    with spread_over(only) as multi_device:
        first = multi_device.start(piece(0), 2)
        assert only.begun.acquire(timeout=WAIT_SECONDS)
        only.clock.now += 1e6
        threading.Timer(0.05, only.gate.set).start()
        assert_outputs([first])


def test_removed_device_returns_its_work() -> None:
    good, liar = FakeDevice(0), FakeDevice(1, adds=5)
    with spread_over(good, liar, paces=(1.0, 1.0)) as multi_device:
        good.gate.clear()
        liar.gate.clear()
        pieces = [multi_device.start(piece(number), 2) for number in range(4)]
        assert liar.begun.acquire(timeout=WAIT_SECONDS)
        multi_device.leave_out(liar.device, "it computes wrongly")
        liar.gate.set()
        good.gate.set()
        assert_outputs(pieces)
        assert multi_device.portions[1].failure == "it computes wrongly"
        assert multi_device.portions[1].pictures == 0


def test_pieces_in_flight_are_limited() -> None:
    one, other = FakeDevice(0), FakeDevice(1)
    with spread_over(one, other, paces=(1.0, 1.0)) as multi_device:
        one.gate.clear()
        other.gate.clear()
        pieces: list[Run] = []
        starts = (multi_device.start(piece(number), 2) for number in range(20))
        thread = threading.Thread(target=lambda: pieces.extend(starts))
        thread.start()
        for device in (one, other):
            assert device.begun.acquire(timeout=WAIT_SECONDS)
        thread.join(0.1)
        assert len(pieces) <= 2 * (FakeDevice.slots + 1)
        one.gate.set()
        other.gate.set()
        thread.join(WAIT_SECONDS)
        assert_outputs(pieces)


def test_waiting_work_can_be_cancelled() -> None:
    only = FakeDevice(0)
    only.gate.clear()
    done = threading.Semaphore(0)
    with spread_over(only) as multi_device:
        pieces = [multi_device.start(piece(0), 2)]
        assert only.begun.acquire(timeout=WAIT_SECONDS)
        pieces.append(multi_device.start(piece(1), 2))
        for each in pieces:
            each.when_done(done.release)
            each.cancel()
        assert [each.is_done for each in pieces] == [False, True]
        with pytest.raises(DeviceError, match="the run was cancelled"):
            pieces[1].result()
        only.gate.set()
        assert_outputs(pieces[:1])
        pieces[0].when_done(done.release)
        for _ in range(3):
            assert done.acquire(timeout=WAIT_SECONDS)


def test_close_waits_for_started_work() -> None:
    devices = [FakeDevice(0), FakeDevice(1)]
    with spread_over(*devices) as multi_device:
        pieces = [multi_device.start(piece(number), 2) for number in range(6)]
    assert all(each.is_done for each in pieces)
    assert_outputs(pieces)
    for use in (lambda: multi_device.start(piece(0), 2), lambda: multi_device.on_each(piece(0), 2)):
        with pytest.raises(DeviceError, match="the model was closed"):
            use()


def test_close_without_waiting_ends_threads() -> None:
    before = {*threading.enumerate()}
    multi_device = MultiDevice([cast(OneDevice, FakeDevice(number)) for number in range(2)])
    threads = {*threading.enumerate()} - before
    multi_device.close(wait=False)
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


def test_run_on_each_device() -> None:
    devices = [FakeDevice(0, adds=1), FakeDevice(1, adds=7), FakeDevice(2)]
    devices[2].fails_at = 0
    with spread_over(*devices) as multi_device:
        outputs = multi_device.on_each(piece(3), 2)
        assert [(info.index, int(arrays[0][0, 0])) for info, arrays in outputs] == [(0, 4), (1, 10)]
        assert multi_device.portions[2].failure == "running: CL_DEVICE_NOT_AVAILABLE"


def test_forked_process_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with spread_over(FakeDevice(0)) as multi_device:
        done = multi_device.start(piece(0), 2)
        done.result()
        monkeypatch.setattr(process, "_driver_pid", -1)
        uses: list[Callable[[], object]] = [done.result, lambda: multi_device.start(piece(0), 2)]
        for use in uses:
            with pytest.raises(DeviceError, match="forked"):
                use()
        multi_device.close()
        monkeypatch.undo()


CTRL_C = """
import faulthandler, random, signal
import numpy as np
from delegate.model.multi_device import MultiDevice
from tests.delegate.model.test_multi_device import FakeDevice, piece
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
faulthandler.dump_traceback_later(60, exit=True)
draw, interrupts = random.Random(1), 0
made = MultiDevice([FakeDevice(0), FakeDevice(1)])
for _ in range(1500):
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-5 + draw.random() * 2e-3)
        for each in [made.start(piece(number), 2) for number in range(24)]:
            each.result()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
assert interrupts > 100, interrupts
assert [made.start(piece(number), 2).result()[0][0, 0] for number in range(24)] == [*range(1, 25)]
made.close()
"""


@slow
def test_ctrl_c_at_any_moment_leaves_devices_working() -> None:
    assert run_python(CTRL_C) == ""

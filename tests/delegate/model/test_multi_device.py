# SPDX-License-Identifier: Apache-2.0
"""Pieces of work on several devices, which are stand-ins here: slow, failing, hanging, lying."""

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
WAIT_SECONDS = 60.0  # a test that waits so long has failed


class Clock:
    """Seconds of a test's own, a little more at each look."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now


class StandIn:
    """A device that adds a number to what it is given, once its gate is open."""

    slots = 2

    def __init__(self, index: int, adds: int = 1) -> None:
        self.device = DeviceInfo(index, "P", "1", f"stand-in {index}", "V", "3.0", "1", "cpu")
        self.tuning_left = index
        self.adds = adds
        self.clock = Clock()
        self.seconds = 0.0  # of a run, by the clock
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Semaphore(0)
        self.fails_at: int | None = None  # the run that fails, from 0
        self.runs = 0
        self.is_closed = False

    def start(self, arrays: list[Array], count: int, is_given: bool = False) -> StandIn._Run:
        number, self.runs = self.runs, self.runs + 1
        self.begun.release()
        return StandIn._Run(self, [array + self.adds for array in arrays], number)

    def run(self, arrays: list[Array], count: int) -> list[Array]:
        return StandIn._Run(self, [array + self.adds for array in arrays], self.runs).result()

    def close(self) -> None:
        self.is_closed = True

    class _Run:
        def __init__(self, owner: StandIn, outputs: list[Array], number: int) -> None:
            self._owner, self._outputs, self._number = owner, outputs, number

        def result(self) -> list[Array]:
            assert self._owner.gate.wait(WAIT_SECONDS)
            if self._owner.fails_at is not None and self._number >= self._owner.fails_at:
                raise DeviceError("running: CL_DEVICE_NOT_AVAILABLE")
            self._owner.clock.now += self._owner.seconds
            return self._outputs


@contextmanager
def spread_over(*devices: StandIn, paces: Sequence[float] = ()) -> Iterator[MultiDevice]:
    """Give a MultiDevice on the test's clock; `paces`: a device's seconds of a run before."""
    made = MultiDevice([cast(OneDevice, device) for device in devices], devices[0].clock)
    for device, device.seconds in zip(devices, paces, strict=False):
        device.clock = devices[0].clock
    if paces:
        made.on_each(piece(0), 2)
    for device in devices:
        device.seconds = 0.0
    try:
        yield made
    finally:
        for device in devices:
            device.gate.set()
        made.close()
        assert all(device.is_closed for device in devices)


def piece(number: int) -> list[Array]:
    return [np.full((2, 3), number)]


def assert_outputs(pieces: list[Run], adds: int = 1) -> None:
    """Assert that each piece has its own outputs."""
    for number, each in enumerate(pieces):
        assert np.array_equal(each.result()[0], piece(number)[0] + adds), number


def left_out(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_outputs_come_in_the_order_of_the_pieces(count: int) -> None:
    with spread_over(*(StandIn(number) for number in range(count))) as made:
        pieces = [made.start(piece(number), 2) for number in range(40)]
        assert_outputs(pieces)
        assert sum(portion.pictures for portion in made.portions) == 80
        assert [portion.device.index for portion in made.portions] == list(range(count))
        assert {portion.failure for portion in made.portions} == {""}
        assert made.tuning_left == sum(range(count))


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
def test_a_device_takes_what_no_other_one_will_end_sooner(
    own: tuple[float, int], other: tuple[float, int], takes: bool
) -> None:
    workers = [DeviceWorker(cast(OneDevice, StandIn(number)), lambda: 0.0) for number in range(2)]
    for worker, (pace, begun) in zip(workers, (own, other), strict=True):
        worker.pace = pace
        worker.running.extend(Run(lambda _: None, piece(0), 2) for _ in range(begun))
    assert workers[0].should_take(workers) == takes


def test_what_a_device_is_late_with_keeps_no_other_one_from_the_next() -> None:
    late, slow = (
        DeviceWorker(cast(OneDevice, StandIn(n)), lambda: 50.0, pace=2 * n + 1) for n in (0, 1)
    )
    late.running.append(Run(lambda _: None, piece(0), 2))
    late.since = 49.5
    assert not slow.should_take([late, slow])
    late.since = 40.0
    assert slow.should_take([late, slow])


def test_a_fast_device_runs_more_than_a_slow_one() -> None:
    fast, slow = StandIn(0), StandIn(1)
    is_over = threading.Event()

    class FourTimesSlower(StandIn._Run):
        def result(self) -> list[Array]:
            last = fast.runs + 4
            for _ in range(100):  # at the end the fast one has no more to run
                if fast.runs >= last or is_over.wait(0.001):
                    break
            return self._outputs

    slow.start = lambda arrays, *_: FourTimesSlower(  # type: ignore[method-assign]
        slow, [array + 1 for array in arrays], 0
    )
    made = MultiDevice([cast(OneDevice, device) for device in (fast, slow)])
    with contextlib.closing(made):
        pieces = [made.start(piece(number), 2) for number in range(60)]
        assert_outputs(pieces)
        is_over.set()
    ours, theirs = made.portions
    assert ours.pictures + theirs.pictures == 120
    assert ours.pictures > 2 * theirs.pictures


def test_a_device_at_work_does_not_take_what_another_one_could_begin() -> None:
    one, other = StandIn(0), StandIn(1)
    one.gate.clear()
    other.gate.clear()
    with spread_over(one, other) as made:
        pieces = [made.start(piece(number), 2) for number in range(2)]
        for device in (one, other):
            assert device.begun.acquire(timeout=WAIT_SECONDS)
        assert (one.runs, other.runs) == (1, 1)
        one.gate.set()
        other.gate.set()
        assert_outputs(pieces)


@pytest.mark.parametrize("fails_at", [0, 1, 5])
def test_a_device_that_fails_gives_its_pieces_to_the_others(
    fails_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = StandIn(0), StandIn(1)
    bad.fails_at = fails_at
    good.gate.clear()  # so that the other one takes enough
    pieces: list[Run] = []
    with spread_over(good, bad) as made:
        starts = (made.start(piece(number), 2) for number in range(fails_at + 3))
        thread = threading.Thread(target=lambda: pieces.extend(starts))
        thread.start()
        end = time.monotonic() + WAIT_SECONDS
        while made.portions[1].failure == "" and time.monotonic() < end:
            time.sleep(1e-3)
        good.gate.set()
        thread.join(WAIT_SECONDS)
        assert_outputs(pieces)
        assert made.portions[1].pictures <= 2 * fails_at
        assert sum(portion.pictures for portion in made.portions) == 2 * len(pieces)
        assert bad.device not in {each.device for each in pieces[fails_at + 2 :]}
    assert left_out(caplog) == [
        "device 1 (stand-in 1) is left out, and the others take its pictures: "
        "running: CL_DEVICE_NOT_AVAILABLE"
    ]


def test_when_all_have_failed_the_error_is_the_last_one_s(caplog: pytest.LogCaptureFixture) -> None:
    devices = [StandIn(number) for number in range(3)]
    for device in devices:
        device.fails_at = 0
        device.gate.clear()
    with spread_over(*devices) as made:
        lost = [made.start(piece(number), 2) for number in range(5)]
        for device in devices:
            device.gate.set()
        for use in (
            *(each.result for each in lost),
            lambda: made.start(piece(0), 2),
            lambda: made.on_each(piece(0), 2),
            lambda: made.empty_input(cast(Any, None)),
        ):
            with pytest.raises(DeviceError, match="CL_DEVICE_NOT_AVAILABLE"):
                use()
    assert len(left_out(caplog)) == 2  # the last one is no line: it is the error


def test_what_is_no_error_of_ours_costs_the_device_too(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = StandIn(0), StandIn(1)

    def start(*arguments: Any) -> None:
        bad.begun.release()
        raise MemoryError

    monkeypatch.setattr(bad, "start", start)
    with spread_over(good, bad, paces=(1.0, 1.0)) as made:
        good.gate.clear()
        pieces = [made.start(piece(number), 2) for number in range(2)]
        assert bad.begun.acquire(timeout=WAIT_SECONDS)
        good.gate.set()
        assert_outputs(pieces)
    assert made.portions[1].failure == "MemoryError"


def test_a_device_that_never_answers_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    good, hanging = StandIn(0), StandIn(1)
    made = MultiDevice([cast(OneDevice, each) for each in (good, hanging)], good.clock)
    made.on_each(piece(0), 2)
    hanging.gate.clear()
    told = threading.Semaphore(0)
    pieces = [made.start(piece(number), 2) for number in range(2)]
    for each in pieces:
        each.when_done(told.release)
    assert hanging.begun.acquire(timeout=WAIT_SECONDS)
    assert told.acquire(timeout=WAIT_SECONDS)
    good.clock.now += 100
    pieces += [made.start(piece(number), 2) for number in range(2, 5)]
    assert_outputs(pieces)
    made.close()  # returns
    assert good.is_closed
    assert not hanging.is_closed
    (line,) = left_out(caplog)
    assert line.startswith("device 1 (stand-in 1) is left out, and the others take its pictures: ")
    assert line.endswith("it gave no answer within 100 s")
    hanging.gate.set()


def test_an_only_device_is_waited_for() -> None:
    only = StandIn(0)
    only.gate.clear()
    with spread_over(only) as made:
        first = made.start(piece(0), 2)
        assert only.begun.acquire(timeout=WAIT_SECONDS)
        only.clock.now += 1e6
        threading.Timer(0.05, only.gate.set).start()
        assert_outputs([first])


def test_a_device_that_is_left_out_gives_back_what_it_has() -> None:
    good, liar = StandIn(0), StandIn(1, adds=5)
    with spread_over(good, liar, paces=(1.0, 1.0)) as made:
        good.gate.clear()
        liar.gate.clear()
        pieces = [made.start(piece(number), 2) for number in range(4)]
        assert liar.begun.acquire(timeout=WAIT_SECONDS)
        made.leave_out(liar.device, "it computes wrongly")
        liar.gate.set()
        good.gate.set()
        assert_outputs(pieces)
        assert made.portions[1].failure == "it computes wrongly"
        assert made.portions[1].pictures == 0


def test_pieces_without_outputs_are_few() -> None:
    one, other = StandIn(0), StandIn(1)
    with spread_over(one, other, paces=(1.0, 1.0)) as made:
        one.gate.clear()
        other.gate.clear()
        pieces: list[Run] = []
        starts = (made.start(piece(number), 2) for number in range(20))
        thread = threading.Thread(target=lambda: pieces.extend(starts))
        thread.start()
        for device in (one, other):
            assert device.begun.acquire(timeout=WAIT_SECONDS)
        thread.join(0.1)
        assert len(pieces) <= 2 * (StandIn.slots + 1)
        one.gate.set()
        other.gate.set()
        thread.join(WAIT_SECONDS)
        assert_outputs(pieces)


def test_what_waits_can_be_cancelled_and_who_listens_is_told() -> None:
    only = StandIn(0)
    only.gate.clear()
    told = threading.Semaphore(0)
    with spread_over(only) as made:
        pieces = [made.start(piece(0), 2)]
        assert only.begun.acquire(timeout=WAIT_SECONDS)
        pieces.append(made.start(piece(1), 2))
        for each in pieces:
            each.when_done(told.release)
            each.cancel()
        assert [each.is_done for each in pieces] == [False, True]
        with pytest.raises(DeviceError, match="the run was cancelled"):
            pieces[1].result()
        only.gate.set()
        assert_outputs(pieces[:1])
        pieces[0].when_done(told.release)
        for _ in range(3):
            assert told.acquire(timeout=WAIT_SECONDS)


def test_closing_waits_for_what_was_begun() -> None:
    devices = [StandIn(0), StandIn(1)]
    with spread_over(*devices) as made:
        pieces = [made.start(piece(number), 2) for number in range(6)]
    assert all(each.is_done for each in pieces)
    assert_outputs(pieces)
    for use in (lambda: made.start(piece(0), 2), lambda: made.on_each(piece(0), 2)):
        with pytest.raises(DeviceError, match="the model was closed"):
            use()


def test_closing_without_waiting_ends_the_threads_too() -> None:
    before = {*threading.enumerate()}
    made = MultiDevice([cast(OneDevice, StandIn(number)) for number in range(2)])
    threads = {*threading.enumerate()} - before
    made.close(wait=False)
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


def test_each_device_can_be_asked_for_its_own_outputs() -> None:
    devices = [StandIn(0, adds=1), StandIn(1, adds=7), StandIn(2)]
    devices[2].fails_at = 0
    with spread_over(*devices) as made:
        outputs = made.on_each(piece(3), 2)
        assert [(info.index, int(arrays[0][0, 0])) for info, arrays in outputs] == [(0, 4), (1, 10)]
        assert made.portions[2].failure == "running: CL_DEVICE_NOT_AVAILABLE"


def test_a_forked_process_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with spread_over(StandIn(0)) as made:
        done = made.start(piece(0), 2)
        done.result()
        monkeypatch.setattr(process, "_driver_pid", -1)
        uses: list[Callable[[], object]] = [done.result, lambda: made.start(piece(0), 2)]
        for use in uses:
            with pytest.raises(DeviceError, match="forked"):
                use()
        made.close()
        monkeypatch.undo()


CTRL_C = """
import faulthandler, random, signal
import numpy as np
from delegate.model.multi_device import MultiDevice
from tests.delegate.model.test_multi_device import StandIn, piece
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
faulthandler.dump_traceback_later(60, exit=True)
draw, interrupts = random.Random(1), 0
made = MultiDevice([StandIn(0), StandIn(1)])
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
def test_ctrl_c_at_any_moment_leaves_the_devices_working() -> None:
    assert run_python(CTRL_C) == ""

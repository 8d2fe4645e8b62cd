# SPDX-License-Identifier: Apache-2.0
"""Schedules x dispatch modes -> the fastest pair on this device, among those that agree.

See DISPATCH_MODES of plan/record.py. Then the same with specialised kernels, one per layer.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from delegate.errors import DeviceError, KernelBuildError
from delegate.guard.children import progress
from delegate.launch import Alternative, Schedule
from delegate.plan.call_groups import has_shared_calls
from delegate.plan.record import FUSED, ONE_BY_ONE, PERSISTENT
from delegate.plan.tuning.agreement import outputs_of, random_inputs, right_of
from delegate.plan.tuning.bench import DeviceBench
from delegate.plan.tuning.chooser import FULL, Choice, Chooser
from delegate.plan.tuning.tune import fingerprint
from delegate.run.executor import Executor

# Longer schedules gain most as one launch. Trying one by one would compile each kernel again.
_MANY_LAUNCHES = 256
# Whether kernels load their parameters or have them as constants.
GENERIC, SPECIALISED = KERNEL_KINDS = ("generic", "specialised")
_OF_DISPATCH = 0.4  # progress when the dispatch mode is chosen
# Cost to compile all launches as one kernel, relative to an executor of known kernels.
_COST_OF_ONE = 10
_LAUNCH_S = 0.2  # per launch of it; twice that if specialised, as no build is shared
_log = logging.getLogger("delegate")


class Selection(NamedTuple):
    """How a group of nodes runs."""

    schedule: Schedule
    dispatch_mode: str
    key: str  # identifies both: kernels, sizes and kernel kind

    @property
    def is_specialised(self) -> bool:
        """Whether its kernels are specialised."""
        return self.key.endswith(f", {SPECIALISED}")

    def specialised(self) -> Selection:
        """Return the same with specialised kernels."""
        return Selection(
            self.schedule.specialised(), self.dispatch_mode, f"{self.key}, {SPECIALISED}"
        )


class DispatchChooser:
    """Chooses among equivalent schedules, dispatch modes and kernel kinds."""

    def __init__(
        self,
        chooser: Chooser,
        bench: DeviceBench,
        make: Callable[[Schedule, str, int], Executor],
        profiling: bool,
        is_ordered: bool,
        origin: str,
    ) -> None:
        """`make`: creates the executor of a schedule, mode and batch; raises as Executor.

        `profiling`: launches stay separate. `is_ordered`: the device is proven to order memory
        between groups, so all launches can be one; else only small ones are fused. `origin`:
        identifies the part of a graph, independent of shapes.
        """
        self._chooser = chooser
        self._bench = bench
        self._make = make
        self._profiling = profiling
        self._origin = origin
        self._fewer_calls = PERSISTENT if is_ordered else FUSED  # alternative to one by one
        self._fingerprints: dict[Alternative, bytes] = {}  # schedules share steps

    def is_one_launch_faster(self, schedule: Schedule, is_likely: bool) -> bool:
        """Whether a schedule was measured to be faster as one launch than in any other mode.

        `is_likely`: the answer without measurements.
        """
        found = self._fastest_mode([schedule], 1, is_likely)
        return is_likely if found is None else found[1] == PERSISTENT

    def fastest(
        self,
        schedules: Sequence[Schedule],
        batch: int,
        expected: Schedule | None = None,
        is_likely: bool = False,
    ) -> Selection:
        """Return the fastest of equivalent schedules in any dispatch mode.

        `is_likely`: one launch is expected to be fastest. Without measurements: `expected` as one
        launch, else the first schedule one by one.
        """
        with progress.share(0, _OF_DISPATCH):
            found = self._fastest_mode(schedules, batch, is_likely)
        otherwise = (expected, PERSISTENT) if expected else (schedules[0], ONE_BY_ONE)
        chosen = self.selection(*(found or otherwise), False, batch)
        with progress.share(_OF_DISPATCH, 1):
            if self._is_faster_specialised(
                chosen.key, chosen.schedule, chosen.dispatch_mode, batch
            ):
                return chosen.specialised()
        return chosen

    def selection(
        self, schedule: Schedule, mode: str, is_specialised: bool, batch: int
    ) -> Selection:
        """Return the selection of a schedule in a mode."""
        numbers = [
            [value for value in launch.params.values() if isinstance(value, int)]
            for launch in schedule.launches
        ]
        of_numbers = hashlib.sha256(repr(numbers).encode()).hexdigest()[:24]
        found = Selection(schedule, mode, f"{self._key([schedule], batch)} {of_numbers}, {mode}")
        return found.specialised() if is_specialised else found

    def _modes(
        self, schedules: Sequence[Schedule], batch: int
    ) -> Mapping[str, tuple[Schedule, str]]:
        return {
            f"{number}, {mode}": (schedule, mode)
            for number, schedule in enumerate(schedules)
            for mode in (ONE_BY_ONE, self._fewer_calls)
            if mode == ONE_BY_ONE or self._may_be_fewer(schedule, batch)
        }

    def _may_be_fewer(self, schedule: Schedule, batch: int) -> bool:
        """Whether the schedule's launches may be submitted in fewer calls."""
        # A batch keeps the device busy by itself: launch overhead is negligible.
        if self._profiling or batch > 1 or len(schedule.launches) < 2:
            return False
        return self._fewer_calls == PERSISTENT or has_shared_calls(schedule)

    def _fastest_mode(
        self, schedules: Sequence[Schedule], batch: int, is_likely: bool
    ) -> tuple[Schedule, str] | None:
        """Return the fastest schedule and mode, if known or measured now."""
        modes = self._modes(schedules, batch)
        if is_likely and self._chooser.mode != FULL:
            gaining = {n: f for n, f in modes.items() if f[1] == PERSISTENT and _is_long(f[0])}
            modes = gaining or modes
        if len(modes) == 1:
            return next(iter(modes.values()))
        key = self._key(schedules, batch)
        if self._profiling:  # among fewer modes: not valid without profiling
            key += f", {ONE_BY_ONE}"
        choice = Choice(key, modes, subject=self._subject(schedules, batch), size=_size(schedules))
        first = PERSISTENT if is_likely else ONE_BY_ONE
        name = self._chooser.choose(choice, lambda: self._measure(modes, batch, first))
        return None if name is None else modes[name]

    def _measure(
        self, modes: Mapping[str, tuple[Schedule, str]], batch: int, first: str
    ) -> str | None:
        """Return the fastest; `first`: the name expected to be."""
        with contextlib.ExitStack() as stack:
            made = self._make_executors(modes, batch, stack)
            in_order = sorted(made, key=lambda name: modes[name][1] != first)
            repeats = {name: partial(made[name].repeat, wait=True) for name in in_order}
            return self._chooser.fastest(repeats)

    def _make_executors(
        self, modes: Mapping[str, tuple[Schedule, str]], batch: int, stack: contextlib.ExitStack
    ) -> dict[str, Executor]:
        """Return those that fit, have the mode asked for and agree; `stack` closes them."""

        def cost(name: str) -> float:
            schedule, mode = modes[name]
            return (_COST_OF_ONE if mode == PERSISTENT else 1) * (
                2 if _is_specialised(schedule) else 1
            )

        made: dict[str, Executor] = {}
        for name in progress.each([*modes], lambda name: _words(*modes[name]), cost):
            schedule, mode = modes[name]
            try:
                executor = self._make(schedule, mode, batch)
            except DeviceError:
                continue  # not enough memory for all at once
            if (executor.dispatch_mode == ONE_BY_ONE) == (mode == ONE_BY_ONE):
                made[name] = executor
                stack.callback(executor.close)
            else:
                executor.close()
        schedules = {name: schedule for name, (schedule, _) in modes.items()}
        return _correct_executors(made, schedules, self._bench.is_exact)

    def _is_faster_specialised(self, key: str, schedule: Schedule, mode: str, batch: int) -> bool:
        """Whether a schedule was measured to be faster with specialised kernels.

        They are built only while the budget lasts. A single kernel of all launches cannot be built
        in parts.
        """

        def measure() -> str | None:
            twin = schedule.specialised()
            seconds = self._chooser.seconds_left
            try:
                if mode != PERSISTENT and not self._bench.warm_up_within(twin.launches, seconds):
                    return None
                return self._measure(
                    {GENERIC: (schedule, mode), SPECIALISED: (twin, mode)}, batch, mode
                )
            except (DeviceError, KernelBuildError) as error:
                _log.info("kernels stay generic: %s", error)
                return GENERIC

        choice = Choice(key, KERNEL_KINDS, GENERIC, is_long=mode == PERSISTENT)
        return self._chooser.choose(choice, measure) == SPECIALISED

    def _subject(self, schedules: Sequence[Schedule], batch: int) -> tuple[object, ...]:
        nodes = ((step.op, step.node_index) for schedule in schedules for step in schedule.steps)
        return "form", self._origin, batch, self._profiling, *nodes

    def _key(self, schedules: Sequence[Schedule], batch: int) -> str:
        digest = hashlib.sha256(str(batch).encode())
        for step in (step for schedule in schedules for step in schedule.steps):
            own = step.alternative
            if own not in self._fingerprints:
                self._fingerprints[own] = fingerprint([own], self._bench.source_of).encode()
            digest.update(self._fingerprints[own])
        return digest.hexdigest()[:24]


def _size(schedules: Sequence[Schedule]) -> int:
    return sum(launch.tiles for schedule in schedules for launch in schedule.launches)


def _words(schedule: Schedule, mode: str) -> str:
    """Describe the current step; compiling one kernel of all launches takes long, unobserved."""
    literals = ", specialised" if _is_specialised(schedule) else ""
    if mode != PERSISTENT:
        return f"launches {mode}{literals}"
    launch_s = _LAUNCH_S * (2 if literals else 1)
    seconds = 10 * math.ceil(launch_s * len(schedule.launches) / 10)
    # A narrow terminal truncates the end.
    return f"may take {seconds} s: compiling all launches as one kernel{literals}"


def _correct_executors(
    made: dict[str, Executor], schedules_of: Mapping[str, Schedule], is_exact: bool
) -> dict[str, Executor]:
    """Return those that agree with the majority on random bytes.

    Of two that disagree the first is kept: it is closer to how the nodes were compared. Programs
    that round floats to integers are compared across their own modes only: an ulp before the
    rounding may be a step after it, and the alternatives of nodes were compared already. Unless
    `is_exact`, as then there is no such ulp.
    """
    names = [*reversed(made)]
    found = {name: outputs_of(made[name], random_inputs(made[name])) for name in names}
    schedules = {schedules_of[name] for name in names}
    groups = [[name for name in names if schedules_of[name] is schedule] for schedule in schedules]
    if is_exact or not any(map(_rounds_floats, schedules)):
        groups = [names]
    right: dict[str, bool] = {}
    for group in groups:
        are_right = right_of([found[name] for name in group], lambda: None, is_exact)
        right |= zip(group, are_right, strict=True)
    for name in names:
        if not right[name]:
            _log.warning(
                "%d nodes: '%s' computes wrongly on this device and is not used",
                len(schedules_of[name].steps), name.split(", ")[-1],
            )  # fmt: skip
    return {name: each for name, each in made.items() if right[name]}


def _rounds_floats(schedule: Schedule) -> bool:
    return any(
        any(tensor.dtype == "float32" for tensor in launch.reads)
        and any(tensor.dtype != "float32" for tensor in launch.writes)
        for launch in schedule.launches
    )


def _is_long(schedule: Schedule) -> bool:
    return len(schedule.launches) > _MANY_LAUNCHES


def _is_specialised(schedule: Schedule) -> bool:
    return any(launch.is_specialised for launch in schedule.launches)

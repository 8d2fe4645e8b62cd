# SPDX-License-Identifier: Apache-2.0
"""Programs x forms -> the executor that is fastest on this device, among those that agree.

A form is how a program's launches reach the device: see FORMS. Then the same with the numbers of
its launches as literals, which takes a kernel a layer.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from delegate import progress
from delegate.errors import DeviceError, KernelBuildError
from delegate.launch import Program
from delegate.runtime.agreement import outputs_of, random_inputs, right_of
from delegate.runtime.bench import DeviceBench
from delegate.runtime.executor import FORMS, ONE_BY_ONE, PERSISTENT, Executor
from delegate.tuning.tune import Tuner

# What the numbers of a program's launches are to the compiler.
LOADED, LITERAL = NUMBERS = ("loaded", "literal")
_OF_FORMS = 0.4  # what is done when the form is chosen
# To compile all launches as one kernel, beside what it takes to make an executor of known kernels.
_COST_OF_ONE = 10
_LAUNCH_S = 0.2  # for a launch of them; twice that with literals, as no build is shared
_log = logging.getLogger("delegate")


class Make(Protocol):
    """What makes executors."""

    def __call__(
        self, program: Program, form: str, batch: int, sibling: Executor | None = None
    ) -> Executor:
        """Return the executor of a program; raises as Executor."""


class Forms:
    """Chooses among equivalent programs and their forms; the tuner measures and remembers."""

    def __init__(self, tuner: Tuner, bench: DeviceBench, profiling: bool) -> None:
        """`profiling`: launches stay apart, one by one."""
        self._tuner = tuner
        self._bench = bench
        self._profiling = profiling

    def is_one_launch_faster(self, program: Program, make: Make, is_likely: bool) -> bool:
        """Whether a program was measured to be faster as one launch than in any other form.

        `is_likely`: the answer where nothing was measured.
        """
        made: dict[str, Executor] = {}
        choices = self._choices([program], 1)
        name = self._known([program], choices, 1, make, made)
        _close(made)
        return is_likely if name is None else choices[name][1] == PERSISTENT

    def fastest(
        self, programs: Sequence[Program], batch: int, make: Make, expected: Program | None = None
    ) -> Executor:
        """Return what measures fastest in any form among equivalent programs.

        If nothing is measured yet: `expected` as one launch, else the first program one by one.
        """
        choices = self._choices(programs, batch)
        made: dict[str, Executor] = {}
        with progress.share(0, _OF_FORMS):
            name = self._known(programs, choices, batch, make, made)
        chosen = made.pop(name, None) if name is not None else None
        _close(made)
        if name is not None:
            program, form = choices[name]
        else:
            program, form = (expected, PERSISTENT) if expected else (programs[0], ONE_BY_ONE)
        with progress.share(_OF_FORMS, 1):
            is_literal = self._is_faster_literal(program, form, batch, make)
        if is_literal:
            program = program.literal()
            if chosen is not None:
                chosen.close()
            chosen = None
        if chosen is None:
            chosen = make(program, form, batch)
            chosen.repeat(1)  # run once now: a driver's first run is slow
        return chosen

    def _choices(
        self, programs: Sequence[Program], batch: int
    ) -> Mapping[str, tuple[Program, str]]:
        return {
            f"{number}, {form}": (program, form)
            for number, program in enumerate(programs)
            for form in FORMS
            # A batch fills the device by itself: what a launch costs is lost in it.
            if form == ONE_BY_ONE or not (self._profiling or batch > 1 or len(program.launches) < 2)
        }

    def _known(
        self,
        programs: Sequence[Program],
        choices: Mapping[str, tuple[Program, str]],
        batch: int,
        make: Make,
        made: dict[str, Executor],
    ) -> str | None:
        """Return the name of the fastest choice, if it is known or can be measured now.

        `made`: what was made to measure it is put there.
        """
        if len(choices) == 1:
            return next(iter(choices))
        signature = self._signature(programs, batch)
        if self._profiling:  # among fewer forms: no choice for those who have all of them
            signature += f", {ONE_BY_ONE}"
        measure = partial(self._fastest_of, choices, batch, make, made)
        return self._tuner.remembered(signature, measure, choices)

    def _fastest_of(
        self,
        choices: Mapping[str, tuple[Program, str]],
        batch: int,
        make: Make,
        made: dict[str, Executor],
    ) -> str | None:
        _make_all(choices, batch, make, made)
        repeats = {name: partial(each.repeat, wait=True) for name, each in made.items()}
        return self._tuner.fastest(repeats)

    def _is_faster_literal(self, program: Program, form: str, batch: int, make: Make) -> bool:
        """Whether a program was measured to be faster with its numbers as literals.

        Starts after the one that chose the form build its kernels, a few each. One kernel of all
        launches cannot be built by parts: only who has patience waits for it.
        """
        numbers = [
            [value for value in launch.params.values() if isinstance(value, int)]
            for launch in program.launches
        ]
        of_numbers = hashlib.sha256(repr(numbers).encode()).hexdigest()[:24]
        signature = f"{self._signature([program], batch)} {of_numbers}, {form}"

        def measure() -> str | None:
            twin = program.literal()
            made: dict[str, Executor] = {}
            seconds = self._tuner.seconds_left
            try:
                if form != PERSISTENT and not self._bench.warm_up_some(twin.launches, seconds):
                    return None
                choices = {LOADED: (program, form), LITERAL: (twin, form)}
                return self._fastest_of(choices, batch, make, made)
            except (DeviceError, KernelBuildError) as error:
                _log.info("numbers stay loads: %s", error)
                return LOADED
            finally:
                _close(made)

        if form == PERSISTENT and not self._tuner.is_patient:
            return self._tuner.kept(signature, NUMBERS) == LITERAL
        return self._tuner.remembered(signature, measure, NUMBERS, can_wait=True) == LITERAL

    def _signature(self, programs: Sequence[Program], batch: int) -> str:
        digest = hashlib.sha256(str(batch).encode())
        for step in (step for program in programs for step in program.steps):
            digest.update(self._tuner.signature([step.alternative]).encode())
        return digest.hexdigest()[:24]


def _close(made: dict[str, Executor]) -> None:
    for each in made.values():
        each.close()
    made.clear()


def _make_all(
    choices: Mapping[str, tuple[Program, str]], batch: int, make: Make, made: dict[str, Executor]
) -> None:
    """Put into `made` every executor that fits, is of the form asked for, and computes right."""

    def cost(name: str) -> float:
        program, form = choices[name]
        return (_COST_OF_ONE if form == PERSISTENT else 1) * (2 if _is_literal(program) else 1)

    for name in progress.each([*choices], lambda name: _words(*choices[name]), cost):
        program, form = choices[name]
        sibling = next((e for e in made.values() if _share_constants(e.program, program)), None)
        try:
            executor = make(program, form, batch, sibling)
        except DeviceError:
            continue  # so many do not fit at once
        if executor.form == form:
            made[name] = executor
        else:
            executor.close()
    _drop_wrong(made)


def _words(program: Program, form: str) -> str:
    """Say what is made now; one kernel of all launches takes long, and nothing moves meanwhile."""
    literals = ", numbers as literals" if _is_literal(program) else ""
    if form != PERSISTENT:
        return f"launches {form}{literals}"
    launch_s = _LAUNCH_S * (2 if literals else 1)
    seconds = 10 * math.ceil(launch_s * len(program.launches) / 10)
    # A narrow terminal cuts the end off.
    return f"may take {seconds} s: compiling all launches as one kernel{literals}"


def _drop_wrong(made: dict[str, Executor]) -> None:
    """Take out those that compute another thing on random bytes than most do.

    Of two that disagree the first stays: it is nearer to what the nodes were compared as.
    """
    names = [*reversed(made)]
    found = [outputs_of(made[name], random_inputs(made[name])) for name in names]
    for name, is_right in zip(names, right_of(found, lambda: None), strict=True):
        if not is_right:
            wrong = made.pop(name)
            wrong.close()
            _log.warning(
                "%d nodes: '%s' computes wrongly on this device and is not used",
                len(wrong.program.steps), name.split(", ")[-1],
            )  # fmt: skip


def _is_literal(program: Program) -> bool:
    return any(launch.is_literal for launch in program.launches)


def _share_constants(one: Program, other: Program) -> bool:
    """Whether two programs are one, or one with loaded and with literal numbers."""
    if len(one.launches) != len(other.launches):
        return False
    return all(a.params is b.params for a, b in zip(one.launches, other.launches, strict=True))

# SPDX-License-Identifier: Apache-2.0
"""Programs x forms -> the executor that is fastest on this device, among those that agree.

A form is how a program's launches reach the device: see FORMS.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from delegate.errors import DeviceError
from delegate.launch import Program
from delegate.runtime.bench import same_outputs
from delegate.runtime.executor import FORMS, ONE_BY_ONE, Executor
from delegate.tune import Tuner

_log = logging.getLogger("delegate")


class Make(Protocol):
    """What makes executors."""

    def __call__(
        self, program: Program, form: str, batch: int, sibling: Executor | None = None
    ) -> Executor:
        """Return the executor of a program; raises as Executor."""


class Forms:
    """Chooses among equivalent programs and their forms; the tuner measures and remembers."""

    def __init__(self, tuner: Tuner, profiling: bool) -> None:
        """`profiling`: launches stay apart, one by one."""
        self._tuner = tuner
        self._profiling = profiling

    def fastest(self, programs: Sequence[Program], batch: int, make: Make) -> Executor:
        """Return the first of equivalent programs, or what measures fastest in any form."""
        choices = {
            f"{number}, {form}": (program, form)
            for number, program in enumerate(programs)
            for form in FORMS
            # A batch fills the device by itself: what a launch costs is lost in it.
            if form == ONE_BY_ONE or not (self._profiling or batch > 1 or len(program.launches) < 2)
        }
        made: dict[str, Executor] = {}

        def measure() -> str | None:
            _make_all(choices, batch, make, made)
            repeats = {name: partial(each.repeat, wait=True) for name, each in made.items()}
            return self._tuner.fastest(repeats)

        first = next(iter(choices))
        name = first
        if len(choices) > 1:
            signature = self._signature(programs, batch)
            name = self._tuner.remembered(signature, measure, choices) or first
        chosen = made.pop(name, None)
        for other in made.values():
            other.close()
        if chosen is None:
            program, form = choices[name]
            chosen = make(program, form, batch)
            chosen.repeat(1)  # run once now: a driver's first run is slow
        return chosen

    def _signature(self, programs: Sequence[Program], batch: int) -> str:
        digest = hashlib.sha256(str(batch).encode())
        for step in (step for program in programs for step in program.steps):
            digest.update(self._tuner.signature([step.alternative]).encode())
        return digest.hexdigest()[:24]


def _make_all(
    choices: Mapping[str, tuple[Program, str]], batch: int, make: Make, made: dict[str, Executor]
) -> None:
    """Put into `made` every executor that fits, is of the form asked for, and agrees."""
    for name, (program, form) in choices.items():
        sibling = next((each for each in made.values() if each.program is program), None)
        try:
            executor = make(program, form, batch, sibling)
        except DeviceError:
            continue  # so many do not fit at once
        if executor.form == form and _agrees(executor, made):
            made[name] = executor
        else:
            executor.close()


def _agrees(executor: Executor, made: Mapping[str, Executor]) -> bool:
    """Whether it computes what the first one made does, on random bytes."""
    first = next(iter(made.values()), executor)
    if first is executor or same_outputs(executor, first):
        return True
    _log.warning(
        "%d nodes: '%s' computes wrongly on this device and is not used",
        len(executor.program.steps),
        executor.form,
    )
    return False

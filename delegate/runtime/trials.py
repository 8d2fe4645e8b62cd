# SPDX-License-Identifier: Apache-2.0
"""What may end or hold the process that does it, by name, and who tried it before.

A trial is one such thing: to build a program, to run a kernel at its sizes, to make an executor.
Names hold a digest of all that the driver is given, so a name means the same in every process.
An engine that works in a child process tells each trial before it begins (`Told`). One in the
user's process does only what a child has done before (`Guarded`). One that is told to do without
does what it likes (`Free`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from delegate import cache
from delegate.errors import KilledChild, Untried

# How a trial ended, beside what begins with FAILED and goes on with the reason.
DONE = "done"
SOURCE, BINARY = "source", "binary"  # what a program was built from
FAILED = "failed: "


@dataclass(slots=True)
class Trial:
    """One under way."""

    how: str = DONE  # how it ended; in the user's process: how it ended in the child


class Free:
    """Allows everything and keeps nothing."""

    tells = False  # whether another process hears each trial

    @contextmanager
    def of(self, name: str) -> Iterator[Trial]:
        """Do what a trial is named for inside of this context.

        Raises:
            Untried: a child must do it first. KilledChild: one died of it.
        """
        yield Trial()

    def known(self, name: str) -> str | None:
        """Return how a trial ended that was not a failure; None: nothing is known."""
        return None

    def is_due(self, name: str) -> bool:
        """Whether to do now, for its own sake, what will be done again."""
        return False

    def note(self, name: str, how: str) -> None:
        """Keep how something ended that needs no trial of its own."""

    def forget(self, name: str) -> None:
        """Take a trial for untried."""


class Unkept(Free):
    """Builds from sources alone, and leaves it to the driver to keep what it compiled."""

    @contextmanager
    def of(self, name: str) -> Iterator[Trial]:
        yield Trial(SOURCE)


class _Knowing(Free):
    def __init__(self, known: dict[str, str]) -> None:
        self._known = known

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    def known(self, name: str) -> str | None:
        how = self._known.get(name)
        return None if how is None or self._failure(name) is not None else how

    def _failure(self, name: str) -> str | None:
        """Return how a child died of this, or of anything else with the same program."""
        for each in (name, program_of(name), file_of(name)):
            how = self._known.get(each, "")
            if how.startswith(FAILED):
                return how.removeprefix(FAILED)
        return None

    def _refuse_failed(self, name: str) -> None:
        failure = self._failure(name)
        if failure is not None:
            raise KilledChild(failure)


class Guarded(_Knowing):
    """The user's process: repeats what a child has done."""

    def __init__(self, records: Records) -> None:
        super().__init__(records.known)

    @contextmanager
    def of(self, name: str) -> Iterator[Trial]:
        self._refuse_failed(name)
        if name not in self._known:
            raise Untried(name)
        yield Trial(self._known[name])

    def is_due(self, name: str) -> bool:
        with self.of(name):
            return False


class Told(_Knowing):
    """A child process: does it, and tells so before and after."""

    tells = True

    def __init__(self, known: Mapping[str, str], tell: Callable[..., None]) -> None:
        """`tell`: called with trying=NAME, and with tried=NAME and how=HOW."""
        super().__init__(dict(known))
        self._tell = tell

    @contextmanager
    def of(self, name: str) -> Iterator[Trial]:
        self._refuse_failed(name)
        self._tell(trying=name)
        trial = Trial()
        try:
            yield trial
        finally:  # an error of the driver is an end that is as good
            self.note(name, trial.how)

    def is_due(self, name: str) -> bool:
        return name not in self._known

    def knows(self, known: Mapping[str, str]) -> bool:
        """Whether it knows this and nothing else."""
        return self._known == known

    def note(self, name: str, how: str) -> None:
        self._known[name] = how
        self._tell(tried=name, how=how)


class Records:
    """How the trials of a device and driver ended, kept on disk.

    Attributes:
        known: how, by the trial's name.
    """

    def __init__(self, identity: str) -> None:
        self._entry = f"trials/{hashlib.sha256(identity.encode()).hexdigest()[:40]}"
        self.known: dict[str, str] = self._kept()

    def add(self, found: Mapping[str, str]) -> None:
        """Keep what was found; other processes' findings stay."""
        if found:
            self.known.update(found)
            cache.store(self._entry, json.dumps(self._kept() | self.known).encode())

    def _kept(self) -> dict[str, str]:
        """Return what `add` kept; nothing where the content is foreign."""
        try:
            known = json.loads(cache.load(self._entry) or b"{}")
        except (ValueError, RecursionError):
            return {}
        if not isinstance(known, dict) or not all(isinstance(how, str) for how in known.values()):
            return {}
        return known


def program_of(name: str) -> str:
    """Return the trial of building the program that a trial is about."""
    return f"program {_subject(name)}"


def file_of(name: str) -> str:
    """Return what stands for all programs of the same file as that of this trial."""
    return f"file {_subject(name).rpartition('-')[0]}"


def _subject(name: str) -> str:
    return (*name.split(), "", "")[1]


def name_of(kind: str, *facts: object) -> str:
    """Return the name of a trial: its kind, and a digest of what the driver is given."""
    return f"{kind} {hashlib.sha256(repr(facts).encode()).hexdigest()[:32]}"

# SPDX-License-Identifier: Apache-2.0
"""What may end or hold the process that does it, and who tried it before.

A trial is one such thing: to build a kernel's file, to run a kernel at its sizes, to make an
executor. It is named by all that the driver is given, so it means the same in every process.
An engine that works in a child process tells each trial before it begins (`Told`). One in the
user's process does only what a child has done before (`Guarded`). One that is told to do without
does what it likes (`Free`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from delegate.errors import KilledChild, Untried

# Kinds of trials.
BUILD, BINARY_OF, KERNEL, RUN, CHECK = "build", "binary", "kernel", "run", "check"
FILE, EXECUTOR, WHOLE = "file", "executor", "whole"
SELF_TEST, PLATFORMS, REFERENCE = "self-test", "platforms", "reference"
_WORDS = {
    BUILD: "build {file}.cl",
    BINARY_OF: "get the binary of {file}.cl",
    KERNEL: "make the kernel {kernel}",
    RUN: "run the kernel {kernel}",
    FILE: "build anything else of {build}.cl",
    EXECUTOR: "allocate and run a group of nodes",
    SELF_TEST: "pass the self-test of {build}",
    PLATFORMS: "list OpenCL's platforms",
    REFERENCE: "run a node on TFLite's reference kernels",
}
# How a trial ended.
DONE = "done"
SOURCE, BINARY = "source", "binary"  # what was built from
WRONG = "wrong"  # it computes something else than it should


class Trial(NamedTuple):
    """What may end the process that does it. A tuple, so that JSON takes it."""

    kind: str
    build: str = ""  # FILE-DIGEST of what is compiled, or a digest of all that is given
    kernel: str = ""
    sizes: tuple[int, ...] = ()  # what the kernel runs at

    @classmethod
    def of(cls, kind: str, *facts: object) -> Trial:
        """Return one that is named by a digest of what the driver is given."""
        return cls(kind, hashlib.sha256(repr(facts).encode()).hexdigest()[:32])

    @classmethod
    def unpacked(cls, packed: Any) -> Trial:
        """Return what JSON made a list of.

        Raises:
            ValueError, TypeError: it was no trial.
        """
        kind, build, kernel, sizes = packed
        if not all(isinstance(text, str) for text in (kind, build, kernel)):
            raise TypeError(f"{packed} is no trial")
        return cls(kind, build, kernel, tuple(map(int, sizes)))

    @property
    def file(self) -> str:
        """The kernel file that it is about; "": none."""
        return self.build.rpartition("-")[0]

    @property
    def is_of_a_model(self) -> bool:
        """Whether its file holds all launches of a model, and says nothing of other models'."""
        return self.file.startswith("runtime_persistent")

    @property
    def blamed(self) -> Trial:
        """What is left out where a child dies of this: with a kernel that it may run, its build."""
        return Trial(BUILD, self.build) if self.kind in (KERNEL, RUN) else self

    @property
    def words(self) -> str:
        """What it does, for people: to ..."""
        return _WORDS.get(self.kind, self.kind).format(
            file=self.file, build=self.build, kernel=self.kernel
        )


@dataclass(slots=True)
class UnderWay:
    """A trial that is under way."""

    how: str = DONE  # how it ended; in the user's process: how it ended in the child


class Free:
    """Allows everything and keeps nothing."""

    tells = False  # whether another process hears each trial

    @contextmanager
    def of(self, trial: Trial) -> Iterator[UnderWay]:
        """Do the trial inside of this context.

        Raises:
            Untried: a child must do it first. KilledChild: children died of it.
        """
        yield UnderWay()

    def known(self, trial: Trial) -> str | None:
        """Return how a trial ended in a child; None: not at all, or the child died of it."""
        return None

    def is_due(self, trial: Trial) -> bool:
        """Whether to run this now only to see whether it ends the process."""
        return False

    def note(self, trial: Trial, how: str) -> None:
        """Record a result without a trial."""

    def forget(self, trial: Trial) -> None:
        """Take a trial for untried."""


class Unkept(Free):
    """Builds from sources alone, and leaves it to the driver to keep what it compiled."""

    @contextmanager
    def of(self, trial: Trial) -> Iterator[UnderWay]:
        yield UnderWay(SOURCE)


class _Knowing(Free):
    def __init__(self, done: dict[Trial, str], left_out: Mapping[Trial, str]) -> None:
        self._done, self._left_out = done, left_out
        self.met: set[str] = set()  # why trials were refused

    def forget(self, trial: Trial) -> None:
        self._done.pop(trial, None)

    def known(self, trial: Trial) -> str | None:
        return None if self._why_not(trial) else self._done.get(trial)

    def _why_not(self, trial: Trial) -> str | None:
        """Return how children died of this, of its build or of others of its file, or its fault."""
        for each in (trial, Trial(BUILD, trial.build), Trial(FILE, trial.file)):
            if each in self._left_out:
                return self._left_out[each]
        return "it computes wrongly" if self._done.get(trial) == WRONG else None

    def _refuse_left_out(self, trial: Trial) -> None:
        why = self._why_not(trial)
        if why is not None:
            self.met.add(why)
            raise KilledChild(why)


class Guarded(_Knowing):
    """The user's process: repeats what a child has done."""

    @contextmanager
    def of(self, trial: Trial) -> Iterator[UnderWay]:
        self._refuse_left_out(trial)
        if trial not in self._done:
            raise Untried(trial, trial.words)
        yield UnderWay(self._done[trial])

    def is_due(self, trial: Trial) -> bool:
        with self.of(trial):
            return False


class Told(_Knowing):
    """A child process: does it, and tells so before and after."""

    tells = True

    def __init__(
        self, done: Mapping[Trial, str], left_out: Mapping[Trial, str], tell: Callable[..., None]
    ) -> None:
        """`tell`: called with trying=TRIAL, and with tried=TRIAL and how=HOW."""
        super().__init__(dict(done), left_out)
        self._tell = tell

    @contextmanager
    def of(self, trial: Trial) -> Iterator[UnderWay]:
        self._refuse_left_out(trial)
        self._tell(trying=trial)
        under_way = UnderWay()
        try:
            yield under_way
        finally:  # an error of the driver is an end that is as good
            self.note(trial, under_way.how)

    def is_due(self, trial: Trial) -> bool:
        return trial not in self._done

    def knows(self, done: Mapping[Trial, str], left_out: Mapping[Trial, str]) -> bool:
        """Whether it knows this and nothing else."""
        return self._done == done and self._left_out == left_out

    def note(self, trial: Trial, how: str) -> None:
        self._done[trial] = how
        self._tell(tried=trial, how=how)

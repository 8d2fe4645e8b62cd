# SPDX-License-Identifier: Apache-2.0
"""What may end or hold the process that does it, and who may do it.

A trial is one such thing: to build a kernel's file, to run a kernel at its sizes, to make an
executor. It is named by all that the driver is given, so it means the same in every process. A
child does a trial and tells how it ended (`ReportedTrials`); `Trials` is for processes without one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from delegate.errors import KilledChild

# Kinds of trials.
BUILD, BINARY_OF, KERNEL, RUN, CHECK = "build", "binary", "kernel", "run", "check"
FILE, EXECUTOR, WHOLE, REGISTERS = "file", "executor", "whole", "registers"
SELF_TEST, PLATFORMS, REFERENCE = "self-test", "platforms", "reference"
_WORDS = {
    BUILD: "build {name}.cl",
    BINARY_OF: "get the binary of {name}.cl",
    KERNEL: "make the kernel {kernel}",
    RUN: "run the kernel {kernel}",
    CHECK: "build {name}.cl",
    FILE: "build anything else of {name}.cl",
    EXECUTOR: "allocate and run a group of nodes",
    WHOLE: "run a group of nodes",
    REGISTERS: "build what shows how many registers there are",
    SELF_TEST: "pass the self-test of {name}",
    PLATFORMS: "list OpenCL's platforms",
    REFERENCE: "run a node on TFLite's reference kernels",
}
# How a trial ended.
DONE = "done"
PASSED = "passed"
DEVICE = "device"  # the name of the self-test without which a device is not used
FRESH = "a plain kernel"  # the same with a source that no driver has in a cache
REFUSED = "refused"  # by the driver, which says why if it is asked again
WRONG = "wrong"  # it computes something else than it should


class Trial(NamedTuple):
    """What may end the process that does it. A tuple, so that JSON takes it."""

    kind: str
    name: str = ""  # of the kernel file, or of the self-test
    digest: str = ""  # of what is compiled, or of all that the driver is given
    kernel: str = ""
    sizes: tuple[int, ...] = ()  # what the kernel runs at

    @classmethod
    def of(cls, kind: str, *facts: object) -> Trial:
        """Return one that is named by a digest of what the driver is given."""
        return cls(kind, digest=hashlib.sha256(repr(facts).encode()).hexdigest()[:32])

    @classmethod
    def unpacked(cls, packed: Any) -> Trial:
        """Return what JSON made a list of.

        Raises:
            ValueError, TypeError: it was no trial.
        """
        *texts, sizes = packed
        kind, name, digest, kernel = texts
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{packed} is no trial")
        return cls(kind, name, digest, kernel, tuple(map(int, sizes)))

    @property
    def build(self) -> str:
        """The name of what is compiled, for JSON."""
        named = (self.name,) if self.kind == SELF_TEST else (self.name, self.digest)
        return "-".join(filter(None, named))

    @property
    def is_of_a_model(self) -> bool:
        """Whether its file holds all launches of a model, and says nothing of other models'."""
        return self.name.startswith("runtime_persistent")

    @property
    def blamed(self) -> Trial:
        """What is left out where a child dies of this: with a kernel that it may run, its build."""
        return Trial(BUILD, self.name, self.digest) if self.kind in (KERNEL, RUN) else self

    @property
    def words(self) -> str:
        """What it does, for people: to ..."""
        return _WORDS.get(self.kind, self.kind).format(name=self.name, kernel=self.kernel)


@dataclass(slots=True)
class RunningTrial:
    """A trial that is under way."""

    how: str = DONE  # how it ended


class Trials:
    """Allows everything but what is left out.

    Attributes:
        reports: whether another process hears each trial before it begins.
        left_out: why trials are not done; encountered: of those that were asked for.
    """

    reports = False

    def __init__(self, left_out: Mapping[Trial, str] | None = None) -> None:
        self.left_out = dict(left_out or {})
        self.encountered: set[str] = set()
        self._done: dict[Trial, str] = {}

    @contextmanager
    def attempt(self, trial: Trial) -> Iterator[RunningTrial]:
        """Do the trial inside of this context.

        Raises:
            KilledChild: children died of it.
        """
        self._refuse_left_out(trial)
        yield RunningTrial()

    def outcome(self, trial: Trial) -> str | None:
        """Return how a trial ended in this process; None: not at all, or it is left out."""
        return None if self._why_not(trial) else self._done.get(trial)

    def is_due(self, trial: Trial) -> bool:
        """Whether to run this now only to see whether it ends the process."""
        return False

    def note(self, trial: Trial, how: str) -> None:
        """Keep how a trial ended."""
        self._done[trial] = how

    def _why_not(self, trial: Trial) -> str | None:
        """Return how children died of this, of its build or of others of its file, or its fault."""
        if self.left_out:
            build = Trial(BUILD, trial.name, trial.digest)
            for each in (trial, build, Trial(FILE, trial.name)):
                if each in self.left_out:
                    return self.left_out[each]
        return "it computes wrongly" if self._done.get(trial) == WRONG else None

    def _refuse_left_out(self, trial: Trial) -> None:
        why = self._why_not(trial)
        if why is not None:
            self.encountered.add(why)
            raise KilledChild(why)


class ReportedTrials(Trials):
    """A child process: does it, and tells so before and after."""

    reports = True

    def __init__(self, left_out: Mapping[Trial, str], tell: Callable[..., None]) -> None:
        """`tell`: called with trying=TRIAL, and with tried=TRIAL and how=HOW."""
        super().__init__(left_out)
        self._report = tell

    @contextmanager
    def attempt(self, trial: Trial) -> Iterator[RunningTrial]:
        self._refuse_left_out(trial)
        self._report(trying=trial)
        under_way = RunningTrial()
        try:
            yield under_way
        finally:  # an error of the driver is an end that is as good
            self.note(trial, under_way.how)

    def is_due(self, trial: Trial) -> bool:
        return trial not in self._done

    def note(self, trial: Trial, how: str) -> None:
        super().note(trial, how)
        self._report(tried=trial, how=how)

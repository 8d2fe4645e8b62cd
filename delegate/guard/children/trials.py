# SPDX-License-Identifier: Apache-2.0
"""Trials: operations that may crash or hang a process, and permission to attempt them.

A trial is one operation: to build a kernel file, to run a kernel at its sizes, to create an
executor. It is identified by all input of the driver, so it is the same in every process. A child
attempts a trial and reports its outcome (`ReportedTrials`); `Trials` is for processes without one.
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
CPU = "cpu"
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
    CPU: "run a group of nodes on TFLite's CPU path",
}
# Outcomes.
DONE = "done"
PASSED = "passed"
DEVICE = "device"  # the mandatory self-test of a device
FRESH = "a plain kernel"  # the same with a source that no driver cache has
REFUSED = "refused"  # by the driver, which reports the reason when asked again
WRONG = "wrong"  # wrong results


class Trial(NamedTuple):
    """An operation that may crash its process. A tuple, for JSON."""

    kind: str
    name: str = ""  # of the kernel file, or of the self-test
    digest: str = ""  # of the source, or of all input of the driver
    kernel: str = ""
    sizes: tuple[int, ...] = ()  # of the kernel launch

    @classmethod
    def of(cls, kind: str, *facts: object) -> Trial:
        """Return a trial identified by a digest of these facts."""
        return cls(kind, digest=hashlib.sha256(repr(facts).encode()).hexdigest()[:32])

    @classmethod
    def unpacked(cls, packed: Any) -> Trial:
        """Restore a trial from a JSON list.

        Raises:
            ValueError, TypeError: not a trial.
        """
        *texts, sizes = packed
        kind, name, digest, kernel = texts
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{packed} is no trial")
        return cls(kind, name, digest, kernel, tuple(map(int, sizes)))

    @property
    def build(self) -> str:
        """A key of its source, for JSON."""
        named = (self.name,) if self.kind == SELF_TEST else (self.name, self.digest)
        return "-".join(filter(None, named))

    @property
    def is_of_a_model(self) -> bool:
        """Whether its file contains all launches of a model, and implies nothing about others."""
        return self.name.startswith("runtime_persistent")

    @property
    def blamed(self) -> Trial:
        """The trial to exclude if a child dies in this: for running a kernel, its build."""
        return Trial(BUILD, self.name, self.digest) if self.kind in (KERNEL, RUN) else self

    @property
    def words(self) -> str:
        """What it does, for messages: "to ..."."""
        return _WORDS.get(self.kind, self.kind).format(name=self.name, kernel=self.kernel)


@dataclass(slots=True)
class RunningTrial:
    """A trial in progress."""

    how: str = DONE  # its outcome


class Trials:
    """Permits every trial except excluded ones.

    Attributes:
        reports: whether trials are reported to another process before they begin.
        left_out: reasons, by excluded trial; encountered: of those that were requested.
    """

    reports = False

    def __init__(self, left_out: Mapping[Trial, str] | None = None) -> None:
        self.left_out = dict(left_out or {})
        self.encountered: set[str] = set()
        self._done: dict[Trial, str] = {}

    @contextmanager
    def attempt(self, trial: Trial) -> Iterator[RunningTrial]:
        """A context manager in which the trial is carried out.

        Raises:
            KilledChild: it has killed children.
        """
        self._refuse_left_out(trial)
        yield RunningTrial()

    def outcome(self, trial: Trial) -> str | None:
        """Return the outcome of a trial in this process; None: not attempted, or excluded."""
        return None if self._why_not(trial) else self._done.get(trial)

    def is_due(self, trial: Trial) -> bool:
        """Whether to run this now merely to see whether it crashes."""
        return False

    def note(self, trial: Trial, how: str) -> None:
        """Record the outcome of a trial."""
        self._done[trial] = how

    def _why_not(self, trial: Trial) -> str | None:
        """Return why a trial, its build or its file is excluded, or its failure."""
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
    """For a child process: reports each trial before and after."""

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
        finally:  # a driver error is an outcome, too
            self.note(trial, under_way.how)

    def is_due(self, trial: Trial) -> bool:
        return trial not in self._done

    def note(self, trial: Trial, how: str) -> None:
        super().note(trial, how)
        self._report(tried=trial, how=how)

# SPDX-License-Identifier: Apache-2.0
"""Recorded outcomes of trials on a device and driver, including deaths of children.

A death is attributed to a trial if a second child dies alike in it, neither was killed from
outside, no limit of this process is low, and a fallback kernel still builds and runs. The trial is
then banned for a week. Any other second death only excludes the trial from this start.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from delegate.errors import DeviceError
from delegate.guard.children import environment, helper
from delegate.guard.children.helper import Response
from delegate.guard.children.trials import BINARY_OF, BUILD, FILE, SELF_TEST, Trial
from delegate.guard.store import BANS, TRIALS, Store, stores

BAN_SECONDS = 7 * 24 * 3600
# Deaths per start, then the device is given up: a hanging driver costs a minute each time.
_MOST_DEATHS = {"all": 30, "late": 5, "killed": 6, "strays": 3}
_MOST_OF_A_FILE = 3  # other builds of the file use the same instructions
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True)
class Ban:
    """A trial that killed two children alike: not attempted until the ban expires.

    It expires after BAN_SECONDS, and in a process with another environment (`environment.digest`).
    """

    device: str  # DeviceInfo.identity, and its profile's
    trial: Trial
    end: str  # how the children ended
    since: float  # in seconds since the epoch
    where: str  # environment.digest of the banning process

    @property
    def key(self) -> str:
        """Its key in the store."""
        return json.dumps((self.trial, self.where))

    @property
    def until(self) -> float:
        """Expiry, in seconds since the epoch."""
        return self.since + BAN_SECONDS

    @property
    def holds(self) -> bool:
        """Whether it applies to this process."""
        is_young = self.since <= time.time() < self.until
        return is_young and self.where == environment.digest()

    @property
    def why(self) -> str:
        """The reason, for messages."""
        return f"child processes that tried to {self.trial.words} {self.end}"


class Records:
    """Outcomes of trials on a device and driver, and the deaths of this start.

    Attributes:
        done: outcomes of self-tests.
        left_out: reasons, by trial that this start excludes: banned, or excluded for this
            start only.
    """

    def __init__(self, identity: str, driver_fault: Callable[[], str] = lambda: "") -> None:
        """`driver_fault`: tries a fallback kernel in another child; returns the failure or ""."""
        self._store = Store(identity)
        self._driver_fault = driver_fault
        self._first: dict[Trial, Response] = {}
        self._deaths: Counter[str] = Counter()
        self.done: dict[Trial, str] = {
            trial: how
            for trial, how in _stored_results(self._store).items()
            if trial.kind == SELF_TEST
        }
        self.left_out: dict[Trial, str] = {
            ban.trial: ban.why for ban in _bans(self._store) if ban.holds
        }

    @property
    def are_banned(self) -> bool:
        """Whether later starts will exclude all that this one does."""
        return self.left_out.keys() <= {ban.trial for ban in _bans(self._store) if ban.holds}

    def ask(
        self, request: Callable[[], tuple[object, ...]], step_seconds: int | None = None
    ) -> Response:
        """Repeat a request in new children until one answers, and return its response.

        What kills two of them is excluded. `request`: called for each child; () stops.
        Raises:
            DeviceError: the device is given up, or no child can start.
        """
        while wanted := request():
            response = helper.ask(*wanted, step_seconds=step_seconds)
            self.add({t: how for t, how in response.outcomes.items() if t.kind == SELF_TEST})
            if response.is_answered:
                return response
            self.blame(response)
        return Response()

    def add(self, found: Mapping[Trial, str]) -> None:
        """Save outcomes; those of other processes are preserved."""
        if found:
            self.done.update(found)
            self._store.save(TRIALS, {json.dumps(trial): how for trial, how in found.items()})

    def ban(self, trial: Trial, end: str) -> bool:
        """Exclude a trial from now on; `end`: how its children ended.

        Returns: whether the ban could be saved.
        """
        new = Ban(self._store.identity, trial, end, time.time(), environment.digest())
        self.left_out[trial] = new.why
        lapsed = [ban.key for ban in _bans(self._store) if ban.until <= new.since]
        return self._store.save(BANS, {new.key: [end, new.since]}, gone={*lapsed} - {new.key})

    def blame(self, response: Response) -> Trial | None:
        """Return the trial to exclude from this start; None: another child retries it.

        Raises:
            DeviceError: too many deaths, or a fallback kernel fails as well.
        """
        self._count_death(response)
        if not response.trying:
            return None  # a coincidence, it seems
        trial = response.trying[-1].blamed
        first = self._first.setdefault(trial, response)
        child_exit = response.exit
        # A device works without an instruction set, and without a persistent kernel.
        is_optional = (
            trial.kind == SELF_TEST or trial.is_of_a_model
        ) and child_exit.is_self_inflicted
        level = logging.DEBUG if is_optional else logging.WARNING
        what = f"a child process {child_exit}, as it tried to {trial.words}"
        if first is response:
            if not is_optional:  # for optional trials one line is enough
                _log.warning("%s: another one tries it again", what)
            return None
        if not (
            first.exit.is_self_inflicted
            and child_exit.is_self_inflicted
            and child_exit.resembles(first.exit)
        ):
            _log.log(level, "%s again: this start does without%s", what, child_exit.remedy)
            self.left_out[trial] = what
            self._exclude_file(trial, response, is_kept=False)
            return trial
        if fault := self._driver_fault():
            raise DeviceError(f"the device does not work in this environment: {fault}")
        is_kept = self.ban(trial, str(child_exit))
        until = (
            "for a week, or until `tflite-opencl info --lift_bans`"
            if is_kept
            else "of this start: no later one will know, as the cache cannot be written"
        )
        _log.log(level, "%s, as another one did: it is left out %s", what, until)
        self._exclude_file(trial, response, is_kept=True)
        return trial

    def _count_death(self, response: Response) -> None:
        child_exit, is_stray = (
            response.exit,
            response.exit.is_self_inflicted and not response.trying,
        )
        self._deaths.update(
            all=1, late=child_exit.is_late, killed=not child_exit.is_self_inflicted, strays=is_stray
        )
        if any(self._deaths[kind] >= most for kind, most in _MOST_DEATHS.items()):
            raise DeviceError(
                f"a child process that tried the device {child_exit}{child_exit.remedy}"
            )

    def _exclude_file(self, trial: Trial, response: Response, is_kept: bool) -> None:
        """Exclude a kernel file if a build of it hangs, or several kill their child."""
        if trial.kind not in (BUILD, BINARY_OF):
            return
        deaths = sum(each.name == trial.name for each in self.left_out)
        if deaths < _MOST_OF_A_FILE and not response.exit.is_late:
            return
        _log.warning("nothing else of %s.cl is tried on this device", trial.name)
        whole = Trial(FILE, trial.name)
        if is_kept and not trial.is_of_a_model:
            self.ban(whole, "ended at several")
        else:
            self.left_out[whole] = "other builds of its file killed child processes"


def list_bans() -> list[Ban]:
    """Return the bans of all devices, including those that do not apply to this process."""
    now = time.time()
    return [ban for store in stores() for ban in _bans(store) if ban.until > now]


def lift_bans() -> int:
    """Remove all bans; return how many there were."""
    count = 0
    for store in stores():
        if keys := [ban.key for ban in _bans(store)]:
            store.save(BANS, {}, gone=keys)
            count += len(keys)
    return count


def _stored_results(store: Store) -> dict[Trial, str]:
    found = ((_trial(key), how) for key, how in store.load(TRIALS).items())
    return {trial: str(how) for trial, how in found if trial is not None}


@lru_cache(maxsize=1 << 14)  # reopening a device often reads the same ones
def _trial(key: str) -> Trial | None:
    with contextlib.suppress(ValueError, TypeError, RecursionError):  # else it is foreign
        return Trial.unpacked(json.loads(key))
    return None


def _bans(store: Store) -> list[Ban]:
    """Return the saved bans, including expired ones."""
    bans = []
    for key, value in store.load(BANS).items():
        with contextlib.suppress(ValueError, TypeError, RecursionError):  # it is foreign
            (trial, where), (end, since) = json.loads(key), value
            bans.append(
                Ban(store.identity, Trial.unpacked(trial), str(end), float(since), str(where))
            )
    return bans

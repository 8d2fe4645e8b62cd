# SPDX-License-Identifier: Apache-2.0
"""How the trials of a device and driver ended: kept on disk, what killed children among it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from delegate.sandbox import surroundings
from delegate.sandbox.trials import Trial
from delegate.store import BANS, TRIALS, Store, stores

BAN_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Ban:
    """A trial that two children died of alike: no start does it until the ban lapses.

    It lapses after BAN_SECONDS, and for a process with another environment (`surroundings.digest`).
    """

    device: str  # DeviceInfo.identity, and its profile's
    trial: Trial
    end: str  # how the children ended
    since: float  # in seconds since the epoch
    where: str  # surroundings.digest of the process that banned it

    @property
    def key(self) -> str:
        """What it is kept by."""
        return json.dumps((self.trial, self.where))

    @property
    def until(self) -> float:
        """When it lapses, in seconds since the epoch."""
        return self.since + BAN_SECONDS

    @property
    def holds(self) -> bool:
        """Whether it holds for this process."""
        is_young = self.since <= time.time() < self.until
        return is_young and self.where == surroundings.digest()

    @property
    def why(self) -> str:
        """Why the trial is not done."""
        return f"child processes that tried to {self.trial.words} {self.end}"


class Records:
    """How the trials of a device and driver ended.

    Attributes:
        done: how, of those that a child got through. Under limits nothing is, as a child with more
            room may have done it.
        left_out: why, of those that this start does without: banned ones, and others for this
            start alone.
    """

    def __init__(self, identity: str) -> None:
        self._store = Store(identity)
        self.done: dict[Trial, str] = {} if surroundings.shortages() else _done(self._store)
        self.left_out: dict[Trial, str] = {
            ban.trial: ban.why for ban in _bans(self._store) if ban.holds
        }

    def add(self, found: Mapping[Trial, str]) -> None:
        """Keep what was found; other processes' findings stay."""
        if found:
            self.done.update(found)
            self._store.save(TRIALS, {json.dumps(trial): how for trial, how in found.items()})

    def ban(self, trial: Trial, end: str) -> None:
        """Leave a trial out from now on; `end`: how its children ended."""
        new = Ban(self._store.identity, trial, end, time.time(), surroundings.digest())
        self.left_out[trial] = new.why
        lapsed = [ban.key for ban in _bans(self._store) if ban.until <= new.since]
        self._store.save(BANS, {new.key: [end, new.since]}, gone={*lapsed} - {new.key})


def list_bans() -> list[Ban]:
    """Return the bans of all devices, those that do not hold in this process among them."""
    now = time.time()
    return [ban for store in stores() for ban in _bans(store) if ban.until > now]


def lift_bans() -> int:
    """Let the next starts try all again that is banned; return how much that is."""
    count = 0
    for store in stores():
        if keys := [ban.key for ban in _bans(store)]:
            store.save(BANS, {}, gone=keys)
            count += len(keys)
    return count


def _done(store: Store) -> dict[Trial, str]:
    done = {}
    for key, how in store.load(TRIALS).items():
        with contextlib.suppress(ValueError, TypeError, RecursionError):  # it is foreign
            done[Trial.unpacked(json.loads(key))] = str(how)
    return done


def _bans(store: Store) -> list[Ban]:
    """Return what is kept, those that lapsed among it."""
    bans = []
    for key, value in store.load(BANS).items():
        with contextlib.suppress(ValueError, TypeError, RecursionError):  # it is foreign
            (trial, where), (end, since) = json.loads(key), value
            bans.append(
                Ban(store.identity, Trial.unpacked(trial), str(end), float(since), str(where))
            )
    return bans

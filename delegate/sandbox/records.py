# SPDX-License-Identifier: Apache-2.0
"""How the trials of a device and driver ended: kept on disk, what killed children among it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from delegate import cache
from delegate.sandbox import surroundings
from delegate.sandbox.trials import Trial

BAN_SECONDS = 7 * 24 * 3600
_FOLDER = "trials"


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
        self._identity = identity
        self._entry = f"{_FOLDER}/{hashlib.sha256(identity.encode()).hexdigest()[:40]}"
        done, bans = _kept(self._entry)
        self.done: dict[Trial, str] = {} if surroundings.shortages() else done
        self.left_out: dict[Trial, str] = {ban.trial: ban.why for ban in bans if ban.holds}

    def add(self, found: Mapping[Trial, str]) -> None:
        """Keep what was found; other processes' findings stay."""
        if found:
            self.done.update(found)
            done, bans = _kept(self._entry)
            _keep(self._entry, self._identity, done | self.done, bans)

    def ban(self, trial: Trial, end: str) -> None:
        """Leave a trial out from now on; `end`: how its children ended."""
        new = Ban(self._identity, trial, end, time.time(), surroundings.digest())
        self.left_out[trial] = new.why
        done, bans = _kept(self._entry)
        others = [ban for ban in bans if (ban.trial, ban.where) != (trial, new.where)]
        _keep(self._entry, self._identity, done, [*others, new])


def list_bans() -> list[Ban]:
    """Return the bans of all devices, those that do not hold in this process among them."""
    return [ban for entry in _entries() for ban in _kept(entry)[1]]


def lift_bans() -> int:
    """Let the next starts try all again that is banned; return how much that is."""
    count = 0
    for entry in _entries():
        done, bans = _kept(entry)
        if bans:
            _keep(entry, bans[0].device, done, [])
            count += len(bans)
    return count


def _entries() -> Iterator[str]:
    for path in sorted((cache.cache_folder() / _FOLDER).glob("[!.]*")):
        yield f"{_FOLDER}/{path.name}"


def _kept(entry: str) -> tuple[dict[Trial, str], list[Ban]]:
    """Return what `_keep` kept; nothing where the content is foreign."""
    try:
        kept = json.loads(cache.load(entry) or b"")
        done = {Trial.unpacked(trial): str(how) for trial, how in kept["done"]}
        bans = [_ban(kept["device"], *fields) for fields in kept["bans"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}, []
    return done, bans


def _ban(device: Any, trial: Any, end: Any, since: Any, where: Any) -> Ban:
    return Ban(str(device), Trial.unpacked(trial), str(end), float(since), str(where))


def _keep(entry: str, identity: str, done: Mapping[Trial, str], bans: list[Ban]) -> None:
    now = time.time()
    kept = [(ban.trial, ban.end, ban.since, ban.where) for ban in bans if ban.until > now]
    content = {"device": identity, "done": [*done.items()], "bans": kept}
    cache.store(entry, json.dumps(content).encode())

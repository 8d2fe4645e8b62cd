# SPDX-License-Identifier: Apache-2.0
"""Choices, measured once on this device and cached on disk. Independent of nodes and schedules.

Alternatives of a node, dispatch modes, generic or specialised kernels, and copy strategies are all
a Choice.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from delegate.guard.children import progress
from delegate.guard.store import CHOICES, Store
from delegate.plan.tuning import interleaved_timing

OFF, QUICK, FULL = MODES = ("off", "quick", "full")
# Time limit of a first start, self-tests included, plus the time spent before the first
# measurement, up to a limit: else a large model's start hardly measures.
QUICK_SECONDS = 2.0
_MOST_AGAIN_SECONDS = 10.0
# In total, if a device's self-tests took longer than that: the plan is final.
LEAST_SECONDS = 1.0
ROUNDS = {QUICK: 3, FULL: 12}
# For all candidates of a choice between whole schedules; each runs at least once.
_WHOLE_SECONDS = {QUICK: 0.5, FULL: 5.0}
_NEAR = 2  # the size ratio up to which a choice carries over
_UNSAVED_SECONDS = 1.0  # of measuring; Ctrl-C loses no more
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing to choose on a device.

    Attributes:
        key: what it is cached by; choices with the same key perform equally.
        candidates: names; a cached one that is not among them is ignored.
        default: taken without measurements; None: up to the caller.
        is_long: measured only in mode "full". is_short: measured even after the budget is used up.
        subject: what it is about, independent of shape; (): it has no other shapes.
        size: amount of computation, in any unit.
    """

    key: str
    candidates: Collection[str]
    default: str | None = None
    is_long: bool = False
    is_short: bool = False
    subject: tuple[object, ...] = ()
    size: int = 0

    @property
    def shape_family(self) -> str:
        """Its cache key for other shapes; "": it has none."""
        if not self.subject:
            return ""
        return f"family {hashlib.sha256(repr(self.subject).encode()).hexdigest()[:24]}"


class Chooser:
    """The choices on one device.

    Attributes:
        mode: "off" measures nothing, "quick" for a few seconds, and "full" everything.
        seconds_left: budget for measuring.
    """

    def __init__(self, mode: str, store: Store, spent: float = 0.0, is_exact: bool = False) -> None:
        """`spent`: seconds that this start has taken for results that are cached.

        `is_exact`: candidates are compared without a tolerance, so choices are cached apart.
        """
        if mode not in MODES:
            raise ValueError(f"tune='{mode}': one of {', '.join(MODES)}")
        self.mode = mode
        self.seconds_left = float("inf")
        self._begun_s: float | None = time.perf_counter()  # None: measuring has begun
        self._store, self._prefix = store, "exact " if is_exact else ""
        # by key: measured or looked up; None: unknown
        self._recorded: dict[str, str | None] = {}
        self._unsaved: dict[str, str] = {}  # measured, not saved yet
        self._unmeasured: set[str] = set()  # keys without a measurement
        self._measured_count, self._measuring_s = 0, 0.0
        self._saved_s = time.perf_counter()
        self.begin(QUICK_SECONDS - spent)

    @property
    def unmeasured(self) -> int:
        """The number of choices that were not measured since `begin`."""
        return len(self._unmeasured)

    @property
    def unmeasured_seconds(self) -> float:
        """Return the estimated seconds to measure them in mode "full"; 0: unknown."""
        rounds = ROUNDS[FULL] / ROUNDS[QUICK] if self.mode == QUICK else 1
        return self.unmeasured * rounds * self._measuring_s / max(1, self._measured_count)

    def begin(self, seconds_left: float) -> None:
        """Restart counting; a quick start may measure for `seconds_left` more."""
        self._unmeasured = set()
        if self.mode == QUICK:
            if seconds_left < 0 and self._begun_s is not None:
                seconds_left, self._begun_s = LEAST_SECONDS, None
            self.seconds_left = seconds_left

    def choose(self, choice: Choice, measure: Callable[[], str | None]) -> str | None:
        """Return the candidate known to be fastest, else the result of `measure`.

        It is not called in mode "off" or when the budget is used up: then, and if it has no result,
        the default is taken. A similar shape's choice is reused, if its size is close, except in
        mode "full".
        """
        if self.mode == OFF:
            return choice.default
        self._unmeasured.discard(choice.key)
        known = self._look_up(choice.key)
        if known not in choice.candidates and self.mode != FULL:
            known = self._from_similar_shape(choice)
        if known not in choice.candidates:
            known = self._measure(choice, measure)
        return choice.default if known is None else known

    def _from_similar_shape(self, choice: Choice) -> str | None:
        """Return the choice cached for another shape."""
        found = self._look_up(choice.shape_family) if choice.shape_family else None
        size, _, known = (found or "").partition(" ")
        if not size.isdecimal():
            return None
        is_near = max(int(size), choice.size) <= _NEAR * min(int(size), choice.size)
        return known if is_near else None

    def _measure(self, choice: Choice, measure: Callable[[], str | None]) -> str | None:
        if choice.is_long and self.mode != FULL:
            return None
        if self.seconds_left <= 0 and not choice.is_short:
            self._unmeasured.add(choice.key)
            return None
        if self._begun_s is not None:
            self.seconds_left += min(time.perf_counter() - self._begun_s, _MOST_AGAIN_SECONDS)
            self._begun_s = None
        begin = time.perf_counter()
        with progress.phase("tune"):
            found = measure()
        now = time.perf_counter()
        self.seconds_left -= now - begin
        self._measured_count, self._measuring_s = (
            self._measured_count + 1,
            (self._measuring_s + now - begin),
        )
        if found is not None:
            self._keep(choice.key, found)
            if choice.shape_family:
                self._keep(choice.shape_family, f"{choice.size} {found}")
            if now - self._saved_s > _UNSAVED_SECONDS:
                self.save()
        elif self.seconds_left <= 0:
            self._unmeasured.add(choice.key)
        return found

    def _keep(self, key: str, found: str) -> None:
        self._recorded[key] = self._unsaved[self._prefix + key] = found

    def fastest(self, repeat: Mapping[str, Callable[[int], float]]) -> str | None:
        """Return the name of the fastest; each function takes a count and returns seconds.

        The one expected to be fastest comes first: see `interleaved_timing.fastest`.
        """
        if not repeat:
            return None
        runs = [partial(run, 1) for run in repeat.values()]
        most, seconds = 1 + 6 * ROUNDS[self.mode], _WHOLE_SECONDS[self.mode]
        taken, times = interleaved_timing.fastest(runs, 1, most, seconds)
        found = zip(repeat, times, strict=True)
        _log.debug("whole: %s", ", ".join(f"{n} {t * 1e6:.0f} us" for n, t in found))
        return [*repeat][taken]

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Save at the end, also after an error."""
        try:
            yield
        finally:
            self.save()

    def save(self) -> None:
        """Save new measurements; other processes' results are preserved."""
        if self._unsaved:
            self._store.save(CHOICES, self._unsaved)
            self._unsaved = {}
        self._saved_s = time.perf_counter()

    def _look_up(self, key: str) -> str | None:
        """Return the cached result of a choice."""
        if key not in self._recorded:
            found = self._store.look_up(CHOICES, self._prefix + key)
            self._recorded[key] = found if isinstance(found, str) else None
        return self._recorded[key]

# SPDX-License-Identifier: Apache-2.0
"""Choices: measured once on this device, remembered on disk. Knows neither nodes nor programs.

Alternatives of a node, forms of a program, what its numbers are to the compiler, and how bytes
cross are four kinds of one Choice.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from delegate.guard.children import progress
from delegate.guard.store import CHOICES, Store
from delegate.plan.tuning import interleaved_timing

OFF, QUICK, FULL = MODES = ("off", "quick", "full")
# Time limit of a first start, self-tests included, and as long again as it took before anything was
# measured, up to so long: else a large model's start hardly measures.
QUICK_SECONDS = 2.0
_MOST_AGAIN_SECONDS = 10.0
# In all, where a device's self-tests took longer than that: the plan is final.
LEAST_SECONDS = 1.0
ROUNDS = {QUICK: 3, FULL: 12}
# For all candidates of a choice that run whole programs; each runs once at least.
_WHOLE_SECONDS = {QUICK: 0.5, FULL: 5.0}
_NEAR = 2  # between sizes of which one's choice holds for the other
_UNSAVED_SECONDS = 1.0  # of measuring; Ctrl-C costs no more
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing to choose on a device.

    Attributes:
        key: what it is remembered by; two choices that share it are equally fast.
        candidates: names; another one that was kept does not count.
        default: what is taken where nothing was measured; None: whoever asks knows.
        is_long: only people who asked for the fastest wait for it.
        subject: what it is of, whatever its shape; (): of nothing that has other shapes.
        size: how much is computed, in any unit.
    """

    key: str
    candidates: Collection[str]
    default: str | None = None
    is_long: bool = False
    subject: tuple[object, ...] = ()
    size: int = 0

    @property
    def shape_family(self) -> str:
        """What it is remembered by for other shapes; "": it has none."""
        if not self.subject:
            return ""
        return f"family {hashlib.sha256(repr(self.subject).encode()).hexdigest()[:24]}"


class Chooser:
    """What is chosen on one device.

    Attributes:
        mode: "off" measures nothing, "quick" for some seconds, and "full" to the end.
        seconds_left: that measuring may still take.
    """

    def __init__(self, mode: str, store: Store, spent: float = 0.0) -> None:
        """`spent`: seconds that this start has taken already for what the next one knows."""
        if mode not in MODES:
            raise ValueError(f"tune='{mode}': one of {', '.join(MODES)}")
        self.mode = mode
        self.seconds_left = float("inf")
        self._begun_s: float | None = time.perf_counter()  # None: something was to be measured
        self._store = store
        # by key: measured, or looked up; None: it is not
        self._recorded: dict[str, str | None] = {}
        self._unsaved: dict[str, str] = {}  # what was measured and not saved yet
        self._unmeasured: set[str] = set()  # keys that were not measured
        self._measured_count, self._measuring_s = 0, 0.0
        self._saved_s = time.perf_counter()
        self.begin(QUICK_SECONDS - spent)

    @property
    def unmeasured(self) -> int:
        """Count the choices that were not measured since `begin`."""
        return len(self._unmeasured)

    @property
    def unmeasured_seconds(self) -> float:
        """Return about how long these would take with mode "full"; 0: nothing was measured."""
        rounds = ROUNDS[FULL] / ROUNDS[QUICK] if self.mode == QUICK else 1
        return self.unmeasured * rounds * self._measuring_s / max(1, self._measured_count)

    def begin(self, seconds_left: float) -> None:
        """Count what is left from here on; a quick start may still measure for so long."""
        self._unmeasured = set()
        if self.mode == QUICK:
            if seconds_left < 0 and self._begun_s is not None:
                seconds_left, self._begun_s = LEAST_SECONDS, None
            self.seconds_left = seconds_left

    def choose(self, choice: Choice, measure: Callable[[], str | None]) -> str | None:
        """Return the candidate that is known to be the fastest, else what `measure` finds.

        It is not asked to measure in mode "off", nor when the seconds for it are used up: then, and
        where it finds nothing, that is the default. Another shape of the same has the same fastest
        candidate, if it is not far larger or smaller, unless people wait for the fastest.
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
        """Return what is known of another shape."""
        found = self._look_up(choice.shape_family) if choice.shape_family else None
        size, _, known = (found or "").partition(" ")
        if not size.isdecimal():
            return None
        is_near = max(int(size), choice.size) <= _NEAR * min(int(size), choice.size)
        return known if is_near else None

    def _measure(self, choice: Choice, measure: Callable[[], str | None]) -> str | None:
        if choice.is_long and self.mode != FULL:
            return None
        if self.seconds_left <= 0:
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
        self._recorded[key] = self._unsaved[key] = found

    def fastest(self, repeat: Mapping[str, Callable[[int], float]]) -> str | None:
        """Return the name of what runs faster; each is called with a count and gives seconds.

        The one that is expected to be the fastest comes first: see `turns.fastest`.
        """
        if not repeat:
            return None
        runs = [partial(run, 1) for run in repeat.values()]
        most, seconds = 1 + 6 * ROUNDS[self.mode], _WHOLE_SECONDS[self.mode]
        taken, times = interleaved_timing.fastest(runs, 1, most, seconds)
        found = zip(repeat, times, strict=True)
        _log.debug("whole: %s", ", ".join(f"{n} {t * 1e6:.0f} us" for n, t in found))
        return [*repeat][taken]

    def save(self) -> None:
        """Keep what was measured since the last call; other processes' findings stay."""
        if self._unsaved:
            self._store.save(CHOICES, self._unsaved)
            self._unsaved = {}
        self._saved_s = time.perf_counter()

    def _look_up(self, key: str) -> str | None:
        """Return what is known of a choice."""
        if key not in self._recorded:
            found = self._store.look_up(CHOICES, key)
            self._recorded[key] = found if isinstance(found, str) else None
        return self._recorded[key]

# SPDX-License-Identifier: Apache-2.0
"""Choices: measured once on this device, remembered on disk. Knows neither nodes nor programs.

Alternatives of a node, forms of a program, what its numbers are to the compiler, and how bytes
cross are four kinds of one Choice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from delegate import progress
from delegate.runtime import turns
from delegate.store import CHOICES, Store

OFF, QUICK, FULL = MODES = ("off", "quick", "full")
# Time limit of one start, self-tests included, and as long again as it took before anything was
# measured, up to so long: else a large model's starts hardly measure. Later starts do the rest.
QUICK_SECONDS = 2.0
_MOST_AGAIN_SECONDS = 10.0
ROUNDS = {QUICK: 3, FULL: 12}
# For all candidates of a choice that run whole programs; each runs once at least.
_WHOLE_SECONDS = {QUICK: 0.5, FULL: 5.0}
_NEAR = 2  # between sizes of which one's choice holds for the other
_UNSAVED_SECONDS = 1.0  # of measuring; Ctrl-C costs no more
_log = logging.getLogger("delegate")


# What is known, by key; the seconds that measuring may still take; what other shapes gave, by key.
State = tuple[dict[str, str], float, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing to choose on a device.

    Attributes:
        key: what it is remembered by; two choices that share it are equally fast.
        candidates: names; another one that was kept does not count.
        default: what is taken where nothing was measured; None: whoever asks knows.
        can_wait: a quick start that has chosen anything leaves this one to later starts.
        is_long: only people who asked for the fastest wait for it.
        kin: what it is of, whatever its shape; (): of nothing that has other shapes.
        size: how much is computed, in any unit.
    """

    key: str
    candidates: Collection[str]
    default: str | None = None
    can_wait: bool = False
    is_long: bool = False
    kin: tuple[object, ...] = ()
    size: int = 0


class Chooser:
    """What is chosen on one device.

    Attributes:
        mode: "off" measures nothing, "quick" for some seconds a start, later starts go on, and
            "full" to the end.
        seconds_left: that measuring may still take in this start.
    """

    def __init__(self, mode: str, store: Store, spent: float = 0.0) -> None:
        """`spent`: seconds that this start has taken already for what the next one knows."""
        if mode not in MODES:
            raise ValueError(f"tune='{mode}': one of {', '.join(MODES)}")
        self.mode = mode
        self.seconds_left = QUICK_SECONDS - spent if mode == QUICK else float("inf")
        self._begun_s: float | None = time.perf_counter()  # None: something was to be measured
        self._store = store
        self._chosen: dict[str, str] | None = None  # by key; None: not loaded yet
        self._new: dict[str, str] = {}  # what was measured and not saved yet
        self._has_chosen = False  # in this start
        self._wait: Callable[[str], None] | None = None  # tells what a child is to measure
        self._awaited: set[str] = set()  # keys of that
        self._left: set[str] = set()  # keys that later starts measure
        self._taken: dict[str, str] = {}  # by key: what was taken over from another shape
        self._of_kin: dict[tuple[object, ...], tuple[str, int]] = {}  # what is known, of what size
        self._saved_s = time.perf_counter()

    def leave_to_child(self, wait: Callable[[str], None]) -> None:
        """Measure nothing from here on: `wait` is told the key of what is not known."""
        self._wait = wait

    @property
    def left(self) -> int:
        """Count the choices that were due in this start and wait for a later one."""
        return len(self._left)

    @property
    def is_settled(self) -> bool:
        """Whether nothing that was asked for waits to be measured, here or in a child."""
        return not self._left and self._awaited <= self._known().keys()

    def state(self) -> State:
        """Return what another process goes on from."""
        return self._known(), self.seconds_left, self._taken

    def go_on(
        self, known: Mapping[str, str], seconds_left: float, taken: Mapping[str, str] | None = None
    ) -> None:
        """Go on from another process's state."""
        self._taken |= taken or {}
        before = len(self._known())
        self._chosen = self._known() | dict(known)
        self._has_chosen |= len(self._chosen) > before
        self.seconds_left = seconds_left

    def take(self, choice: Choice, measure: Callable[[], str | None]) -> str | None:
        """Return the candidate that is known to be the fastest, else what `measure` finds.

        It is not asked to measure in mode "off", nor when the seconds for it are used up, nor where
        a child measures: then, and where it finds nothing, that is the default. Another shape of
        the same has the same fastest candidate, if it is not far larger or smaller, unless people
        wait for the fastest.
        """
        if self.mode == OFF:
            return choice.default
        self._left.discard(choice.key)
        known = self._known().get(choice.key)
        if known not in choice.candidates and self.mode != FULL:
            known = self._taken.get(choice.key) or self._taken_over(choice)
            if known is not None and known in choice.candidates:
                # For the child, too, which knows nothing of other shapes.
                self._taken[choice.key] = known
        if known not in choice.candidates:
            known = self._measured(choice, measure)
        if known and choice.kin:
            self._of_kin[choice.kin] = known, choice.size
        return choice.default if known is None else known

    def _taken_over(self, choice: Choice) -> str | None:
        """Return what is known of another shape."""
        if choice.key in self._awaited and self.seconds_left > 0:
            return None  # the child would be told of it, and would not measure what it is asked for
        known, size = self._of_kin.get(choice.kin, ("", 0))
        is_near = max(size, choice.size) <= _NEAR * min(size, choice.size)
        return known if choice.kin and known and is_near else None

    def _measured(self, choice: Choice, measure: Callable[[], str | None]) -> str | None:
        if choice.is_long and self.mode != FULL:
            return None
        if (choice.can_wait and self._has_chosen and self.mode == QUICK) or self.seconds_left <= 0:
            self._left.add(choice.key)
            return None
        if self._begun_s is not None:
            self.seconds_left += min(time.perf_counter() - self._begun_s, _MOST_AGAIN_SECONDS)
            self._begun_s = None
        if self._wait is not None:
            self._awaited.add(choice.key)
            self._wait(choice.key)
            return None
        begin = time.perf_counter()
        with progress.phase("tune"):
            found = measure()
        now = time.perf_counter()
        self.seconds_left -= now - begin
        if found is not None:
            self._known()[choice.key] = self._new[choice.key] = found
            self._has_chosen = True
            if now - self._saved_s > _UNSAVED_SECONDS:
                self.save()
        elif self.seconds_left <= 0:
            self._left.add(choice.key)
        return found

    def fastest(self, repeat: Mapping[str, Callable[[int], float]]) -> str | None:
        """Return the name of what runs faster; each is called with a count and gives seconds.

        The one that is expected to be the fastest comes first: see `turns.fastest`.
        """
        if not repeat:
            return None
        runs = [partial(run, 1) for run in repeat.values()]
        most, seconds = 1 + 6 * ROUNDS[self.mode], _WHOLE_SECONDS[self.mode]
        taken, times = turns.fastest(runs, 1, most, seconds)
        found = zip(repeat, times, strict=True)
        _log.debug("whole: %s", ", ".join(f"{n} {t * 1e6:.0f} us" for n, t in found))
        return [*repeat][taken]

    def save(self) -> None:
        """Keep what was measured since the last call; other processes' findings stay."""
        if self._new:
            self._store.save(CHOICES, self._new)
            self._new = {}
        self._saved_s = time.perf_counter()

    def _known(self) -> dict[str, str]:
        if self._chosen is None:
            kept = self._store.load(CHOICES)
            self._chosen = {key: name for key, name in kept.items() if isinstance(name, str)}
        return self._chosen

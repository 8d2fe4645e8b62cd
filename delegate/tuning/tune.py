# SPDX-License-Identifier: Apache-2.0
"""Alternatives -> the fastest on this device, measured once and remembered on disk.

Nothing else chooses. What it measures is compared first: an alternative that a driver compiles
wrongly is left out, and a warning says so. Touches no device: `Bench` does.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from delegate import progress
from delegate.errors import DeviceError, KernelBuildError, Unsupported, Untried
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch, first_that_runs
from delegate.store import CHOICES, Store

MODES = ("off", "quick", "full")
# Time limit of one start, self-tests included. Later starts measure the rest.
QUICK_SECONDS = 2.0
_ROUNDS = {"quick": 3, "full": 12}
# For all forms of a partition; each runs once at least.
_FORM_SECONDS = {"quick": 0.5, "full": 5.0}
_UNSAVED_SECONDS = 1.0  # of measuring; Ctrl-C costs no more
_NONE = ""  # what is kept of a node whose alternatives all compute wrongly
# A node and values of what it reads -> what it gives; None: nobody knows.
Reference = Callable[[Node, Sequence[Any]], Sequence[Any] | None]
_log = logging.getLogger("delegate")


class Bench(Protocol):
    """A device that alternatives are tried on."""

    def check(self, alternative: Alternative) -> str | None:
        """Return why it cannot run here, or None."""

    def right(
        self, node: Node, alternatives: Sequence[Alternative], reference: Reference
    ) -> list[bool]:
        """Return for each whether it computes the node right.

        `reference`: who decides where they disagree, if it knows the node.
        """

    def times(
        self, alternatives: Sequence[Alternative], rounds: int, batch: int, is_joined: bool
    ) -> list[float]:
        """Return each one's least time in seconds, taken in turns.

        `is_joined`: as a part of one launch with others, where the device can do that.
        """


class Tuner:
    """Chooses for the nodes of one device.

    `source_of`: all that a launch's kernel is compiled from; `identity`: device and driver;
    `spent`: seconds that this start has taken already for what the next one knows; `wanted`: the
    name of the alternative to choose, without measuring, for nodes that have it.
    """

    def __init__(
        self,
        mode: str,
        identity: str,
        bench: Bench,
        source_of: Callable[[Launch], str],
        spent: float = 0.0,
        wanted: str | None = None,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"tune='{mode}': one of {', '.join(MODES)}")
        self._mode = mode
        self._wanted = wanted
        self._bench = bench
        self._source_of = source_of
        self._store = Store(identity)
        self._chosen: dict[str, str] | None = None  # signature -> alternative's name
        self._seconds_left = QUICK_SECONDS - spent if mode == "quick" else float("inf")
        self._new: dict[str, str] = {}  # what was measured and not saved yet
        self._has_chosen = False  # in this start
        self._left_to_child: set[str] | None = None  # signatures that a child was asked for
        self._left: set[str] = set()  # signatures that later starts measure
        self._saved_s = time.perf_counter()

    def leave_to_child(self) -> None:
        """Measure nothing from here on: Untried is raised for what is not known, each once."""
        self._left_to_child = set()

    @property
    def is_quick(self) -> bool:
        """Whether a start has so many seconds, and later ones go on."""
        return self._mode == "quick"

    @property
    def is_patient(self) -> bool:
        """Whether people asked for the fastest, however long it takes."""
        return self._mode == "full"

    @property
    def seconds_left(self) -> float:
        """Seconds that measuring may still take in this start."""
        return self._seconds_left

    @property
    def left(self) -> int:
        """Count the choices that were due in this start and wait for a later one."""
        return len(self._left)

    def state(self) -> tuple[dict[str, str], float]:
        """Return what is known, by signature, and the seconds that measuring may still take."""
        return self._known(), self._seconds_left

    def go_on(self, known: Mapping[str, str], seconds_left: float) -> None:
        """Go on from another process's state."""
        before = len(self._known())
        self._chosen = self._known() | dict(known)
        self._has_chosen |= len(self._chosen) > before
        self._seconds_left = seconds_left

    def choose(
        self,
        node: Node,
        alternatives: Sequence[Alternative],
        batch: int = 1,
        reference: Reference = lambda node, inputs: None,
    ) -> Alternative:
        """Return the alternative to run; without measuring, the first that this device can.

        `reference`: see `Bench.right`.
        Raises:
            Unsupported: it can run none, for the plain one's reason, or all compute wrongly.
        """
        for each in alternatives:
            if each.name == self._wanted and self._bench.check(each) is None:
                return each
        if len(alternatives) > 1:
            known = self.remembered(
                f"{self.signature(alternatives)}x{batch}",
                lambda: self._measure(node, alternatives, batch, reference),
                [*(each.name for each in alternatives), _NONE],
            )
            if known == _NONE:
                raise Unsupported("this device computes it wrongly")
            alternatives = sorted(alternatives, key=lambda each: each.name != known)
        return first_that_runs(alternatives, self._bench.check)

    def remembered(
        self,
        signature: str,
        measure: Callable[[], str | None],
        names: Collection[str],
        can_wait: bool = False,
    ) -> str | None:
        """Return the name kept for a signature, else what `measure` finds, else None.

        It is not asked to measure in mode "off", nor when the seconds for it are used up. `names`:
        those to choose from; another one that was kept does not count. `can_wait`: a start that
        has chosen anything leaves this to later ones, where the seconds are counted.

        Raises:
            Untried: a child is to measure it.
        """
        if self._mode == "off":
            return None
        known = self.kept(signature, names)
        if known is None and can_wait and self._has_chosen and self._mode == "quick":
            self._left.add(signature)
            return None
        if known is None and self._left_to_child is not None:
            if self._seconds_left > 0 and signature not in self._left_to_child:
                self._left_to_child.add(signature)
                raise Untried(f"choice {signature}")
        elif known is None and self._seconds_left > 0:
            begin = time.perf_counter()
            with progress.phase("tune"):
                known = measure()
            now = time.perf_counter()
            self._seconds_left -= now - begin
            if known is not None:
                self._known()[signature] = self._new[signature] = known
                self._has_chosen = True
                if now - self._saved_s > _UNSAVED_SECONDS:
                    self.save()
        self._note(signature, known)
        return known

    def _note(self, signature: str, known: str | None) -> None:
        """Keep whether something is left to measure: what was tried and gave nothing is not."""
        if known is None and self._seconds_left <= 0:
            self._left.add(signature)
        else:
            self._left.discard(signature)

    def kept(self, signature: str, names: Collection[str]) -> str | None:
        """Return the name kept for a signature, if it is one of these."""
        known = self._known().get(signature)
        return known if known in names else None

    def fastest(self, repeat: Mapping[str, Callable[[int], float]]) -> str | None:
        """Return the name of what runs faster; each is called with a count and gives seconds."""
        if not repeat:
            return None
        times = {name: run(1) for name, run in repeat.items()}
        end = time.perf_counter() + _FORM_SECONDS[self._mode]
        for _ in range(6 * _ROUNDS[self._mode]):
            if time.perf_counter() > end:
                break
            for name, run in repeat.items():  # one by one: others' work in between costs one run
                times[name] = min(times[name], run(1))
        _log.debug("whole: %s", ", ".join(f"{n} {t * 1e6:.0f} us" for n, t in times.items()))
        return min(times, key=times.__getitem__)

    def save(self) -> None:
        """Keep what was measured since the last call; other processes' findings stay."""
        if self._new:
            self._store.save(CHOICES, self._new)
            self._new = {}
        self._saved_s = time.perf_counter()

    def signature(self, alternatives: Sequence[Alternative]) -> str:
        """Return what two nodes must share to run equally fast: kernels, sizes and macros."""
        digest = hashlib.sha256()
        for alternative in alternatives:
            digest.update(alternative.name.encode())
            for launch in alternative.launches:
                # Plain ints do not change the speed. Tensor and constant sizes do.
                sizes = [_size(v) for v in launch.params.values() if not isinstance(v, int)]
                digest.update(repr((launch.kernel, launch.tiles, sizes)).encode())
                digest.update(self._source_of(launch).encode())
        return digest.hexdigest()[:24]

    def _known(self) -> dict[str, str]:
        if self._chosen is None:
            kept = self._store.load(CHOICES)
            self._chosen = {key: name for key, name in kept.items() if isinstance(name, str)}
        return self._chosen

    def _measure(
        self, node: Node, alternatives: Sequence[Alternative], batch: int, reference: Reference
    ) -> str | None:
        able = [each for each in alternatives if self._bench.check(each) is None]
        try:
            right = self._truthful(node, able, reference)
            if not right:
                return _NONE if able else None
            able = [each for each in right if each is not alternatives[-1]] or right
            is_joined = self.is_patient and batch == 1
            # For batches, time the literal kernels: they use registers differently.
            is_literal = self.is_patient and batch > 1
            timed = [each.literal() for each in able] if is_literal else able
            times = self._bench.times(timed, _ROUNDS[self._mode], batch, is_joined)
        except (DeviceError, KernelBuildError) as error:
            _log.info("node %d (%s) was not tuned: %s", node.index, node.op, error)
            return None
        best = min(range(len(able)), key=times.__getitem__)
        _log.debug(
            "node %d (%s): %s", node.index, node.op,
            ", ".join(f"{a.name} {t * 1e6:.0f} us" for a, t in zip(able, times, strict=True)),
        )  # fmt: skip
        return able[best].name

    def _truthful(
        self, node: Node, able: Sequence[Alternative], reference: Reference
    ) -> list[Alternative]:
        """Return those that compute right; no kind of them is believed more than another."""
        if len(able) < 2:
            return [*able]
        found = [*zip(able, self._bench.right(node, able, reference), strict=True)]
        for each, is_right in found:
            if not is_right:
                _log.warning(
                    "node %d (%s): '%s' computes wrongly on this device and is not used",
                    node.index, node.op, each.name,
                )  # fmt: skip
        return [each for each, is_right in found if is_right]


def _size(value: Tensor | Constant) -> object:
    return value.shape if isinstance(value, Tensor) else value.size_bytes

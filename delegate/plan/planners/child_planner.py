# SPDX-License-Identifier: Apache-2.0
"""Plans by a child process, cached.

The cache is asked first: on a hit nothing is lowered, compiled or measured. Else a child plans, and
reports each step before it begins. If it dies or hangs, another one retries. What kills that one,
too, is left out (delegate/guard/children/records.py), and a child continues without it: a lost
kernel costs an alternative, then a node.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from delegate.errors import DeviceError, Unsupported
from delegate.guard import cache
from delegate.guard.children import environment, helper, progress
from delegate.guard.children.records import Records
from delegate.guard.isolation.backend import AnyDevice
from delegate.guard.probing.probe import driver_fault
from delegate.options import Options
from delegate.plan.codec import TunedPlan, UnreadablePlan
from delegate.plan.contents import MissingContent, adopt, load
from delegate.plan.key import installation_key, key_of
from delegate.plan.planners.plan_reader import Parse, PlanReader, ResultT
from delegate.plan.tuning.chooser import FULL, QUICK_SECONDS
from delegate.run.programs import MissingBinary, binary_name

_FOLDER = "plans"
_WAIT_SECONDS = 120  # for another process that makes the same plan
# Errors by which a reader rejects an answer.
_UNUSABLE = (UnreadablePlan, MissingContent, MissingBinary, ValueError, TypeError)
_FINAL_ERRORS = ("", Unsupported.__name__)  # errors that are cached
_log = logging.getLogger("delegate")
_warned: set[str] = set()  # why kernels are left out


@dataclass(frozen=True, slots=True)
class _CacheSource:
    """The cache, and the files of contents that it rejected, by digest."""

    elsewhere: Mapping[str, str]

    def content(self, digest: str, size_bytes: int) -> NDArray[np.uint8]:
        return load(digest, size_bytes, self.elsewhere.get(digest))

    def binary(self, file: str, digest: str) -> bytes | None:
        return cache.load(binary_name(file, digest))


class ChildPlanner(PlanReader):
    """A PlanReader that asks the cache, and then a child."""

    def __init__(self, options: Options, device: AnyDevice, seconds: float) -> None:
        """`seconds`: that this start has taken so far."""
        super().__init__(options, device)
        info = device.info
        self._records = Records(device.identity, partial(driver_fault, info, device.profile))
        self._banned_before = {*self._records.left_out.values()}
        same = replace(options, device=info.index, own_context=False)
        self._same = info.identity, replace(same, isolate=False, run_timeout=0)
        self._seconds_left = QUICK_SECONDS - seconds

    def _require(self, answer: TunedPlan) -> None:
        if self._options.tune == FULL != answer.mode:
            raise UnreadablePlan("nothing was measured to the end")

    def _answer(
        self, name: str, call: str, arguments: tuple[object, ...], read: Parse[ResultT]
    ) -> ResultT:
        with self._lock, progress.phase("build"):
            found = self._from_cache(name, read)
            if found is None:
                with cache.locked(f"locks/{name[:2]}", _WAIT_SECONDS):
                    found = self._from_cache(name, read)  # another process may have planned it
                    if found is None:
                        found = self._ask_child(name, call, arguments, read)
            return found

    def _path(self, name: str) -> str:
        """Return the cache name of an answer; it changes when something is left out."""
        own = tuple(sorted(self._records.left_out))
        return f"{_FOLDER}/{key_of(installation_key(), name, own)}"

    def _from_cache(self, name: str, read: Parse[ResultT]) -> ResultT | None:
        """Return the parsed answer from the cache; None: there is no usable one."""
        if environment.shortages():  # it may have been made with higher limits
            return None
        content = cache.load(self._path(name))
        if content is None:
            return None
        try:
            return self._parse(name, content, _CacheSource({}), read)
        except _UNUSABLE as error:
            _log.debug("a plan in the cache is not used: %s", error)
            return None

    def _measured(
        self, name: str, threads: int, read: Parse[ResultT], measure: Callable[[], bytes]
    ) -> ResultT:
        cached = f"{name}, {threads} threads"
        with self._lock:
            content = None if environment.shortages() else cache.load(self._path(cached))
            if content is not None:
                with contextlib.suppress(*_UNUSABLE):
                    return self._parse(name, content, _CacheSource({}), read)
            content = b"[[], null]\n" + measure()
            if self._records.are_banned:
                cache.store(self._path(cached), content)
            return self._parse(name, content, _CacheSource({}), read)

    def _ask_child(
        self, name: str, call: str, arguments: tuple[object, ...], read: Parse[ResultT]
    ) -> ResultT:
        """Let children plan, and cache the answer; raises what planning raised there."""
        own = name, call, arguments, read
        try:
            return self._ask_child_once(*own)
        except _UNUSABLE as error:
            _log.debug("what a child process planned is lost: %s", error)
        helper.renew()  # it may remember contents that are gone from the cache
        try:
            return self._ask_child_once(*own)
        except _UNUSABLE as error:
            raise DeviceError(f"what a child process planned is lost: {error}") from error

    def _ask_child_once(
        self, name: str, call: str, arguments: tuple[object, ...], read: Parse[ResultT]
    ) -> ResultT:
        def request() -> tuple[object, ...]:
            left_out = dict(self._records.left_out)
            return "plan", self._same, left_out, self._seconds_left, call, arguments

        response = self._records.ask(request)
        self._seconds_left, elsewhere = (
            response.answer["seconds_left"],
            response.answer["elsewhere"],
        )
        is_for_good = self._records.are_banned and not elsewhere
        if response.answer["error"] in _FINAL_ERRORS and is_for_good:
            cache.store(self._path(name), response.payload)
        if self._options.isolate and elsewhere:
            elsewhere = adopt(elsewhere)
        return self._parse(name, response.payload, _CacheSource(elsewhere), read)

    def _note_exclusions(self, reasons: Collection[str]) -> None:
        """Log once which bans of earlier starts affect this one."""
        new = {*reasons} & self._banned_before - _warned
        # What this start left out was already logged.
        _warned.update(new, {*self._records.left_out.values()} - self._banned_before)
        if new:
            _log.warning(
                "kernels are left out on this device, because child processes died of them before: "
                "`tflite-opencl info --bans` says which"
            )

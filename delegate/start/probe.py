# SPDX-License-Identifier: Apache-2.0
"""May a device be used, and what can it do? Asked in a child process, and remembered.

A driver that crashes, hangs or computes wrongly shows it there and costs a warning here. So do
instructions the device lacks: what `Target.isa` holds was compiled, run and compared there.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from delegate import cache
from delegate.errors import DeviceError
from delegate.isa import BY_NAME, tried_on
from delegate.profiles import DeviceProfile
from delegate.runtime.device import allowed, identity_with
from delegate.runtime.device_list import DeviceInfo
from delegate.runtime.sources import defines_of, source_of
from delegate.sandbox import helper, surroundings
from delegate.sandbox.deaths import Deaths
from delegate.sandbox.helper import Heard
from delegate.sandbox.records import Records
from delegate.sandbox.trials import SELF_TEST, Trial
from delegate.start.advice import advice
from delegate.start.self_tests import DEVICE, FRESH, PASSED, device_launch, program_of

TIMEOUT_SECONDS = 120  # a cold start takes a second or two; a slow board's compiler far longer
ISA_TIMEOUT_SECONDS = 30  # for what a device can do without
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True)
class Proof:
    """What a device's self-tests found."""

    failure: str | None  # why it cannot be used
    isa: frozenset[str] = frozenset()  # what it can do beyond OpenCL C 1.2


def examine(info: DeviceInfo, profile: DeviceProfile | None = None) -> Proof:
    """Return a device's proof; what this driver version passed or failed is not asked again.

    Under low limits the first test is: the driver may not get by with them. `profile`: the tests
    keep its limits, and what it does not allow is not tested.
    """
    isas = allowed(tried_on(info.type), profile)
    name = _entry(info, isas, profile)
    known = _known(name, isas)
    records = Records(identity_with(info, profile))
    waiting = (
        [] if known is not None and not surroundings.shortages() else [Trial(SELF_TEST, DEVICE)]
    )
    waiting += [
        test
        for test in map(_test_of, isas)
        if test.build not in (known or {}) and test not in records.left_out
    ]
    try:
        deaths = Deaths(records, lambda: broken(info, profile))
        answers = _answers(info, profile, waiting, known or {}, deaths)
    except DeviceError as error:
        return Proof(str(error))
    if answers != known:
        kept = (isa if is_proven else f"-{isa}" for isa, is_proven in answers.items())
        cache.store(name, " ".join(sorted(kept)).encode())
    return Proof(None, frozenset(isa for isa, is_proven in answers.items() if is_proven))


def broken(info: DeviceInfo, profile: DeviceProfile | None = None) -> str:
    """Return how a plain kernel that no cache has fails now in a child; "" if it works."""
    test = Trial(SELF_TEST, FRESH)
    request = "self-tests", info, profile, (test,), ()
    heard = helper.ask(*request, step_seconds=TIMEOUT_SECONDS)
    if not heard.is_answered and not heard.ended.is_own:  # which says nothing of the device
        heard = helper.ask(*request, step_seconds=TIMEOUT_SECONDS)
    answer = heard.found.get(test) or _end(info, heard)
    return "" if answer == PASSED else answer


def was_used_before() -> bool:
    """Whether a device was ever examined by this user."""
    try:
        with os.scandir(cache.cache_folder() / "devices") as entries:
            return any(entries)
    except OSError:
        return False


def _answers(
    info: DeviceInfo,
    profile: DeviceProfile | None,
    waiting: list[Trial],
    known: Mapping[str, bool],
    deaths: Deaths,
) -> dict[str, bool]:
    """Return `known` and which of these tests were passed; those no child survives are not there.

    Raises:
        DeviceError: the device cannot be used.
    """
    found = dict(known)
    died = False  # of the test without which the device is not used
    while waiting:
        is_first = waiting[0].build == DEVICE
        seconds = TIMEOUT_SECONDS if is_first else ISA_TIMEOUT_SECONDS
        passed = [name for name, is_passed in found.items() if is_passed]
        heard = helper.ask("self-tests", info, profile, waiting, passed, step_seconds=seconds)
        for test, answer in heard.found.items():
            _log.debug("device %d, %s: %s", info.index, test.build, answer)
            if test.build != DEVICE:
                found[test.build] = answer == PASSED
            elif answer != PASSED:
                raise DeviceError(answer)
        waiting = [test for test in waiting if test not in heard.found]
        if heard.is_answered:
            break
        if waiting and waiting[0].build == DEVICE:
            if died:
                raise DeviceError(_end(info, heard))
            died = True
            continue
        left_out = deaths.take(heard)
        waiting = [test for test in waiting if test != left_out]
    return found


def _end(info: DeviceInfo, heard: Heard) -> str:
    ended = heard.ended
    why = advice(info, ended.stderr) if ended.is_own and ended.signal else ended.remedy
    return f"its self-test {ended}{why}"


def _known(name: str, isas: Sequence[str]) -> dict[str, bool] | None:
    """Return which of these were proven before, and which not; None: nothing was kept, or what is
    kept is foreign.
    """
    content = cache.load(name)
    words = None if content is None else content.decode(errors="replace").split()
    if words is None or not {word.removeprefix("-") for word in words} <= {*isas}:
        return None
    return {word.removeprefix("-"): not word.startswith("-") for word in words}


def _test_of(isa: str) -> Trial:
    """Return the self-test of a feature; its source is in the name."""
    launch = program_of(BY_NAME[isa]).launches[0]
    source = source_of(launch.file, defines_of(launch))
    return Trial(SELF_TEST, isa, hashlib.sha256(source.encode()).hexdigest()[:16])


def _entry(info: DeviceInfo, isas: Sequence[str], profile: DeviceProfile | None) -> str:
    """Return the name the cache keeps a proof by: device, driver, and the tests' sources."""
    whole = "\0".join((identity_with(info, profile), _sources(tuple(isas))))
    return f"devices/{hashlib.sha256(whole.encode()).hexdigest()[:40]}"


@lru_cache(maxsize=8)
def _sources(isas: tuple[str, ...]) -> str:
    """Return all that the self-tests compile; each delegate asks for it when it opens."""
    launches = [device_launch()[0], *(program_of(BY_NAME[isa]).launches[0] for isa in isas)]
    return "\0".join(source_of(launch.file, defines_of(launch)) for launch in launches)

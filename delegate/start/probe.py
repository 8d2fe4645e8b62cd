# SPDX-License-Identifier: Apache-2.0
"""May a device be used, and what can it do? Asked in a child process, and remembered.

A driver that crashes, hangs or computes wrongly shows it there and costs a warning here. So do
instructions the device lacks: what `Target.isa` holds was compiled, run and compared there.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from delegate.errors import DeviceError
from delegate.isa import BY_NAME, tried_on
from delegate.launch import Launch
from delegate.profiles import DeviceProfile
from delegate.runtime.device import allowed, identity_with
from delegate.runtime.device_list import DeviceInfo
from delegate.runtime.sources import defines_of, source_of
from delegate.sandbox import helper, surroundings
from delegate.sandbox.helper import Heard
from delegate.sandbox.records import Records
from delegate.sandbox.trials import SELF_TEST, Trial
from delegate.start.self_tests import DEVICE, FRESH, PASSED, advice, device_launch, program_of
from delegate.store import PROVEN, Store

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
    tests = _tests(tuple(allowed(tried_on(info.type), profile)))
    store = Store(identity_with(info, profile))
    kept = store.load(PROVEN)
    known = {test: kept[_key(test)] for test in tests if isinstance(kept.get(_key(test)), bool)}
    records = Records(store.identity, lambda: broken(info, profile))
    waiting = [test for test in tests if test not in known and test not in records.left_out]
    if surroundings.shortages() and tests[0] in known:
        waiting.insert(0, tests[0])
    try:
        answers = _answers(info, profile, waiting, known, records)
    except DeviceError as error:
        return Proof(str(error))
    if new := {_key(test): answer for test, answer in answers.items() if test not in known}:
        store.save(PROVEN, new)
    proven = {test.name for test, is_proven in answers.items() if is_proven}
    return Proof(None, frozenset(proven - {DEVICE}))


def broken(info: DeviceInfo, profile: DeviceProfile | None = None) -> str:
    """Return how a plain kernel that no cache has fails now in a child; "" if it works."""
    test = Trial(SELF_TEST, FRESH)
    request = "self-tests", info, profile, (test,), ()
    heard = helper.ask(*request, step_seconds=TIMEOUT_SECONDS)
    if not heard.is_answered and not heard.ended.is_own:  # which says nothing of the device
        heard = helper.ask(*request, step_seconds=TIMEOUT_SECONDS)
    answer = heard.found.get(test) or _end(info, heard)
    return "" if answer == PASSED else answer


def _answers(
    info: DeviceInfo,
    profile: DeviceProfile | None,
    waiting: list[Trial],
    known: Mapping[Trial, bool],
    records: Records,
) -> dict[Trial, bool]:
    """Return `known` and which of these tests were passed; those no child survives are not there.

    Raises:
        DeviceError: the device cannot be used.
    """
    found = dict(known)
    died = False  # of the test without which the device is not used
    while waiting:
        is_first = waiting[0].name == DEVICE
        seconds = TIMEOUT_SECONDS if is_first else ISA_TIMEOUT_SECONDS
        passed = [test.name for test, is_passed in found.items() if is_passed]
        heard = helper.ask("self-tests", info, profile, waiting, passed, step_seconds=seconds)
        for test, answer in heard.found.items():
            _log.debug("device %d, %s: %s", info.index, test.name, answer)
            if test.name == DEVICE and answer != PASSED:
                raise DeviceError(answer)
            found[test] = answer == PASSED
        waiting = [test for test in waiting if test not in heard.found]
        if heard.is_answered:
            break
        if waiting and waiting[0].name == DEVICE:
            if died:
                raise DeviceError(_end(info, heard))
            died = True
            continue
        left_out = records.blame(heard)
        waiting = [test for test in waiting if test != left_out]
    return found


def _end(info: DeviceInfo, heard: Heard) -> str:
    ended = heard.ended
    why = advice(info, ended.stderr) if ended.is_own and ended.signal else ended.remedy
    return f"its self-test {ended}{why}"


@lru_cache(maxsize=8)
def _tests(isas: tuple[str, ...]) -> tuple[Trial, ...]:
    """Return the self-tests, the device's own first; each delegate asks for them when it opens.

    The digest of its source is in each one's name.
    """
    launches = {DEVICE: device_launch()[0]}
    launches |= {isa: program_of(BY_NAME[isa]).launches[0] for isa in isas}
    return tuple(
        Trial(SELF_TEST, name, hashlib.sha256(_source_of(launch).encode()).hexdigest()[:16])
        for name, launch in launches.items()
    )


def _source_of(launch: Launch) -> str:
    return source_of(launch.file, defines_of(launch))


def _key(test: Trial) -> str:
    return f"{test.name} {test.digest}"

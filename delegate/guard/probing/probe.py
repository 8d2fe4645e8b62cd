# SPDX-License-Identifier: Apache-2.0
"""Self-tests of a device in a child process, with cached results.

A driver that crashes, hangs or computes wrongly does so there and costs a warning here. The same
holds for instruction sets: those in `Target.isa` were compiled, run and verified there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from delegate.errors import DeviceError
from delegate.guard.children import environment, helper
from delegate.guard.children.records import Records
from delegate.guard.children.trials import DEVICE, FRESH, PASSED, SELF_TEST, Trial
from delegate.guard.store import FACTS, Store
from delegate.isa import BY_NAME, lacked_by, tried_on
from delegate.plan.key import installation_key
from delegate.plan.sources import defines_of, source_of
from delegate.profiles import DeviceProfile
from delegate.run.device import allowed, identity_with
from delegate.run.device_list import DeviceInfo

TIMEOUT_SECONDS = 120  # a cold start takes a second or two; a slow board's compiler far longer
_SOURCES = "self-tests"  # cache key of their digests
ISA_TIMEOUT_SECONDS = 30  # for optional features


@dataclass(frozen=True, slots=True)
class Proof:
    """Results of a device's self-tests."""

    failure: str | None  # why it is unusable
    isa: frozenset[str] = frozenset()  # features beyond OpenCL C 1.2


def examine(info: DeviceInfo, profile: DeviceProfile | None = None, is_ieee: bool = False) -> Proof:
    """Return a device's proof; results are cached for the driver version.

    Under low limits the first test is repeated: they may be too low for the driver. `profile`:
    tests obey its limits, and features it excludes are not tested. `is_ieee`: with the features of
    precision "ieee".
    """
    tried = [name for name in tried_on(info.type, is_ieee) if name not in lacked_by(_flags())]
    identity = identity_with(info, profile)
    first, *others = _tests(identity, tuple(allowed(tried, profile)))
    records = Records(identity, partial(driver_fault, info, profile))
    done = records.done

    def pending() -> tuple[object, ...]:
        waiting = [test for test in others if test not in done and test not in records.left_out]
        passed = [test.name for test in others if done.get(test) == PASSED]
        return ("self_tests", info, profile, waiting, passed) if waiting else ()

    try:
        if environment.shortages() or first not in done:
            if why := _fault(info, profile, first):
                return Proof(why)
            records.add({first: PASSED})
        records.ask(pending, step_seconds=ISA_TIMEOUT_SECONDS)
    except DeviceError as error:
        return Proof(str(error))
    return Proof(None, frozenset(test.name for test in others if done.get(test) == PASSED))


def driver_fault(info: DeviceInfo, profile: DeviceProfile | None = None) -> str:
    """Return how an uncached fallback kernel fails in a child now; "" if it works."""
    return _fault(info, profile, Trial(SELF_TEST, FRESH))


def _fault(info: DeviceInfo, profile: DeviceProfile | None, test: Trial) -> str:
    """Return how a mandatory test fails, "" if it passes.

    A child may die by coincidence.
    """
    for _ in range(2):
        request = "self_tests", info, profile, [test], ()
        response = helper.ask(*request, step_seconds=TIMEOUT_SECONDS)
        if (answer := response.outcomes.get(test)) is not None:
            return "" if answer == PASSED else answer
    # Imported lazily, as in `_digests`.
    from delegate.guard.probing.remedies import advice

    child_exit = response.exit
    why = (
        advice(info, child_exit.stderr)
        if child_exit.is_self_inflicted and child_exit.signal
        else child_exit.remedy
    )
    return f"its self-test {child_exit}{why}"


@lru_cache(maxsize=1)
def _flags() -> frozenset[str]:
    """Return the system's CPU flags; may be empty."""
    try:
        return frozenset(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return frozenset()


@lru_cache(maxsize=8)
def _tests(identity: str, isas: tuple[str, ...]) -> tuple[Trial, ...]:
    """Return the self-tests, the mandatory one first; called whenever a delegate opens a device.

    The name of each contains the digest of its source. `identity`: of the device, with whose facts
    the digests are cached for this installation.
    """
    store, package, names = Store(identity), installation_key(), [DEVICE, *isas]
    digests = _stored_digests(store.load(FACTS).get(_SOURCES), package)
    if not {*names} <= digests.keys():
        digests = _digests(isas)
        store.save(FACTS, {_SOURCES: [package, digests]})
    return tuple(Trial(SELF_TEST, name, str(digests[name])) for name in names)


def _stored_digests(stored: object, package: str) -> dict[str, Any]:
    """Return the cached digests, if they are this installation's."""
    if isinstance(stored, list) and len(stored) == 2 and stored[0] == package:
        return stored[1] if isinstance(stored[1], dict) else {}
    return {}


def _digests(isas: tuple[str, ...]) -> dict[str, str]:
    """Return the digest of each self-test's source by name."""
    # Imported lazily: these import ops, which a start with a plan does not need: 0.1 s.
    from delegate.guard.probing.self_tests import device_launch, schedule_of

    launches = {DEVICE: device_launch()[0]}
    launches |= {isa: schedule_of(BY_NAME[isa]).launches[0] for isa in isas}
    sources = {name: source_of(each.file, defines_of(each)) for name, each in launches.items()}
    return {
        name: hashlib.sha256(source.encode()).hexdigest()[:16] for name, source in sources.items()
    }

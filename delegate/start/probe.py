# SPDX-License-Identifier: Apache-2.0
"""May a device be used, and what can it do? Asked in a child process, and remembered.

A driver that crashes, hangs or computes wrongly shows it there and costs a warning here. So do
instructions the device lacks: what `Target.isa` holds was compiled, run and compared there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from delegate.errors import DeviceError
from delegate.isa import BY_NAME, lacked_by, tried_on
from delegate.plan.key import installed
from delegate.profiles import DeviceProfile
from delegate.runtime.device import allowed, identity_with
from delegate.runtime.device_list import DeviceInfo
from delegate.runtime.sources import defines_of, source_of
from delegate.sandbox import helper, surroundings
from delegate.sandbox.records import Records
from delegate.sandbox.trials import DEVICE, FRESH, PASSED, SELF_TEST, Trial
from delegate.store import FACTS, Store

TIMEOUT_SECONDS = 120  # a cold start takes a second or two; a slow board's compiler far longer
_SOURCES = "self-tests"  # what their digests are kept as
ISA_TIMEOUT_SECONDS = 30  # for what a device can do without


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
    tried = [name for name in tried_on(info.type) if name not in lacked_by(_flags())]
    identity = identity_with(info, profile)
    first, *others = _tests(identity, tuple(allowed(tried, profile)))
    records = Records(identity, partial(broken, info, profile))
    done = records.done

    def left() -> tuple[object, ...]:
        waiting = [test for test in others if test not in done and test not in records.left_out]
        passed = [test.name for test in others if done.get(test) == PASSED]
        return ("self_tests", info, profile, waiting, passed) if waiting else ()

    try:
        if surroundings.shortages() or first not in done:
            if why := _fault(info, profile, first):
                return Proof(why)
            records.add({first: PASSED})
        records.ask(left, step_seconds=ISA_TIMEOUT_SECONDS)
    except DeviceError as error:
        return Proof(str(error))
    return Proof(None, frozenset(test.name for test in others if done.get(test) == PASSED))


def broken(info: DeviceInfo, profile: DeviceProfile | None = None) -> str:
    """Return how a plain kernel that no cache has fails now in a child; "" if it works."""
    return _fault(info, profile, Trial(SELF_TEST, FRESH))


def _fault(info: DeviceInfo, profile: DeviceProfile | None, test: Trial) -> str:
    """Return how a test fails without which the device is not used, "" if it passes.

    A child that dies may do so by chance.
    """
    for _ in range(2):
        request = "self_tests", info, profile, [test], ()
        heard = helper.ask(*request, step_seconds=TIMEOUT_SECONDS)
        if (answer := heard.found.get(test)) is not None:
            return "" if answer == PASSED else answer
    # Here, as in `_digests`.
    from delegate.start.self_tests import advice

    ended = heard.ended
    why = advice(info, ended.stderr) if ended.is_own and ended.signal else ended.remedy
    return f"its self-test {ended}{why}"


@lru_cache(maxsize=1)
def _flags() -> frozenset[str]:
    """Return what the system says of this processor; it may say nothing."""
    try:
        return frozenset(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return frozenset()


@lru_cache(maxsize=8)
def _tests(identity: str, isas: tuple[str, ...]) -> tuple[Trial, ...]:
    """Return the self-tests, the device's own first; each delegate asks for them when it opens.

    The digest of its source is in each one's name. `identity`: of the device, with whose facts the
    digests are kept for this installation.
    """
    store, package, names = Store(identity), installed(), [DEVICE, *isas]
    digests = _known(store.load(FACTS).get(_SOURCES), package)
    if not {*names} <= digests.keys():
        digests = _digests(isas)
        store.save(FACTS, {_SOURCES: [package, digests]})
    return tuple(Trial(SELF_TEST, name, str(digests[name])) for name in names)


def _known(kept: object, package: str) -> dict[str, Any]:
    """Return the digests that are kept, if they are this installation's."""
    if isinstance(kept, list) and len(kept) == 2 and kept[0] == package:
        return kept[1] if isinstance(kept[1], dict) else {}
    return {}


def _digests(isas: tuple[str, ...]) -> dict[str, str]:
    """Return the digest of each self-test's source by name."""
    # Here, as these take ops, which a start with a plan does not: 0.1 s.
    from delegate.start.self_tests import device_launch, program_of

    launches = {DEVICE: device_launch()[0]}
    launches |= {isa: program_of(BY_NAME[isa]).launches[0] for isa in isas}
    sources = {name: source_of(each.file, defines_of(each)) for name, each in launches.items()}
    return {
        name: hashlib.sha256(source.encode()).hexdigest()[:16] for name, source in sources.items()
    }

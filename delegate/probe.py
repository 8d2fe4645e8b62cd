# SPDX-License-Identifier: Apache-2.0
"""May a device be used, and what can it do? Asked in a child process, and remembered.

A driver that crashes, hangs or computes wrongly shows it there and costs a warning here. So do
instructions the device lacks: what `Target.isa` holds was compiled, run and compared there.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from delegate import cache, helper
from delegate.isa import BY_NAME, tried_on
from delegate.profiles import DeviceProfile
from delegate.runtime.device import allowed, identity_with
from delegate.runtime.device_list import DeviceInfo
from delegate.runtime.sources import defines_of, source_of
from delegate.self_tests import DEVICE, PASSED, advice, device_launch, program_of

TIMEOUT_SECONDS = 120  # a cold start takes a second or two; a slow board's compiler far longer
ISA_TIMEOUT_SECONDS = 30  # for what a device can do without
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True)
class Proof:
    """What a device's self-tests found."""

    failure: str | None  # why it cannot be used
    isa: frozenset[str] = frozenset()  # what it can do beyond OpenCL C 1.2


def examine(info: DeviceInfo, profile: DeviceProfile | None = None) -> Proof:
    """Return a device's proof; one that passed with this driver version is not asked again.

    `profile`: the tests keep its limits, and what it does not allow is not tested.
    """
    isas = allowed(tried_on(info.type), profile)
    name = _entry(info, isas, profile)
    known = _known(name, isas)
    if known is not None:
        return Proof(None, known)
    waiting, proven = [DEVICE, *isas], set()
    while waiting:
        # A child that dies was at the first that has no answer; the others get a new one.
        failure, answers = _in_child(info, waiting, profile)
        passed = {name for name, answer in answers.items() if answer == PASSED}
        if waiting[0] == DEVICE and DEVICE not in passed:
            return Proof(answers.get(DEVICE, failure))
        proven |= passed - {DEVICE}
        without = [each for each in waiting if each not in answers]
        for each, answer in (answers | dict.fromkeys(without[:1], failure)).items():
            _log.debug("device %d, %s: %s", info.index, each, answer)
        waiting = without[1:]
    cache.store(name, " ".join(sorted(proven)).encode())
    return Proof(None, frozenset(proven))


def was_used_before() -> bool:
    """Whether a device was ever examined by this user."""
    try:
        return any(os.scandir(cache.cache_folder() / "devices"))
    except OSError:
        return False


def _known(name: str, isas: Sequence[str]) -> frozenset[str] | None:
    """Return what was proven of these before; None: nothing is kept, or what is kept is foreign."""
    content = cache.load(name)
    proven = None if content is None else frozenset(content.decode(errors="replace").split())
    return proven if proven is not None and proven <= {*isas} else None


def _entry(info: DeviceInfo, isas: Sequence[str], profile: DeviceProfile | None) -> str:
    """Return the name the cache keeps a proof by: device, driver, and the tests' sources."""
    whole = "\0".join((identity_with(info, profile), _sources(tuple(isas))))
    return f"devices/{hashlib.sha256(whole.encode()).hexdigest()[:40]}"


@lru_cache(maxsize=8)
def _sources(isas: tuple[str, ...]) -> str:
    """Return all that the self-tests compile; each delegate asks for it when it opens."""
    launches = [device_launch()[0], *(program_of(BY_NAME[isa]).launches[0] for isa in isas)]
    return "\0".join(source_of(launch.file, defines_of(launch)) for launch in launches)


def _in_child(
    info: DeviceInfo, names: Sequence[str], profile: DeviceProfile | None
) -> tuple[str, dict[str, str]]:
    """Return how the child that runs these tests ended, for people, and the answers it gave."""
    seconds = TIMEOUT_SECONDS if names[0] == DEVICE else ISA_TIMEOUT_SECONDS
    heard = helper.ask("self-tests", info, profile, tuple(names), step_seconds=seconds)
    why = advice(info, heard.words) if heard.end.startswith("died") else ""
    return f"its self-test {heard.end}{why}", heard.found

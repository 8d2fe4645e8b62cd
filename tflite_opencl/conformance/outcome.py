# SPDX-License-Identifier: Apache-2.0
"""What came of a case: the words for it, the worker's Outcome and the run's Result."""

from __future__ import annotations

from dataclasses import dataclass

PASS, FAIL, NOT_DELEGATED, SKIP = "Pass", "Fail", "NotDelegated", "Skip"
# These a worker cannot say of itself.
CRASH, TIMEOUT, FLAKE = "Crash", "Timeout", "Flake"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one case in the worker."""

    result: str  # PASS, FAIL, NOT_DELEGATED or SKIP
    detail: str = ""
    quanta: float = 0  # the greatest difference, also one that was tolerated
    taken: int = 0  # nodes the delegate ran
    nodes: int = 0
    alternative: str = ""  # whose result it is, where several ran; the detail begins with it


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a case in the run."""

    name: str
    result: str  # any of the words above
    detail: str = ""
    seconds: float = 0
    quanta: float = 0
    taken: int = 0
    nodes: int = 0
    stderr: str = ""  # what the driver wrote meanwhile
    alternative: str = ""  # as in Outcome


def named(alternative: str, detail: str) -> str:
    """Return a detail that begins with the alternative, if there is one."""
    return f"{alternative}: {detail}" if alternative else detail

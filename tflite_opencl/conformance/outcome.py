# SPDX-License-Identifier: Apache-2.0
"""What came of a case: the words for it, and the record that workers and the run fill."""

from __future__ import annotations

from dataclasses import dataclass

PASS, FAIL, NOT_DELEGATED, SKIP = "Pass", "Fail", "NotDelegated", "Skip"
# These a worker cannot say of itself.
CRASH, TIMEOUT, FLAKE = "Crash", "Timeout", "Flake"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one case."""

    result: str  # one of the words above
    detail: str = ""
    quanta: float = 0  # the greatest difference, also one that was tolerated
    taken: int = 0  # nodes the delegate ran
    nodes: int = 0
    alternative: str = ""  # whose result it is, where several ran; the detail begins with it
    name: str = ""  # the case's: a check does not know it
    seconds: float = 0
    stderr: str = ""  # what the driver wrote meanwhile


def named(alternative: str, detail: str) -> str:
    """Return a detail that begins with the alternative, if there is one."""
    return f"{alternative}: {detail}" if alternative else detail

# SPDX-License-Identifier: Apache-2.0
"""Proxy for a device that a child process has opened."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from delegate.guard.isolation.worker import IsolationProcess
from delegate.options import Options
from delegate.run.device_list import DeviceInfo

_log = logging.getLogger("delegate")
_all: weakref.WeakSet[IsolatedDevice] = weakref.WeakSet()


class IsolatedDevice:
    """The interface of run.device.Device, except for calls.

    Attributes:
        worker: the child; profile, shares_memory, is_far, type, identity, proven, vector_width,
        compute_units: as Device's.
    Raises: as probing.opening.open_device, and DeviceError: the child died.
    """

    def __init__(self, options: Options) -> None:
        """Open the device that the options select in a child."""
        self.profile = options.profile

        def opening(facts: Mapping[str, Any]) -> tuple[object, ...]:
            level = _log.getEffectiveLevel()
            if not facts:
                return "open", options, "", level
            same = replace(options, device=facts["info"]["index"])
            return "open", same, facts["identity"], level

        self.worker = IsolationProcess(opening, options.run_timeout)
        facts = self.worker.facts
        self.info = DeviceInfo(**facts["info"])
        self.type: str = facts["type"]
        self.identity: str = facts["identity"]
        self.proven = frozenset(facts["proven"])
        self.vector_width: int = facts["vector_width"]
        self.compute_units: int = facts["compute_units"]
        self.is_far: bool = facts["is_far"]
        _all.add(self)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self.worker.is_closed

    def close(self) -> None:
        """End the child; a second call does nothing."""
        self.worker.close()


def children_cpu_seconds() -> float:
    """Return the processor time of all running children of this process's devices."""
    return sum(each.worker.cpu_seconds for each in [*_all])

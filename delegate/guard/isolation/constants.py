# SPDX-License-Identifier: Apache-2.0
"""Proxy for the programs and constants of a plan in a child."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from delegate.graph.ir import Tensor
from delegate.guard.isolation.device import IsolatedDevice
from delegate.plan.contents import ContentSource

_numbers = itertools.count()


class IsolatedConstants:
    """A lease of them; a new child loads them anew.

    Attributes:
        number: their id in the child.
    """

    def __init__(
        self,
        device: IsolatedDevice,
        content: bytes,
        ends: tuple[Sequence[Tensor], Sequence[Tensor]],
        source: ContentSource,
    ) -> None:
        """Load them in the child.

        `content`: the encoded plan; `ends`: the tensors to substitute for its ends.
        Raises: MissingContent, MissingBinary, DeviceError: as LocalBackend.constants.
        """
        self.number = next(_numbers)
        self._arguments = content, ends, source
        self._worker = device.worker
        self._child = 0  # number of the child that has them
        self._holds = 1
        with self._worker:
            self._worker.require()
            self.require_there()

    def require_there(self) -> None:
        """Load them in the current child; the caller holds the worker's lock."""
        if self._child != self._worker.number:
            self._worker.ask("add_constants", self.number, *self._arguments)
            self._child = self._worker.number

    def acquire(self) -> IsolatedConstants:
        """Return another lease of them."""
        self._holds += 1
        return self

    def close(self) -> None:
        """Release a lease; the child frees them with the last one."""
        self._holds -= 1
        if self._holds == 0 and self._child == self._worker.number:
            self._worker.defer("drop_constants", self.number)

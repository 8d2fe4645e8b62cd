# SPDX-License-Identifier: Apache-2.0
"""The programs and constants of a plan in a child, from which it makes executors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from delegate.graph.ir import Tensor
from delegate.guard.isolation.device import IsolatedDevice
from delegate.plan.contents import ContentSource

_numbers = itertools.count()


class IsolatedConstants:
    """A hold on them; a new child is given them anew.

    Attributes:
        number: that the child knows them by.
    """

    def __init__(
        self,
        device: IsolatedDevice,
        content: bytes,
        ends: tuple[Sequence[Tensor], Sequence[Tensor]],
        source: ContentSource,
    ) -> None:
        """Let the child load them.

        `content`: the plan, as plan.codec has it; `ends`: the tensors that its ends stand for.
        Raises: MissingContent, MissingBinary, DeviceError: as LocalBackend.constants.
        """
        self.number = next(_numbers)
        self._arguments = content, ends, source
        self._worker = device.worker
        self._child = 0  # the one that has them
        self._holds = 1
        with self._worker:
            self._worker.require()
            self.require_there()

    def require_there(self) -> None:
        """Let the child have them; the caller has the worker, and a child."""
        if self._child != self._worker.number:
            self._worker.ask("add_constants", self.number, *self._arguments)
            self._child = self._worker.number

    def acquire(self) -> IsolatedConstants:
        """Return one more hold on them."""
        self._holds += 1
        return self

    def close(self) -> None:
        """Give one hold back; without any the child frees them."""
        self._holds -= 1
        if self._holds == 0 and self._child == self._worker.number:
            self._worker.defer("drop_constants", self.number)

# SPDX-License-Identifier: Apache-2.0
"""What was decided of one node: it runs on the device, or the reason why it stays on the CPU."""

from __future__ import annotations

from typing import NamedTuple


class Loss(str):
    """A reason why a node stays on the CPU: child processes died of its kernels."""

    __slots__ = ()


class Verdict(NamedTuple):
    """One node's verdict. A tuple, so that users may write `for node, op, reason in verdicts`."""

    node: int  # index in the file, which is TFLite's node index
    op: str
    reason: str | None  # why the node stays on the CPU; None: it runs on the device

    @property
    def is_taken(self) -> bool:
        """Whether the node runs on the device."""
        return self.reason is None

    @property
    def is_lost(self) -> bool:
        """Whether it stays on the CPU because child processes died of its kernels."""
        return isinstance(self.reason, Loss)

    def refused(self, reason: str) -> Verdict:
        """Return the verdict of a node that stays on the CPU; an earlier reason stays."""
        return self._replace(reason=reason) if self.is_taken else self

# SPDX-License-Identifier: Apache-2.0
"""What several devices share: pieces of the work on their way, and what became of each portion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from delegate.runtime.device_list import DeviceInfo

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Portion:
    """What one of a Model's devices did."""

    device: DeviceInfo
    pictures: int  # whose outputs are this device's
    seconds: float  # in which it had something to do
    failure: str = ""  # why it gets no more; "" = it does


class Owner(Protocol):
    """What lets devices run pieces."""

    def wait(self, piece: PendingPiece) -> None:
        """Return when a piece has its outcome."""

    def cancel(self, piece: PendingPiece) -> None:
        """Leave out a piece that waits."""

    def listen(self, piece: PendingPiece, listen: Callable[[], object]) -> None:
        """Call `listen` when a piece has its outcome."""


class PendingPiece:
    """Up to a batch of pictures on their way through one of several devices.

    Attributes:
        device: whose outputs these are; None: there are none yet, or no device could.
        arrays, count, is_given: what is run; outcome, listen: what came of it, and who is told.
    """

    def __init__(self, owner: Owner, arrays: Sequence[Array], count: int, is_given: bool) -> None:
        self.arrays, self.count, self.is_given = arrays, count, is_given
        self.device: DeviceInfo | None = None
        self.outcome: list[Array] | Exception | None = None
        self.listen: Callable[[], object] | None = None
        self._owner = owner

    @property
    def is_done(self) -> bool:
        """Whether `result` returns at once."""
        return self.outcome is not None

    def result(self) -> list[Array]:
        """Wait for the end of the run and return its outputs, the same arrays at each call.

        Raises:
            DeviceError: the last device failed, or the run was cancelled.
        """
        self._owner.wait(self)
        assert self.outcome is not None
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def cancel(self) -> None:
        """Leave it out, if no device has taken it."""
        self._owner.cancel(self)

    def when_done(self, listen: Callable[[], object]) -> None:
        """Call `listen` when the run has ended, in another thread; at once where it has."""
        self._owner.listen(self, listen)


def pieces_of(arrays: Sequence[Array], count: int, batch: int) -> Iterator[tuple[list[Array], int]]:
    """Yield the arrays of so many pictures in pieces, each with its number of pictures."""
    for first in range(0, count, batch):
        piece = [array[first : first + batch] for array in arrays]
        yield piece, min(batch, count - first)

# SPDX-License-Identifier: Apache-2.0
"""Proxy for persistent tensors on a child's device."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from delegate.graph.ir import Tensor
from delegate.guard.isolation.device import IsolatedDevice
from delegate.run.arena import Values
from delegate.run.persistent_tensors import PersistentTensors

_numbers = itertools.count()


class IsolatedState(PersistentTensors):
    """Proxy for a State in the child, with the same lifetime as the child.

    Attributes:
        number: its id in the child.
    """

    def __init__(self, device: IsolatedDevice, *about: Any, **more: Any) -> None:
        """`about`, `more`: as PersistentTensors."""
        super().__init__(*about, **more)
        self.number = next(_numbers)
        self._about = about, more
        self._worker = device.worker
        self._worker.observers.add(self)
        self._added: list[tuple[list[Tensor], dict[str, Values]]] = []
        self._child = 0  # number of the child that has it; 0: none
        self._sent = 0  # how many of `_added` the child has

    def add(self, tensors: Iterable[Tensor], initial: Mapping[str, Values] | None = None) -> None:
        """As PersistentTensors."""
        new = [*tensors]
        super().add(new, initial)
        names = {tensor.state_name for tensor in new}
        own = {name: values for name, values in (initial or {}).items() if name in names}
        self._added.append((new, own))

    def _value_added(self) -> None:
        pass  # sent to the child before its next run

    def require_there(self) -> None:
        """Create it in the current child; needs the process's lock. Raises: as its `ask`."""
        number, about = self.number, self._about
        if self._child != self._worker.number:
            self._worker.ask("add_state", number, *about)
            self._child, self._sent = self._worker.number, 0
        while self._sent < len(self._added):
            self._worker.ask("call_state", number, "add", *self._added[self._sent])
            self._sent += 1

    def child_ended(self, why: str) -> None:
        """Mark the child's values as lost."""
        if self._child:
            self._child = 0
            self.lose(why)

    def reset(self) -> None:
        """As PersistentTensors."""
        with self.lock, self._worker:
            if self._child:  # else the next child starts anew
                self._ask("reset")
            self._lost = ""

    def values(self) -> dict[str, Values]:
        """As PersistentTensors."""
        with self.lock, self._worker:
            self.require()
            content, found, at = self._ask("values").get("payload", b""), {}, 0
            for name, value in self.by_name.items():
                like = value.initial
                flat = np.frombuffer(content, like.dtype, like.size, at)
                found[name] = flat.reshape(like.shape).copy()
                at += like.nbytes
            return found

    def _put(self, values: Mapping[str, Values]) -> None:
        with self._worker:
            self._ask("put", {name: np.array(given) for name, given in values.items()})

    def _ask(self, call: str, *arguments: object) -> dict[str, Any]:
        self._worker.require()
        self.require_there()
        return self._worker.ask("call_state", self.number, call, *arguments)

    def close(self) -> None:
        """As PersistentTensors."""
        self.by_name = {}
        if self._child:
            self._worker.defer("drop_state", self.number)

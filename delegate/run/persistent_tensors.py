# SPDX-License-Identifier: Apache-2.0
"""Values that outlive runs, wherever they are: their names, their first content, what is lost."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import numpy as np

from delegate.errors import DeviceError
from delegate.graph.ir import Tensor
from delegate.launch import element_type
from delegate.plan.layout import as_bytes, padded_bytes
from delegate.plan.record import NO_REGION, Region
from delegate.run.arena import PersistentValue, Values


class PersistentTensors(ABC):
    """The kept values of an interpreter, or of a Model's stream of runs.

    Attributes:
        by_name: the values; lock: for them.
        region: where the values begin the shared arena; NO_REGION: each executor has its own.
    """

    def __init__(self, batch: int = 1, remedy: str = "reset it", has_arena: bool = False) -> None:
        """`batch` pictures have a value each. `remedy`: what whoever lost it is told to do.

        `has_arena`: executors share an arena, as each run ends before the next one begins.
        """
        self.region = NO_REGION
        self._remedy = remedy
        self._batch = batch
        self._has_arena = has_arena
        self.by_name: dict[str, PersistentValue] = {}
        self._lost = ""  # why no value can be trusted
        # One that a thread may take again: a signal's handler may reset what its thread runs.
        self.lock = threading.RLock()

    def add(self, tensors: Iterable[Tensor], initial: Mapping[str, Values] | None = None) -> None:
        """Begin the values of these tensors that are not there.

        `initial`: what they begin with, by name; else as TFLite's variables: an int8 tensor with
        its zero point, others with zero bytes. One that is there in another shape begins anew.
        """
        with self.lock:
            for tensor in tensors:
                found = self.by_name.get(tensor.state_name)
                if found is not None and found.matches(tensor):
                    continue
                values = _initial_values(
                    tensor, self._batch, (initial or {}).get(tensor.state_name)
                )
                self.by_name[tensor.state_name] = PersistentValue(values, values)
                if self._has_arena:
                    offsets, end = self.region
                    offsets = {**offsets, tensor.state_name: end}
                    self.region = Region(offsets, end + padded_bytes(tensor))
                self._value_added()

    @abstractmethod
    def _value_added(self) -> None:
        """Take note that a value has begun, and perhaps another region."""

    def has(self, tensor: Tensor) -> bool:
        """Whether it keeps the value of which this is a version."""
        return tensor.state_name in self.by_name

    @abstractmethod
    def reset(self) -> None:
        """Begin every value anew, also after a run that failed."""

    @abstractmethod
    def values(self) -> dict[str, Values]:
        """Return a copy of each value, of all pictures; raises DeviceError, also if it is lost."""

    def put(self, values: Mapping[str, Values]) -> None:
        """Go on with these in the place of the values; those that are left out stay.

        Raises:
            ValueError: no value has such a name, shape and type. DeviceError: also if what is left
                out is lost.
        """
        with self.lock:
            for name, given in values.items():
                if name not in self.by_name:
                    known = ", ".join(map(repr, self.by_name)) or "none"
                    raise ValueError(f"no state is named {name!r}; there is: {known}")
                own = self.by_name[name].initial
                array = np.asarray(given)
                if (array.shape, array.dtype) != (own.shape, own.dtype):
                    raise ValueError(
                        f"state {name!r} is {own.dtype} of shape {own.shape}, and "
                        f"{array.dtype} of shape {array.shape} is given"
                    )
            if self.by_name.keys() - values.keys():
                self.require()
            self._put(values)
            self._lost = ""

    @abstractmethod
    def _put(self, values: Mapping[str, Values]) -> None:
        """As `put`, of values that were found to be right."""

    def lose(self, why: str) -> None:
        """Trust no value any more, until `reset`."""
        self._lost = self._lost or why

    def require(self) -> None:
        """Return if the values are those that the last run left; raises DeviceError."""
        if self._lost:
            raise DeviceError(f"the state is lost, as a run failed ({self._lost}): {self._remedy}")

    @abstractmethod
    def close(self) -> None:
        """Give the device's memory back; a second call does nothing."""


def _initial_values(tensor: Tensor, batch: int, initial: Values | None) -> Values:
    """Return a value's first content, in the shape (batch, *tensor's); zeros lie there once.

    Source: tflite/core/subgraph.cc ResetVariableTensors
    """
    dtype = element_type(tensor.dtype)
    if initial is None:
        zero_points = tensor.quantization.zero_point if tensor.quantization is not None else ()
        initial = np.array(zero_points[0] if zero_points and dtype == np.int8 else 0, dtype)
    elif as_bytes(initial).any():
        initial = initial.astype(dtype).reshape(tensor.shape)  # a copy: it may be TFLite's memory
    else:
        initial = np.zeros((), dtype)
    return np.broadcast_to(initial, (batch, *tensor.shape))

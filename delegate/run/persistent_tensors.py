# SPDX-License-Identifier: Apache-2.0
"""Values that outlive runs, wherever they are stored: names, initial values, and their loss."""

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
    """The persistent tensors of an interpreter, or of one stream of a Model's runs.

    Attributes:
        by_name: the values; lock: guards them.
        region: their range at the start of the shared arena; NO_REGION: executors share none.
    """

    def __init__(self, batch: int = 1, remedy: str = "reset it", has_arena: bool = False) -> None:
        """Each element of a `batch` has its own value. `remedy`: advice in the error on loss.

        `has_arena`: executors share an arena, as runs never overlap.
        """
        self.region = NO_REGION
        self._remedy = remedy
        self._batch = batch
        self._has_arena = has_arena
        self.by_name: dict[str, PersistentValue] = {}
        self._lost = ""  # why the values are invalid
        # Reentrant: a signal handler may reset what its thread is running.
        self.lock = threading.RLock()

    def add(self, tensors: Iterable[Tensor], initial: Mapping[str, Values] | None = None) -> None:
        """Create the values of these tensors that do not exist yet.

        `initial`: their first values, by name; else TFLite's for variables: the zero point for an
        int8 tensor, zero bytes for others. A value of another shape is created anew.
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
        """Called when a value was added, which may change the region."""

    def has(self, tensor: Tensor) -> bool:
        """Whether it holds the value that this tensor is a version of."""
        return tensor.state_name in self.by_name

    @abstractmethod
    def reset(self) -> None:
        """Reset every value, also after a failed run."""

    @abstractmethod
    def values(self) -> dict[str, Values]:
        """Return a copy of each value, for the whole batch; raises DeviceError, also on loss."""

    def put(self, values: Mapping[str, Values]) -> None:
        """Replace values; those not named stay.

        Raises:
            ValueError: no value has this name, shape and type. DeviceError: also if the values
                not named are lost.
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
        """As `put`, for values that were validated."""

    def lose(self, why: str) -> None:
        """Mark all values as invalid until `reset`."""
        self._lost = self._lost or why

    def require(self) -> None:
        """Check that the values are those of the last run; raises DeviceError."""
        if self._lost:
            raise DeviceError(f"the state is lost, as a run failed ({self._lost}): {self._remedy}")

    @abstractmethod
    def close(self) -> None:
        """Free the device memory; a second call does nothing."""


def _initial_values(tensor: Tensor, batch: int, initial: Values | None) -> Values:
    """Return a value's initial content, of shape (batch, *tensor's); zeros are broadcast.

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

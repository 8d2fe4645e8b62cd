# SPDX-License-Identifier: Apache-2.0
"""Inputs, outputs and runs of a Model, independent of devices."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import DeviceError, InvalidValue
from delegate.graph.ir import Tensor
from delegate.guard.children import process
from delegate.run.device_list import DeviceInfo

Array = NDArray[Any]
LOOK_SECONDS = 0.5  # interval at which waiting threads wake up


@dataclass(frozen=True, slots=True)
class TensorDetails:
    """An input or output of a Model, with the names of TFLite's interpreter."""

    name: str
    index: int  # of the tensor in the file
    shape: tuple[int, ...]  # of a whole batch
    dtype: np.dtype[Any]
    scale: float  # real = scale * (value - zero_point); 0.0: not quantised, or per channel
    zero_point: int

    @property
    def quantization(self) -> tuple[float, int]:
        """The scale and the zero point."""
        return self.scale, self.zero_point


def details_of(tensor: Tensor, batch: int) -> TensorDetails:
    """Return the details of a tensor for a batch size."""
    quantization = tensor.quantization
    scale, zero_point = 0.0, 0
    if quantization is not None and len(quantization.scale) == 1:
        scale, zero_point = quantization.scale[0], quantization.zero_point[0]
    return TensorDetails(
        name=tensor.name,
        index=tensor.index,
        shape=batch_shape(tensor, batch),
        dtype=np.dtype(tensor.dtype),
        scale=scale,
        zero_point=zero_point,
    )


def batch_shape(tensor: Tensor, batch: int) -> tuple[int, ...]:
    """Return the shape of a tensor for a batch."""
    own = tensor.shape[1:] if tensor.shape[:1] == (1,) else tensor.shape
    return (batch, *own)


def checked_arrays(
    inputs: Array | Sequence[Array], wanted: Sequence[TensorDetails], most: int | None
) -> tuple[list[Array], int]:
    """Return contiguous arrays, and their number of pictures.

    A model without inputs runs for one. `most`: maximum number of pictures; None: no limit.
    Raises: ValueError: a wrong number of arrays, dtype or shape.
    """
    given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if len(given) != len(wanted):
        raise ValueError(f"{len(given)} arrays are given, and the model has {len(wanted)} inputs")
    for number, (array, details) in enumerate(zip(given, wanted, strict=True)):
        if not isinstance(array, np.ndarray):
            found = f"a {type(array).__name__}"
        elif (
            array.dtype == details.dtype
            and array.ndim == len(details.shape)
            and array.shape[1:] == details.shape[1:]
            and 0 < len(array) <= (most or len(array))
        ):
            continue
        else:
            found = f"{array.dtype} of shape {_shown(array.shape)}"
        counts = "1" if most == 1 else f"1..{most or ''}"
        raise ValueError(
            f"input {number} ({details.name}) is {found}, not {details.dtype} of shape "
            f"{_shown((counts, *details.shape[1:]))}"
        )
    counts_given = [len(array) for array in given] or [1]
    if len(set(counts_given)) > 1:
        raise ValueError(f"the inputs are of {_shown(counts_given)} pictures: one number each")
    return [np.ascontiguousarray(array) for array in given], counts_given[0]


def _shown(sizes: Sequence[object]) -> str:
    return f"({', '.join(map(str, sizes))})"


class Signal:
    """Wakes one waiting thread, or the next one to wait. Safe with Ctrl-C.

    A lock implemented in C is either taken or not when Ctrl-C comes. threading.Condition, and Event
    and Future, which are based on it, may leave theirs locked.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def notify(self) -> None:
        """Wake one thread."""
        if self._lock.locked():
            with contextlib.suppress(RuntimeError):  # another thread released it meanwhile
                self._lock.release()

    def wait(self, seconds: float = LOOK_SECONDS) -> None:
        """Return when notified, or on timeout."""
        self._lock.acquire(timeout=seconds)


class Run:
    """A run of up to a batch of pictures.

    Attributes:
        device: that produced the outputs; None: not completed, or failed.
        arrays: read by the device until the end; count: of pictures in them.
        is_given: the arrays are from `Model.empty_input`.
        is_started: a device has taken it; outcome: its result; ended: notified with it.
    """

    def __init__(
        self,
        await_end: Callable[[Run], object],
        arrays: Sequence[Array],
        count: int,
        is_given: bool = False,
    ) -> None:
        """`await_end`: called repeatedly while a thread waits."""
        self.arrays, self.count, self.is_given = arrays, count, is_given
        self.device: DeviceInfo | None = None
        self.is_started = False
        self.outcome: list[Array] | Exception | None = None
        self.ended = Signal()
        self._await_end = await_end
        self._listener: Callable[[], object] | None = None
        self._lock = threading.Lock()  # guards the outcome and the listener

    @property
    def is_done(self) -> bool:
        """Whether `result` returns immediately."""
        return self.outcome is not None

    def result(self) -> list[Array]:
        """Wait for the end of the run and return its outputs, the same arrays on each call.

        Raises:
            DeviceError: the run failed, on several devices the last of them; or it was cancelled.
        """
        process.require_own()
        while self.outcome is None:
            self._await_end(self)
        self.ended.notify()  # wake up the next waiting thread
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def cancel(self) -> None:
        """Cancel it, if no device has started it."""
        if not self.is_started:
            self.end(DeviceError("the run was cancelled"))

    def when_done(self, listen: Callable[[], object]) -> None:
        """Call `listen` when the run has ended; immediately if it has.

        With several devices a run ends in another thread. With one it ends when a thread waits
        for it, or needs its memory.
        """
        with self._lock:
            if self.outcome is None:
                self._listener = listen
                return
        listen()

    def end(self, outcome: list[Array] | Exception) -> None:
        """Set the outcome; only the first call counts."""
        with self._lock:
            if self.outcome is not None:
                return
            self.outcome = outcome
            listen, self._listener = self._listener, None
        self.ended.notify()
        if listen is not None:
            listen()


def outcome_of(run: Run) -> list[Array] | InvalidValue:
    """Return the outputs of a run, or the InvalidValue, which does not depend on the device; raises
    as `Run.result`."""
    try:
        return run.result()
    except InvalidValue as error:
        return error

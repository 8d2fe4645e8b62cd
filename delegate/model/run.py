# SPDX-License-Identifier: Apache-2.0
"""What a Model is given and gives: its inputs, its outputs, and runs of pictures on devices."""

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
LOOK_SECONDS = 0.5  # whoever waits looks again after so long


@dataclass(frozen=True, slots=True)
class TensorDetails:
    """An input or output of a Model, under the names of TFLite's interpreter."""

    name: str
    index: int  # of the tensor in the file
    shape: tuple[int, ...]  # of a whole batch
    dtype: np.dtype[Any]
    scale: float  # real = scale * (value - zero_point); 0.0: not quantised, or by channel
    zero_point: int

    @property
    def quantization(self) -> tuple[float, int]:
        """The scale and the zero point."""
        return self.scale, self.zero_point


def details_of(tensor: Tensor, batch: int) -> TensorDetails:
    """Return what is said of a tensor for a batch of so many pictures."""
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
    """Return the shape of a batch of pictures' values of a tensor."""
    own = tensor.shape[1:] if tensor.shape[:1] == (1,) else tensor.shape
    return (batch, *own)


def checked_arrays(
    inputs: Array | Sequence[Array], wanted: Sequence[TensorDetails], most: int | None
) -> tuple[list[Array], int]:
    """Return the arrays in one block each, and how many pictures they are.

    A model without inputs is run for one. `most`: pictures that a call may give; None: any number.
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
    """Wakes a thread that waits, or the next one that will. Ctrl-C cannot break it.

    A lock of C alone is either taken or not when Ctrl-C comes. threading.Condition and what is made
    of it, such as Event and Future, may keep theirs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def notify(self) -> None:
        """Let one thread go on."""
        if self._lock.locked():
            with contextlib.suppress(RuntimeError):  # another thread gave it meanwhile
                self._lock.release()

    def wait(self, seconds: float = LOOK_SECONDS) -> None:
        """Return when it was given, or after so many seconds."""
        self._lock.acquire(timeout=seconds)


class Run:
    """Up to a batch of pictures on their way through a device.

    Attributes:
        device: whose outputs these are; None: there are none yet, or no device could.
        arrays: what the device reads until the end; count: of pictures in them.
        is_given: the arrays are of `Model.empty_input`.
        is_started: a device has it; outcome: what came of it; ended: given when it is there.
    """

    def __init__(
        self,
        await_end: Callable[[Run], object],
        arrays: Sequence[Array],
        count: int,
        is_given: bool = False,
    ) -> None:
        """`await_end`: called again and again while somebody waits."""
        self.arrays, self.count, self.is_given = arrays, count, is_given
        self.device: DeviceInfo | None = None
        self.is_started = False
        self.outcome: list[Array] | Exception | None = None
        self.ended = Signal()
        self._await_end = await_end
        self._listener: Callable[[], object] | None = None
        self._lock = threading.Lock()  # of the outcome and the listener

    @property
    def is_done(self) -> bool:
        """Whether `result` returns at once."""
        return self.outcome is not None

    def result(self) -> list[Array]:
        """Wait for the end of the run and return its outputs, the same arrays at each call.

        Raises:
            DeviceError: the run failed, on several devices the last of them; or it was cancelled.
        """
        process.require_own()
        while self.outcome is None:
            self._await_end(self)
        self.ended.notify()  # to the next thread that waits
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def cancel(self) -> None:
        """Leave it out, if no device has begun it."""
        if not self.is_started:
            self.end(DeviceError("the run was cancelled"))

    def when_done(self, listen: Callable[[], object]) -> None:
        """Call `listen` when the run has ended; at once where it has.

        Several devices end a run by themselves, in another thread. On one device a run ends when
        somebody waits for it, or for memory that it has.
        """
        with self._lock:
            if self.outcome is None:
                self._listener = listen
                return
        listen()

    def end(self, outcome: list[Array] | Exception) -> None:
        """Take the first outcome; later ones do not count."""
        with self._lock:
            if self.outcome is not None:
                return
            self.outcome = outcome
            listen, self._listener = self._listener, None
        self.ended.notify()
        if listen is not None:
            listen()


def outcome_of(run: Run) -> list[Array] | InvalidValue:
    """Return the outputs of a run, or which of its values is wrong, whatever the device; raises as
    `Run.result`."""
    try:
        return run.result()
    except InvalidValue as error:
        return error

# SPDX-License-Identifier: Apache-2.0
"""Pictures decoded and resized in child processes, and batches of them, in request order.

decoder.py is the child's program. A batch is filled while another one runs.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from delegate.guard.children.child import Child, ChildDied, ChildExit, command_of
from delegate.inspect import usable_processors
from label_image.compare import Outcome
from label_image.decoder import Format
from label_image.path import BatchRun
from tflite_opencl.console import interrupts
from tflite_opencl.console.errors import OneLineError

# Paths queued in a child besides the current one: few enough to fit into a pipe, so that neither
# side ever blocks on the other.
_AHEAD = 3
_PIPE_BYTES = 1 << 20  # if the system allows it, so that a child can run some tensors ahead
_WAIT_SECONDS = 0.5


class DecoderFailed(OneLineError):
    """No picture can be decoded at all; the text is one line with the reason."""


class Source(Protocol):
    """A source of decoded and resized pictures."""

    is_closed: bool

    @property
    def processes(self) -> int:
        """Number of decoding processes; 0: this process decodes."""

    def next_into(self, tensor: NDArray[Any]) -> Outcome | None:
        """Fill the tensor with the next picture; None after the last. May raise OneLineError."""

    def close(self) -> None:
        """Close it; a thread blocked in `next_into` gets None or an error."""


class Decoders:
    """The child processes, started on demand."""

    def __init__(
        self, paths: Iterable[str | None], format: Format, processes: int | None = None
    ) -> None:
        """`paths`: None: none at the moment, and asking again may block briefly.

        `processes`: None: one per core available to this process.
        """
        self._paths, self._format = iter(paths), asdict(format)
        self._most = processes or usable_processors()
        self._children: dict[int, _Decoder] = {}
        self._sent = self._received = 0  # pictures; number n is child n % most's
        self.is_closed = False

    @property
    def processes(self) -> int:
        return len(self._children)

    def next_into(self, tensor: NDArray[Any]) -> Outcome | None:
        """Fill the tensor with the next picture; None after the last.

        Raises: DecoderFailed: a child cannot start, or violates the protocol.
        """
        most = self._received + self._most * (1 + _AHEAD)
        while self._sent < most and (path := next(self._paths, "")) != "":
            if path is not None:
                self._child(self._sent).decode(path)
                self._sent += 1
            elif self._received < self._sent or self.is_closed:
                break  # nobody waits for the remaining ones
        if self._received == self._sent:
            return None
        place = self._received
        self._received += 1
        try:
            return self._child(place).receive(tensor)
        except ChildDied as died:
            return self._lost(place, died.exit)

    def close(self) -> None:
        """End the children; a thread blocked in `next_into` gets an error."""
        self.is_closed = True
        children = [*self._children.values()]
        for child in children:
            child.kill()
        for child in children:
            child.close()

    def _child(self, number: int) -> _Decoder:
        place = number % self._most
        if place not in self._children:
            self._children[place] = _Decoder(self._format)
        return self._children[place]

    def _lost(self, number: int, ended: ChildExit) -> Outcome:
        """Report the picture that killed its child, and start a new child after it."""
        child = self._child(number)
        child.close()
        path, *waiting = child.waiting
        if self.is_closed or not ended.signal:
            raise DecoderFailed(f"a picture decoder {ended} at {path}")
        again = self._children[number % self._most] = _Decoder(self._format)
        for each in waiting:
            again.decode(each)
        return Outcome(path, f"cannot read picture {path}: its decoder died ({ended.signal})")


class _Decoder(Child):
    def __init__(self, format: Mapping[str, Any]) -> None:
        self.waiting: deque[str] = deque()  # sent, not yet received
        try:
            super().__init__(
                command_of("label_image.decoder"),
                # numpy's BLAS would start a thread per core in each child and never use them.
                {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                keeps_stderr=False,
                # Linux divides the cores between sessions first: niceness would have no effect.
                has_own_session=False,
                pipe_bytes=_PIPE_BYTES,
            )
        except OSError as error:
            raise DecoderFailed(f"a picture decoder cannot start: {error}") from error
        self.send(**format)

    def decode(self, path: str) -> None:
        self.waiting.append(path)
        self.send(path=path)

    def receive(self, tensor: NDArray[Any]) -> Outcome:
        """Return the outcome of the oldest queued picture; raises Died."""
        event = self.event()
        try:
            if not event["error"]:
                values = np.frombuffer(event.pop("payload"), tensor.dtype)
                tensor[...] = values.reshape(tensor.shape)
            return Outcome(path=self.waiting.popleft(), **event)
        except (KeyError, ValueError, TypeError) as error:
            raise DecoderFailed(f"a picture decoder says {event}") from error


@dataclass(slots=True, eq=False)
class DecodedBatch:
    """The outcomes of some pictures, and the tensors of the readable ones."""

    entries: list[Outcome]
    buffer: NDArray[Any]
    count: int = 0  # tensors in the buffer
    is_last: bool = False

    @property
    def pixels(self) -> NDArray[Any]:
        return self.buffer[: self.count]


class Batches:
    """Decoded pictures in batches, filled by a separate thread.

    Attributes:
        is_at_end: whether `next` has returned all batches.
    """

    def __init__(self, decoders: Source, buffers: Sequence[NDArray[Any]]) -> None:
        """`buffers`: memory for one batch each: one is filled while another runs."""
        self._decoders = decoders
        self._free: queue.SimpleQueue[NDArray[Any] | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[DecodedBatch | BaseException | None] = queue.SimpleQueue()
        self.is_at_end = False
        for buffer in buffers:
            self._free.put(buffer)
        self._thread = threading.Thread(target=self._fill, name="decoding", daemon=True)
        self._thread.start()

    def next(self) -> DecodedBatch | None:
        """Wait for a batch, valid until `free`, or for `wake`, which returns None.

        Raises: DecoderFailed: nothing can be decoded.
        """
        while True:
            # A Ctrl-C just before a wait does not interrupt it.
            interrupts.check()
            with contextlib.suppress(queue.Empty):
                ready = self._ready.get(timeout=_WAIT_SECONDS)
                break
        if isinstance(ready, BaseException):
            raise ready
        self.is_at_end |= ready is not None and ready.is_last
        return ready

    def wake(self) -> None:
        """Make `next` return, now or on its next call; callable from any thread."""
        self._ready.put(None)

    def free(self, batch: DecodedBatch) -> None:
        """Return a batch's buffer for reuse."""
        self._free.put(batch.buffer)

    def close(self) -> None:
        self._free.put(None)
        self._decoders.close()
        self._thread.join()

    def _fill(self) -> None:
        try:
            while (buffer := self._free.get()) is not None and not self._decoders.is_closed:
                batch = DecodedBatch([], buffer)
                # A long row of unreadable pictures must not accumulate here.
                while batch.count < len(buffer) and len(batch.entries) < 2 * len(buffer):
                    decoded = self._decoders.next_into(buffer[batch.count : batch.count + 1])
                    if decoded is None:
                        batch.is_last = True
                        break
                    batch.entries.append(decoded)
                    batch.count += not decoded.error
                self._ready.put(batch)
                if batch.is_last:
                    return
        except BaseException as error:
            self._ready.put(error)


def runs_in_order(
    batches: Batches,
    start: Callable[[NDArray[Any], Callable[[], object]], BatchRun | None],
    together: Callable[[], int],
) -> Generator[tuple[DecodedBatch, BatchRun | None], None, None]:
    """Yield the batches in order with their runs, without blocking on unfinished ones.

    `start`: begins the run of a batch's tensors, and calls its other argument when another thread
    has the outputs; None: nothing runs it. `together`: yield this many at once while no other
    batch runs; 0: yield each by itself.
    """
    under_way: deque[tuple[DecodedBatch, BatchRun | None]] = deque()
    try:
        while under_way or not batches.is_at_end:
            done = sum(1 for _ in takewhile(_is_done, under_way))
            least = together()
            if least and (done < len(under_way) or (done < least and not batches.is_at_end)):
                done = 0
            for _ in range(done):
                batch, run = under_way.popleft()
                yield batch, run
                batches.free(batch)
            if not done and (ready := batches.next()) is not None:
                under_way.append((ready, start(ready.pixels, batches.wake)))
    finally:
        for _, run in under_way:
            if run is not None:
                run.cancel()


def _is_done(each: tuple[DecodedBatch, BatchRun | None]) -> bool:
    return each[1] is None or each[1].is_done

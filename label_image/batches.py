# SPDX-License-Identifier: Apache-2.0
"""Decoded pictures in batches, filled while another batch runs."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from numpy.typing import NDArray

from label_image.decoders import Decoded, Decoders
from label_image.path import Run
from tflite_opencl.common import interrupts

_WAIT_SECONDS = 0.5
_END, _AWAKE = "end", "awake"


@dataclass(slots=True, eq=False)
class Batch:
    """What came of some pictures, and the tensors of those that could be read."""

    entries: list[Decoded]
    buffer: NDArray[Any]
    count: int = 0  # tensors in the buffer

    @property
    def pixels(self) -> NDArray[Any]:
        """The tensors."""
        return self.buffer[: self.count]


class Batches:
    """Decoded pictures in batches, filled by a thread of their own.

    Attributes:
        is_at_end: whether `next` gave all batches.
    """

    def __init__(self, decoders: Decoders, buffers: Sequence[NDArray[Any]]) -> None:
        """`buffers`: memory for a batch each: one is filled while another runs."""
        self._decoders = decoders
        self._free: queue.SimpleQueue[NDArray[Any] | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[Batch | BaseException | str] = queue.SimpleQueue()
        self.is_at_end = False
        for buffer in buffers:
            self._free.put(buffer)
        self._thread = threading.Thread(target=self._fill, name="decoding", daemon=True)
        self._thread.start()

    def next(self) -> Batch | None:
        """Wait for a batch, which is there until `free`, or for `wake`; None: it was the latter.

        Raises: DecoderFailed: nothing can be decoded.
        """
        while True:
            # A Ctrl-C that comes just before a wait does not end it.
            interrupts.check()
            with contextlib.suppress(queue.Empty):
                ready = self._ready.get(timeout=_WAIT_SECONDS)
                break
        if isinstance(ready, BaseException):
            raise ready
        if isinstance(ready, Batch):
            return ready
        self.is_at_end |= ready == _END
        return None

    def wake(self) -> None:
        """Let `next` return, now or when it is called; any thread may do that."""
        self._ready.put(_AWAKE)

    def free(self, batch: Batch) -> None:
        """Let a batch's memory be filled again."""
        self._free.put(batch.buffer)

    def close(self) -> None:
        """End the thread and the processes."""
        self._free.put(None)
        self._decoders.close()
        self._thread.join()

    def _fill(self) -> None:
        try:
            while (buffer := self._free.get()) is not None and not self._decoders.is_closed:
                batch = Batch([], buffer)
                # A row of unreadable pictures must not gather here.
                while batch.count < len(buffer) and len(batch.entries) < 2 * len(buffer):
                    decoded = self._decoders.next_into(buffer[batch.count : batch.count + 1])
                    if decoded is None:
                        self._ready.put(batch)
                        self._ready.put(_END)
                        return
                    batch.entries.append(decoded)
                    batch.count += not decoded.error
                self._ready.put(batch)
        except BaseException as error:
            self._ready.put(error)


def runs_in_order(
    batches: Batches,
    start: Callable[[NDArray[Any], Callable[[], object]], Run | None],
    together: Callable[[], int],
) -> Generator[tuple[Batch, Run | None], None, None]:
    """Yield the batches in order, each with its run, when nobody must be waited for.

    `start`: begins the run of a batch's tensors, and calls its other argument when another thread
    has the outputs; None: there is none. `together`: so many are yielded at once, when no other
    one runs; 0: each by itself.
    """
    under_way: deque[tuple[Batch, Run | None]] = deque()
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


def _is_done(each: tuple[Batch, Run | None]) -> bool:
    return each[1] is None or each[1].is_done

# SPDX-License-Identifier: Apache-2.0
"""Decoded pictures in batches, filled while another batch runs."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from label_image.decoders import Decoded, Decoders
from tflite_opencl.common import interrupts

_WAIT_SECONDS = 0.5


class Batches:
    """Decoded pictures in batches, filled by a thread of their own.

    Yields what came of each picture and the tensors of those that could be read. The tensors are
    there until the next batch is asked for.
    """

    def __init__(self, decoders: Decoders, buffers: Sequence[NDArray[Any]]) -> None:
        """`buffers`: memory for a batch each: one is filled while another runs."""
        self._decoders = decoders
        self._free: queue.SimpleQueue[NDArray[Any] | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[_Batch | BaseException | None] = queue.SimpleQueue()
        for buffer in buffers:
            self._free.put(buffer)
        self._thread = threading.Thread(target=self._fill, name="decoding", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[tuple[Sequence[Decoded], NDArray[Any]]]:
        while (batch := self._next()) is not None:
            if isinstance(batch, BaseException):
                raise batch
            yield batch.entries, batch.buffer[: batch.count]
            self._free.put(batch.buffer)

    def close(self) -> None:
        """End the thread and the processes."""
        self._free.put(None)
        self._decoders.close()
        self._thread.join()

    def _next(self) -> _Batch | BaseException | None:
        while True:
            # A Ctrl-C that comes just before a wait does not end it.
            interrupts.check()
            with contextlib.suppress(queue.Empty):
                return self._ready.get(timeout=_WAIT_SECONDS)

    def _fill(self) -> None:
        try:
            while (buffer := self._free.get()) is not None and not self._decoders.is_closed:
                batch = _Batch([], buffer)
                # A row of unreadable pictures must not gather here.
                while batch.count < len(buffer) and len(batch.entries) < 2 * len(buffer):
                    decoded = self._decoders.next_into(buffer[batch.count : batch.count + 1])
                    if decoded is None:
                        self._ready.put(batch)
                        self._ready.put(None)
                        return
                    batch.entries.append(decoded)
                    batch.count += not decoded.error
                self._ready.put(batch)
        except BaseException as error:
            self._ready.put(error)


@dataclass(slots=True)
class _Batch:
    entries: list[Decoded]
    buffer: NDArray[Any]
    count: int = 0  # tensors in the buffer

# SPDX-License-Identifier: Apache-2.0
"""The worker side of a cluster: keeps a job's state, and processes chunks.

A job is a Dask worker plugin: the scheduler installs it on each worker, including later ones,
before they receive a chunk.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from distributed import get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from delegate import NoDeviceError, list_devices
from delegate.inspect import several_devices
from tflite_opencl.cli.flags import prepare_environment
from tflite_opencl.cli.logs import routed
from tflite_opencl.console import bars
from tflite_opencl.console.errors import code_of, reason_of

DEVICES = "opencl"  # worker resource: the number of its devices that match --device
CHUNK = "chunk"  # worker resource: one per worker, so that it runs one chunk at a time
PLACE = "place:"  # followed by the place's name: worker resource
_LOGGERS = logging.getLogger("delegate"), logging.getLogger("tflite_opencl")


@dataclass(frozen=True, slots=True)
class Answer:
    """A worker's reply to a chunk."""

    result: Any  # None if it failed
    worker: str  # its display name
    host: str
    seconds: float
    error: str = ""  # why it failed, on one line
    code: int = 0  # the exit code of a command that this error ends
    said: tuple[tuple[int, str], ...] = ()  # levels and texts of warnings and errors


class Work(WorkerPlugin):  # type: ignore[misc]
    """A job, sent to each worker once; `run` may keep state for later chunks.

    A worker's place is its name, or its machine if it has no name of its own.

    Attributes:
        loggers: whose warnings are forwarded to the client.
    """

    loggers: Sequence[logging.Logger] = _LOGGERS

    def __init__(self, name: str, device: str | None, is_local: bool, limit_s: float) -> None:
        """`name`: unique to this job. `device`: the value of --device; None: any.

        `is_local`: a terminal's Ctrl-C reaches the workers, too. `limit_s`: time limit of a chunk;
        exceeding it kills the worker; 0: none.
        """
        self.name, self._device = name, device
        self._is_local, self._limit_s = is_local, limit_s

    async def setup(self, worker: Any) -> None:
        """Publish this worker's resources. Dask calls it in the worker's event loop."""
        if self._is_local:
            with contextlib.suppress(ValueError):  # not in the main thread
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        prepare_environment()
        bars.be_quiet(True)
        self._lock = threading.Lock()
        count = await asyncio.to_thread(_count_devices, self._device)
        # Dask's default name is an address, which changes when a worker restarts.
        is_named = "://" not in str(worker.name)
        place = f"{PLACE}{worker.name if is_named else socket.gethostname()}"
        await worker.set_resources(**{DEVICES: count, CHUNK: 1, place: 1})

    async def teardown(self, worker: Any) -> None:
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        with self._lock:
            self.close()

    def answer(self, chunk: Any) -> Answer:
        """Run a chunk with the time limit."""
        worker, begin_s = get_worker(), time.perf_counter()
        about = str(worker.name), socket.gethostname()
        said: list[tuple[int, str]] = []
        with self._lock, _noted(said, self.loggers), self._limited():
            try:
                result = self.run(chunk)
            except Exception as error:
                # Not all errors can be pickled.
                text = f"{type(error).__name__}: {reason_of(error)}"
                code = code_of(error)
                return Answer(None, *about, time.perf_counter() - begin_s, text, code, (*said,))
        return Answer(result, *about, time.perf_counter() - begin_s, said=(*said,))

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        # Works without the GIL, so that a driver that hangs in a call is killed, too.
        if self._limit_s:
            faulthandler.dump_traceback_later(self._limit_s, exit=True, file=2)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def run(self, chunk: Any) -> Any:
        """Return a chunk's result; both are sent between processes."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the state kept by `run`."""


def run_chunk(name: str, chunk: Any) -> Answer:
    """Return this worker's reply to a chunk of the job with this name: a Dask task."""
    work: Work = get_worker().plugins[name]
    return work.answer(chunk)


def _count_devices(device: str | None) -> int:
    try:
        meant = several_devices(device)
        return len(meant or [d for d in list_devices() if not device or d.matches(device)])
    except NoDeviceError:
        return 0


@contextlib.contextmanager
def _noted(said: list[tuple[int, str]], loggers: Sequence[logging.Logger]) -> Iterator[None]:
    """Inside the context, append warnings to `said` and suppress their output."""
    handler = logging.Handler()
    handler.emit = lambda record: said.append(  # type: ignore[method-assign]
        (record.levelno, record.getMessage())
    )
    with routed([(logger, handler, logging.WARNING) for logger in loggers]):
        yield

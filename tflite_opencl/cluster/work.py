# SPDX-License-Identifier: Apache-2.0
"""What a worker of a cluster does: it keeps a job's state, and answers chunk by chunk.

A job is a plugin of Dask's workers: the scheduler hands it to each worker, those that come later
included, before they get a chunk.
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

DEVICES = "opencl"  # resource of a worker: how many devices it has that --device means
CHUNK = "chunk"  # resource of a worker: one, so that it has one chunk at a time
PLACE = "place:"  # and its place's name: resource of a worker
_LOGGERS = logging.getLogger("delegate"), logging.getLogger("tflite_opencl")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker made of a chunk."""

    result: Any  # None where it failed
    worker: str  # its name, for people
    host: str
    seconds: float
    error: str = ""  # why it failed, as one line
    code: int = 0  # the exit code of a command that ends by it
    said: tuple[tuple[int, str], ...] = ()  # levels and texts of warnings and errors


class Work(WorkerPlugin):  # type: ignore[misc]
    """A job, which crosses to each worker once; `run` may keep what later chunks need.

    A worker's place is its name, or its machine where it has none of its own.

    Attributes:
        loggers: whose warnings go to the command.
    """

    loggers: Sequence[logging.Logger] = _LOGGERS

    def __init__(self, name: str, device: str | None, is_local: bool, limit_s: float) -> None:
        """`name`: of this job alone. `device`: what --device means; None: any.

        `is_local`: a terminal's Ctrl-C reaches the workers, too. `limit_s`: of a chunk: what takes
        longer ends the worker, which then is one that died; 0: none.
        """
        self.name, self._device = name, device
        self._is_local, self._limit_s = is_local, limit_s

    async def setup(self, worker: Any) -> None:
        """Say what this worker has. Dask calls it where the worker's events are handled."""
        if self._is_local:
            with contextlib.suppress(ValueError):  # this is not the main thread
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        prepare_environment()
        bars.be_quiet(True)
        self._lock = threading.Lock()
        count = await asyncio.to_thread(_count_devices, self._device)
        # Dask's own name is an address, which a worker that is started again does not keep.
        is_named = "://" not in str(worker.name)
        place = f"{PLACE}{worker.name if is_named else socket.gethostname()}"
        await worker.set_resources(**{DEVICES: count, CHUNK: 1, place: 1})

    async def teardown(self, worker: Any) -> None:
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        with self._lock:
            self.close()

    def answer(self, chunk: Any) -> Answer:
        """Run a chunk, with the limit."""
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
        # It needs no lock of Python's, so that a driver that hangs in a call is ended, too.
        if self._limit_s:
            faulthandler.dump_traceback_later(self._limit_s, exit=True, file=2)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def run(self, chunk: Any) -> Any:
        """Return what comes of a chunk; both cross between processes."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go what `run` has kept."""


def run_chunk(name: str, chunk: Any) -> Answer:
    """Return what this worker's job of that name makes of a chunk: a task of Dask's."""
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
    """Add what is warned of inside to `said`, and show it nowhere."""
    handler = logging.Handler()
    handler.emit = lambda record: said.append(  # type: ignore[method-assign]
        (record.levelno, record.getMessage())
    )
    with routed([(logger, handler, logging.WARNING) for logger in loggers]):
        yield

# SPDX-License-Identifier: Apache-2.0
"""The client side of a cluster: sends chunks to workers and collects the results.

Dask (distributed) schedules chunks and tracks workers. This module adds limits on chunks in
flight, the order of the results, and the number of retries.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TypeVar

import dask
import distributed
from distributed.utils import silence_logging_cmgr

from tflite_opencl.cli.scheduler import Scheduler
from tflite_opencl.cluster.line import Line, Sent, SkippedChunk
from tflite_opencl.cluster.work import CHUNK, DEVICES, PLACE, Answer, Work, run_chunk
from tflite_opencl.console import interrupts
from tflite_opencl.console.errors import CommandError, RunError
from tflite_opencl.console.exit_codes import NO_DEVICE

TRIES = 3  # workers that may die of a chunk
ANYWHERE = ""  # the place of chunks that may run anywhere
_CONNECT_S, _WORKERS_S, _LOOK_S, _WAIT_S = 10.0, 60.0, 1.0, 0.2
_GONE_S = 60.0  # a place without workers is given up after this time
_LOGGED = "distributed.admin.low-level-log-length"
_SETTINGS = {
    # Chunks may carry pictures as bytes: Dask should not warn about their size.
    "distributed.admin.large-graph-warning-threshold": "1 GB",
    # Dask keeps the last 1,000 messages to each worker, including their chunks.
    _LOGGED: 10,
}
# Dask's settings for local workers, unless the user sets them -> default, ours.
_LOCAL_SETTINGS = {
    # Time without a heartbeat after which a worker counts as lost.
    "distributed.scheduler.worker-ttl": ("5 minutes", "60s"),
    # Time until a dead worker is given up; restarting takes long on a busy machine.
    "distributed.deploy.lost-worker-timeout": ("15s", "10 minutes"),
}

T = TypeVar("T")
log = logging.getLogger("tflite_opencl")


class Cluster(contextlib.ExitStack):
    """The workers of a scheduler, running a job, as a context manager.

    Attributes:
        name: of the job, as passed to `Work`. gone: workers lost during the work.
    """

    def __init__(self, scheduler: Scheduler, needs_device: bool) -> None:
        """Connect to the scheduler, or start local workers.

        Raises: RunError: the scheduler does not respond.
        """
        super().__init__()
        self.name = f"tflite-opencl-{uuid.uuid4().hex[:12]}"
        self._scheduler, self._needs_device = scheduler, needs_device
        self._resources = {CHUNK: 1} | ({DEVICES: 1} if needs_device else {})
        self._there: dict[str, tuple[str, str]] = {}  # known workers: address -> name, place
        self._looked_s = 0.0
        self.gone = 0
        try:
            self._client = self._connected()
        except (OSError, TimeoutError) as error:
            self.close()
            raise RunError(f"--scheduler: nobody answers at {scheduler.address}") from error
        except BaseException:
            self.close()
            raise

    def _connected(self) -> Any:
        address: Any = self._scheduler.address
        # Replaced by shorter messages of our own.
        self.enter_context(silence_logging_cmgr(logging.CRITICAL))
        self.enter_context(dask.config.set(_SETTINGS))
        if self._scheduler.is_local:
            settings = {
                name: ours
                for name, (usual, ours) in _LOCAL_SETTINGS.items()
                if dask.config.get(name) == usual
            }
            self.enter_context(dask.config.set(settings))
            address = self.enter_context(
                distributed.LocalCluster(
                    n_workers=self._scheduler.workers, threads_per_worker=1, processes=True,
                    memory_limit=0, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL,
                )
            )  # fmt: skip
        client = self.enter_context(distributed.Client(address, timeout=_CONNECT_S))
        client.run_on_scheduler(_prepare, _SETTINGS)
        return client

    def begin(self, work: Work) -> None:
        """Install the job on all workers, and wait for one that can run it.

        Raises: RunError: there is no worker. CommandError: none has a device.
        """
        self._client.register_plugin(work, name=work.name)
        self.callback(self._forget, work.name)
        end_s = time.monotonic() + _WORKERS_S
        while not self.places():
            interrupts.check()
            count = len(self._found())
            if count and self._needs_device:
                text = f"none of the {count} workers of {self._scheduler.address} has an OpenCL"
                raise CommandError(f"{text} device that --device means", NO_DEVICE)
            if time.monotonic() > end_s:
                raise RunError(f"--scheduler: {self._scheduler.address} has no worker")
            time.sleep(_WAIT_S)

    def _forget(self, name: str) -> None:
        with contextlib.suppress(Exception):  # the scheduler, and its workers, are gone
            self._client.unregister_worker_plugin(name)

    def _found(self) -> Mapping[str, tuple[str, Mapping[str, float]]]:
        """Return the name and resources of each worker. Raises: RunError: no response."""
        try:
            # Client.scheduler_info() may list only a few workers, or none.
            found: Mapping[str, Any] = self._client.run_on_scheduler(_workers_there)
        except (OSError, RuntimeError, AttributeError) as error:
            raise self._is_gone() from error
        return found

    def _is_gone(self) -> RunError:
        return RunError(f"the scheduler {self._scheduler.address} is gone")

    def places(self) -> Mapping[str, int]:
        """Return the number of workers at each place and anywhere, at most a second old."""
        if time.monotonic() - self._looked_s >= _LOOK_S:
            found = self._found()
            there = {
                address: (name, _place(resources))
                for address, (name, resources) in found.items()
                if all(resources.get(each, 0) >= 1 for each in self._resources)
            }
            for address in {*self._there} - {*there}:
                self.gone += 1
                log.warning("worker %s is gone: others get its work", self._there[address][0])
            self._there, self._looked_s = there, time.monotonic()
        counts = Counter(place for _, place in self._there.values())
        return {**counts, ANYWHERE: counts.total()} if counts else {}

    def boards(self) -> list[str]:
        """Return the sorted names of the workers' places."""
        return sorted(place for place in self.places() if place != ANYWHERE)

    def results(
        self,
        chunks: Mapping[str, Iterable[T]],
        again: Callable[[T, Any], T | None] = lambda chunk, result: None,
        is_ordered: bool = True,
    ) -> Generator[tuple[T, Answer | SkippedChunk], None, None]:
        """Yield each chunk with its result, in order or as completed.

        `chunks`: by place, each with its own order, or ANYWHERE's.
        `again`: returns the chunk to resend, given a chunk's result; None: none.
        Few chunks are requested ahead, so that memory use is bounded on both sides.

        Raises: RunError: the scheduler is gone. CommandError: a chunk failed on several workers.
        """
        lines = {place: Line(each, is_ordered) for place, each in chunks.items()}
        under_way: dict[Any, tuple[Line[T], Sent[T]]] = {}
        ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        try:
            while not all(line.is_over for line in lines.values()):
                places = self.places()
                for place, line in lines.items():
                    line.count(places.get(place, 0), _GONE_S)
                    while (sent := line.next()) is not None:
                        future = self._sent(place, sent)
                        under_way[future] = line, sent
                        future.add_done_callback(ended.put)
                for future in self._next(ended):
                    line, sent = under_way.pop(future)
                    came = self._come(future, sent)
                    other = again(sent.chunk, came.result) if isinstance(came, Answer) else None
                    if came is None or other is not None:
                        sent.chunk = sent.chunk if other is None else other
                        line.again(sent)
                    else:
                        line.done(sent, came)
                for line in lines.values():
                    yield from line.ready()
        finally:
            with contextlib.suppress(Exception):  # the scheduler, and its workers, are gone
                self._client.cancel([*under_way], force=True)

    def _sent(self, place: str, sent: Sent[T]) -> Any:
        key = f"{self.name}-{sent.number}-{uuid.uuid4().hex[:6]}"
        resources = self._resources | ({f"{PLACE}{place}": 1} if place else {})
        return self._client.submit(
            run_chunk, self.name, sent.chunk, key=key, resources=resources, pure=False
        )

    def _next(self, ended: queue.SimpleQueue[Any]) -> list[Any]:
        """Wait briefly for completed chunks."""
        interrupts.check()
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(ended.get(timeout=_WAIT_S))
            while True:
                found.append(ended.get_nowait())
        return found

    def _come(self, future: Any, sent: Sent[T]) -> Answer | SkippedChunk | None:
        """Return a chunk's result; None: retry it."""
        try:
            answer: Answer = future.result()
        except distributed.scheduler.KilledWorker:
            sent.ends += 1
            self._looked_s = 0.0
            if sent.ends < TRIES:
                return None
            return SkippedChunk(f"{TRIES} workers died or hung while they had it")
        except Exception as error:
            if future.status == "error":
                raise
            raise self._is_gone() from error
        if answer.error:
            sent.ends += 1
            if sent.ends >= TRIES:
                raise CommandError(f"worker {answer.worker}: {answer.error}", answer.code)
            log.warning("worker %s: %s: its work is tried again", answer.worker, answer.error)
            return None
        for level, text in answer.said:
            log.log(level, "worker %s: %s", answer.worker, text)
        return answer


def _place(resources: Mapping[str, float]) -> str:
    return next((name[len(PLACE) :] for name in resources if name.startswith(PLACE)), "")


def _workers_there(dask_scheduler: Any) -> dict[str, tuple[str, dict[str, float]]]:
    """Return the workers known to a scheduler, in a compact form: it is polled often."""
    return {
        address: (str(each.name), dict(each.resources))
        for address, each in dask_scheduler.workers.items()
    }


def _prepare(settings: Mapping[str, Any], dask_scheduler: Any) -> None:
    """Make a scheduler return a chunk after one worker's death, and keep few messages."""
    # A chunk that killed a worker is returned to the client, which counts its deaths.
    dask_scheduler.allowed_failures = 0
    dask.config.set(settings)
    for each in (*dask_scheduler.stream_comms.values(), *dask_scheduler.client_comms.values()):
        each.recent_message_log = deque(each.recent_message_log, settings[_LOGGED])

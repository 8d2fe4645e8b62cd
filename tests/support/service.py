# SPDX-License-Identifier: Apache-2.0
"""An inference server in a thread, on a free port, with a fake device."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tflite_opencl.serve import life
from tflite_opencl.serve.metrics import Metrics
from tflite_opencl.serve.models import Served
from tflite_opencl.serve.server import Bounds, Server
from tflite_opencl.serve.tensors import Arrays, ModelSignature, Named
from tflite_opencl.serve.worker import BatchingOptions, BatchScheduler

MEGABYTE = 1 << 20
# Clients in threads of this very process may be kept waiting for seconds on a busy machine.
BOUNDS = Bounds(body=MEGABYTE, bodies=4 * MEGABYTE, requests=64, seconds=30.0)
LIMITS = BatchingOptions(queue=64, pictures=4, delay=0.0)
DOUBLES = ModelSignature(
    (Named("x", np.dtype("float32"), (1, 3)),), (Named("y", np.dtype("float32"), (1, 3)),)
)


class Doubling:
    """A runner that doubles its inputs; it calls `work` with the number of pictures before."""

    device, nodes = "a stand-in", (1, 1)

    def __init__(self, work: Callable[[int], None] = lambda n: None, sizes: Sequence[int] = (1, 4)):
        self.sizes, self._work = sizes, work
        self.runs: list[int] = []
        self.closed = threading.Event()

    def run(self, arrays: Arrays, pictures: int) -> Arrays:
        self.runs.append(pictures)
        self._work(pictures)
        return [2 * array for array in arrays]

    def close(self) -> None:
        self.closed.set()


def served(
    worker: BatchScheduler, signature: ModelSignature = DOUBLES, name: str = "model"
) -> Served:
    return Served(name, signature, worker, None, LIMITS.pictures)


@contextlib.contextmanager
def serving(
    load: Callable[[], Sequence[Served]],
    bounds: Bounds = BOUNDS,
    reloads: list[Callable[[], None]] | None = None,
    longest_run: float = 60.0,
) -> Iterator[tuple[str, Server, Callable[[], None]]]:
    """Yield the address HOST:PORT, the server, and a function that ends it.

    `reloads`: gets a function that lets it load the models again.
    """
    server, loop, end = Server(bounds, Metrics()), asyncio.new_event_loop(), asyncio.Event()
    reload = asyncio.Event()
    if reloads is not None:
        reloads.append(lambda: _set(loop, reload))
    addresses: list[str] = []
    is_listening = threading.Event()
    failures: list[BaseException] = []

    def listening(address: tuple[Any, ...]) -> None:
        addresses.append(f"{address[0]}:{address[1]}")
        is_listening.set()

    def work() -> None:
        served = life.serve(
            server, ("127.0.0.1", 0), load, end, 5.0, listening=listening, reload=reload,
            longest_run=longest_run,
        )  # fmt: skip
        try:
            loop.run_until_complete(served)
        except BaseException as error:
            failures.append(error)
        finally:
            is_listening.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert is_listening.wait(30)
        yield addresses[0], server, lambda: _set(loop, end)
    finally:
        _set(loop, end)
        thread.join(30)
        assert not thread.is_alive()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        if failures:
            raise failures[0]


def _set(loop: asyncio.AbstractEventLoop, end: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # it has ended
        loop.call_soon_threadsafe(end.set)

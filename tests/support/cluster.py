# SPDX-License-Identifier: Apache-2.0
"""Workers in processes of their own, and a job for them that does as it is told."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("distributed")

import dask
import distributed

from tflite_opencl.cluster import client
from tflite_opencl.cluster.work import Answer, Work

HANG_LIMIT_S = 0.5
BUSY_S = 600.0  # in which a worker that died is there again, however busy the machine is


class Doubling(Work):
    """Doubles numbers; words tell it to die, warn or fail, files to die or hang the first time.

    Such a file is there from then on, and its name begins with "die" or "hang". What hangs alone
    has a limit: a busy machine may hold up any other chunk for as long.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, None, False, 0.0)

    def answer(self, chunk: Any) -> Answer:
        is_first = isinstance(chunk, Path) and not chunk.exists()
        self._limit_s = 0.0
        if is_first:
            chunk.touch()
            self._limit_s = HANG_LIMIT_S if chunk.name.startswith("hang") else 0.0
        return super().answer("die" if is_first and not self._limit_s else chunk)

    def run(self, chunk: Any) -> Any:
        if chunk == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._limit_s:
            time.sleep(1000)
        if isinstance(chunk, Path):
            return f"{chunk.name} once"
        if chunk == "fail":
            raise ValueError("no such chunk")
        if chunk == "warn":
            logging.getLogger("tflite_opencl").warning("it is warm here")
        return 2 * chunk


@contextlib.contextmanager
def workers(count: int, ttl: str = "60s") -> Iterator[Any]:
    """Give Dask's cluster of so many processes, each with one thread.

    `ttl`: how long one may be silent before it is taken for dead.
    """
    settings = {
        "distributed.scheduler.worker-ttl": ttl,
        # On a busy machine a worker that died is back later than the usual 15 s.
        "distributed.deploy.lost-worker-timeout": f"{BUSY_S:.0f}s",
        # What is not asked for costs the time of a test.
        "distributed.admin.system-monitor.disk": False,
        "distributed.worker.profile.enabled": False,
    }
    with (
        mock.patch.multiple(client, _WORKERS_S=BUSY_S, _GONE_S=BUSY_S),
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=count, threads_per_worker=1, processes=True, memory_limit=0,
            dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL,
        ) as cluster,
    ):  # fmt: skip
        yield cluster

# SPDX-License-Identifier: Apache-2.0
"""Dask workers in separate processes, and a job that fails on request."""

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
BUSY_S = 600.0  # limit for a worker's restart on a busy machine


class Doubling(Work):
    """Doubles numbers. The words "die", "warn" and "fail" make it do so.

    A path whose name begins with "die" or "hang" makes it do so once: the file is created first.
    Only hanging chunks have a time limit, because a busy machine may delay any other as long.
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
    """Yield a Dask cluster of `count` processes with one thread each.

    `ttl`: the silence after which a worker counts as dead.
    """
    settings = {
        "distributed.scheduler.worker-ttl": ttl,
        # On a busy machine a worker that died is back later than the usual 15 s.
        "distributed.deploy.lost-worker-timeout": f"{BUSY_S:.0f}s",
        # Unused, and slow to start.
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

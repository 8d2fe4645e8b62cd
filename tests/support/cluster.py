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

import pytest

pytest.importorskip("distributed")

import dask
import distributed

from tflite_opencl.common.cluster.work import Work


class Doubling(Work):
    """Doubles numbers; words tell it to die, hang or fail, and a file to hang until it is there."""

    def __init__(self, name: str, limit_s: float = 0.0) -> None:
        super().__init__(name, None, False, limit_s)

    def run(self, chunk: Any) -> Any:
        if chunk == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if isinstance(chunk, Path) and not chunk.exists():
            chunk.touch()
            time.sleep(1000)
        if isinstance(chunk, Path):
            return "it hung once"
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
        # What is not asked for costs the time of a test.
        "distributed.admin.system-monitor.disk": False,
        "distributed.worker.profile.enabled": False,
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=count, threads_per_worker=1, processes=True, memory_limit=0,
            dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL,
        ) as cluster,
    ):  # fmt: skip
        yield cluster

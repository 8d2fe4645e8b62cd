# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.cluster_boards ADDRESS FIRST COUNT`: a cluster's workers in one process.

So a machine can simulate many boards, which only wait. Their other work, such as profiling, is
left out, because this machine would do it for all of them.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time

import dask
import distributed

from tflite_opencl.cluster.work import Work


class SleepWork(Work):
    """A simulated board: chunks are seconds to wait, and any bytes."""

    def run(self, chunk: tuple[float, bytes]) -> int:
        seconds, content = chunk
        time.sleep(seconds)
        return len(content)


async def _boards(address: str, first: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        boards = [
            distributed.Worker(
                address, nthreads=1, name=f"board{first + number}", memory_limit=0,
                local_directory=folder, host="127.0.0.1",
            )
            for number in range(count)
        ]  # fmt: skip
        await asyncio.gather(*boards)
        await asyncio.gather(*(board.finished() for board in boards))


if __name__ == "__main__":
    with dask.config.set({"distributed.worker.profile.enabled": False}):
        asyncio.run(_boards(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

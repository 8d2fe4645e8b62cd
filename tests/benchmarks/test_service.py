# SPDX-License-Identifier: Apache-2.0
"""The load generator counts responses; a competitor runs in the same server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import service
from benchmarks.measure import Skipped
from benchmarks.service_peer import Session
from tests.support.service import LIMITS, Doubling, served, serving
from tflite_opencl.serve.tensors import ModelSignature, Named
from tflite_opencl.serve.worker import BatchScheduler

BYTES = ModelSignature(
    (Named("x", np.dtype("uint8"), (1, 3)),), (Named("y", np.dtype("uint8"), (1, 3)),)
)


def test_requests_are_counted_and_timed() -> None:
    runner = Doubling()

    def load() -> Any:
        return [served(BatchScheduler(runner, LIMITS), BYTES)]

    with serving(load) as (address, server, _):
        while server.state:
            pass
        host, port = address.split(":")
        taken, rate = asyncio.run(service._asked((host, int(port)), 3, 0.5))
    assert rate == len(taken) / 0.5
    assert 0 < len(taken) <= sum(runner.runs)
    assert all(0 < seconds < 0.6 for seconds in taken)


def test_errors_do_not_count() -> None:
    async def read(content: bytes) -> bytes:
        reader = asyncio.StreamReader()
        reader.feed_data(content)
        return await service._answer(reader)

    head = "Inference-Header-Content-Length: 1\r\nContent-Length: 4\r\n\r\nbody"
    assert asyncio.run(read(f"HTTP/1.1 200 OK\r\n{head}".encode())) == b"body"
    with pytest.raises(Skipped, match="body"):
        asyncio.run(read(f"HTTP/1.1 503 Busy\r\n{head}".encode()))


def test_missing_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(Skipped, match="is not here"):
        service.service(tmp_path / "none.tflite", 1.0)


def test_peer_pads_batch() -> None:
    seen = []

    def run(pictures: Any) -> Any:
        seen.append(len(pictures))
        return pictures + 1

    (result,) = Session(run, 4).run([np.arange(2)])
    assert result.tolist() == [1, 2]
    assert seen == [4]

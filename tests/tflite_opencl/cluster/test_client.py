# SPDX-License-Identifier: Apache-2.0
"""Chunks of work on real worker processes, some of which die, hang or fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("distributed")

from tests.support.cluster import Doubling, workers
from tests.support.tiers import slow
from tflite_opencl.cli.scheduler import Scheduler
from tflite_opencl.cluster.client import ANYWHERE, TRIES, Cluster, _workers_there
from tflite_opencl.cluster.line import SkippedChunk
from tflite_opencl.cluster.work import Answer
from tflite_opencl.console.errors import CommandError, RunError

pytestmark = slow


@pytest.fixture(scope="module")
def two() -> Iterator[Any]:
    with workers(2) as cluster:
        yield cluster


def reached(cluster: Any) -> Cluster:
    reached = Cluster(Scheduler(cluster.scheduler_address), needs_device=False)
    reached.begin(Doubling(reached.name))
    return reached


def results(cluster: Cluster, chunks: Iterable[Any], **settings: Any) -> Any:
    return cluster.results({ANYWHERE: chunks}, **settings)


def values(results: Any) -> list[Any]:
    return [came.result if isinstance(came, Answer) else came for _, came in results]


def test_results_are_in_order(two: Any) -> None:
    with reached(two) as cluster:
        assert values(results(cluster, range(30))) == [2 * number for number in range(30)]
        result = values(results(cluster, range(30), is_ordered=False))
        assert sorted(result) == [2 * number for number in range(30)]


def test_few_chunks_are_read_ahead_of_a_slow_one(two: Any) -> None:
    taken = []

    def chunks() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    with reached(two) as cluster:
        result = results(cluster, chunks())
        for _ in range(10):
            next(result)
        assert len(taken) <= 10 + 4 * 2
        result.close()


def test_scheduler_forgets_finished_chunks(two: Any) -> None:
    with reached(two) as cluster:
        values(results(cluster, range(60)))
        senders = [*two.scheduler.stream_comms.values(), *two.scheduler.client_comms.values()]
        senders.append(cluster._client.scheduler_comm)
        assert all(0 < len(each.recent_message_log) <= 10 for each in senders)


def test_equal_chunk_can_be_sent_again(two: Any) -> None:
    with reached(two) as cluster:
        result = results(
            cluster, [1, 2, 3], again=lambda chunk, came: chunk + 10 if came == 4 else None
        )
        assert values(result) == [2, 24, 6]


def test_warning_of_worker_has_its_name(two: Any, caplog: pytest.LogCaptureFixture) -> None:
    with reached(two) as cluster, caplog.at_level(logging.WARNING):
        assert values(results(cluster, ["warn"])) == ["warnwarn"]
    assert [text for text in caplog.messages if text.endswith(": it is warm here")]


def test_large_chunk(two: Any, recwarn: pytest.WarningsRecorder) -> None:
    with reached(two) as cluster:
        assert values(results(cluster, [bytes(11_000_000)])) == [bytes(22_000_000)]
    assert [each for each in recwarn.list if "large graph" in str(each.message)] == []


def test_failure_on_every_worker_ends_the_run(two: Any) -> None:
    with reached(two) as cluster, pytest.raises(CommandError, match="no such chunk"):
        values(results(cluster, [1, "fail", 2]))


def test_chunk_that_kills_three_workers_is_left_out(two: Any) -> None:
    with reached(two) as cluster:
        result = values(results(cluster, [1, "die", 2, 3]))
        assert result == [2, SkippedChunk(f"{TRIES} workers died or hung while they had it"), 4, 6]


def test_chunk_of_dead_or_hanging_worker_is_repeated(two: Any, tmp_path: Path) -> None:
    # The worker kills itself in its chunk, because killing it from here is a race.
    dies, hangs = tmp_path / "dies", tmp_path / "hangs"
    with reached(two) as cluster:
        result = values(results(cluster, [*range(10), dies, *range(10), hangs, *range(10)]))
        doubled = [2 * number for number in range(10)]
        assert result == [*doubled, "dies once", *doubled, "hangs once", *doubled]


def test_all_workers_are_listed() -> None:
    # Some versions of Dask's client report at most five workers, or none.
    there = {f"tcp://h:{n}": SimpleNamespace(name=n, resources={"chunk": 1}) for n in range(7)}
    result = _workers_there(SimpleNamespace(workers=there))
    assert result == {f"tcp://h:{n}": (str(n), {"chunk": 1}) for n in range(7)}


def test_missing_scheduler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tflite_opencl.cluster.client._CONNECT_S", 0.5)
    with pytest.raises(RunError, match=r"nobody answers at tcp://127\.0\.0\.1:1"):
        Cluster(Scheduler("tcp://127.0.0.1:1"), needs_device=False)


def test_loss_of_scheduler_ends_the_run() -> None:
    with workers(1) as own, reached(own) as cluster:
        result = results(cluster, range(10**6))
        next(result)
        threading.Timer(0.5, own.close, kwargs={"timeout": 5}).start()
        with pytest.raises(RunError, match="is gone"):
            values(result)

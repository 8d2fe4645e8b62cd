# SPDX-License-Identifier: Apache-2.0
"""Chunks on workers that are real processes, some of which die, hang and fail."""

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


def test_results_come_in_the_order_of_the_chunks(two: Any) -> None:
    with reached(two) as cluster:
        assert values(results(cluster, range(30))) == [2 * number for number in range(30)]
        found = values(results(cluster, range(30), is_ordered=False))
        assert sorted(found) == [2 * number for number in range(30)]


def test_few_chunks_are_taken_ahead_of_one_that_is_slow(two: Any) -> None:
    taken = []

    def chunks() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    with reached(two) as cluster:
        found = results(cluster, chunks())
        for _ in range(10):
            next(found)
        assert len(taken) <= 10 + 4 * 2
        found.close()


def test_a_scheduler_does_not_keep_the_chunks_that_are_done(two: Any) -> None:
    with reached(two) as cluster:
        values(results(cluster, range(60)))
        senders = [*two.scheduler.stream_comms.values(), *two.scheduler.client_comms.values()]
        senders.append(cluster._client.scheduler_comm)
        assert all(0 < len(each.recent_message_log) <= 10 for each in senders)


def test_a_chunk_may_be_sent_once_more_as_another(two: Any) -> None:
    with reached(two) as cluster:
        found = results(
            cluster, [1, 2, 3], again=lambda chunk, came: chunk + 10 if came == 4 else None
        )
        assert values(found) == [2, 24, 6]


def test_what_a_worker_warns_of_is_told_with_its_name(
    two: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with reached(two) as cluster, caplog.at_level(logging.WARNING):
        assert values(results(cluster, ["warn"])) == ["warnwarn"]
    assert [text for text in caplog.messages if text.endswith(": it is warm here")]


def test_a_chunk_may_have_many_bytes(two: Any, recwarn: pytest.WarningsRecorder) -> None:
    with reached(two) as cluster:
        assert values(results(cluster, [bytes(11_000_000)])) == [bytes(22_000_000)]
    assert [each for each in recwarn.list if "large graph" in str(each.message)] == []


def test_what_fails_on_every_worker_ends_the_run(two: Any) -> None:
    with reached(two) as cluster, pytest.raises(CommandError, match="no such chunk"):
        values(results(cluster, [1, "fail", 2]))


def test_a_chunk_that_kills_three_workers_is_left_out_and_the_others_are_not(two: Any) -> None:
    with reached(two) as cluster:
        found = values(results(cluster, [1, "die", 2, 3]))
        assert found == [2, SkippedChunk(f"{TRIES} workers died or hung while they had it"), 4, 6]


def test_a_worker_that_dies_or_hangs_gives_its_chunk_to_another(two: Any, tmp_path: Path) -> None:
    # A worker ends itself in its chunk: one that is killed from here may have ended before.
    dies, hangs = tmp_path / "dies", tmp_path / "hangs"
    with reached(two) as cluster:
        found = values(results(cluster, [*range(10), dies, *range(10), hangs, *range(10)]))
        doubled = [2 * number for number in range(10)]
        assert found == [*doubled, "dies once", *doubled, "hangs once", *doubled]


def test_all_workers_are_asked_for() -> None:
    # Dask's clients tell five workers, or none, in some versions.
    there = {f"tcp://h:{n}": SimpleNamespace(name=n, resources={"chunk": 1}) for n in range(7)}
    found = _workers_there(SimpleNamespace(workers=there))
    assert found == {f"tcp://h:{n}": (str(n), {"chunk": 1}) for n in range(7)}


def test_nobody_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tflite_opencl.cluster.client._CONNECT_S", 0.5)
    with pytest.raises(RunError, match=r"nobody answers at tcp://127\.0\.0\.1:1"):
        Cluster(Scheduler("tcp://127.0.0.1:1"), needs_device=False)


def test_a_scheduler_that_goes_ends_the_run() -> None:
    with workers(1) as own, reached(own) as cluster:
        found = results(cluster, range(10**6))
        next(found)
        threading.Timer(0.5, own.close, kwargs={"timeout": 5}).start()
        with pytest.raises(RunError, match="is gone"):
            values(found)

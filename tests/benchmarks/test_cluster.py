# SPDX-License-Identifier: Apache-2.0
"""The overhead of --scheduler, measured with real processes; its size is not checked."""

from __future__ import annotations

import os
import time

import pytest

pytest.importorskip("distributed")

from benchmarks import cluster
from benchmarks.command import main
from tests.support.tiers import slow


def cells(row: str) -> list[float]:
    return [float(each.strip(" %").replace(",", "")) for each in row.strip("|").split("|")]


@slow
def test_chunks_on_local_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_SECONDS", 0.2)
    with cluster.running_cluster(5) as there:
        assert len({there.scheduler, *there.boards}) == 5
        spent = cluster.run_chunks(there, 5, 0.1, b"content")
    assert spent.chunks >= 5
    assert 0.1 * spent.chunks <= 5 * spent.seconds
    assert spent.milliseconds(spent.seconds) == f"{1e3 * spent.seconds / spent.chunks:.2f}"
    assert min(spent.command, spent.scheduler, spent.boards) >= 0


@slow
def test_memory_of_run_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_LOOK_S", 0.01)
    head, line, *rows = cluster._pictures(100)
    assert head.count("|") == line.count("|")
    assert rows
    pictures, _, *memory, command, scheduler = cells(rows[-1])
    assert 0 < pictures <= 100
    assert all(10 < each < 10_000 for each in memory)
    assert min(command, scheduler) > 0


def test_memory_of_process() -> None:
    assert cluster._memory(os.getpid()) > 10
    before = cluster._processor_s(os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert cluster._processor_s(os.getpid()) >= before + 0.05


def test_unknown_part_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--cluster", "chunks,clouds"])
    assert "--cluster clouds: there are chunks, boards, pictures" in capsys.readouterr().err

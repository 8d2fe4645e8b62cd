# SPDX-License-Identifier: Apache-2.0
"""label_image --scheduler with workers that are real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed")

from tests.support.cluster import workers
from tests.support.command import Run
from tests.support.model import chain_model, const, op, t
from tests.support.tiers import slow

pytestmark = slow

MODEL = ("-m", "model.tflite", "-l", "labels.txt")
ROWS = [
    "pictures/blue/blue.png\t0.8: 2 blue",
    "pictures/green/green.png\t0.8: 1 green",
    "pictures/red/red.png\t0.8: 0 red",
]


@pytest.fixture(scope="module")
def two() -> Iterator[str]:
    with workers(2) as cluster:
        yield cluster.scheduler_address


def many(folder: Path, count: int) -> list[str]:
    """Make so many pictures, and return the rows that they get."""
    names = ("blue", "green", "red")
    target = folder / "many"
    target.mkdir()
    rows = []
    for number in range(count):
        name = names[number % 3]
        shutil.copy(folder / f"pictures/{name}/{name}.png", target / f"{number:04}.png")
        best = ROWS[number % 3].partition("\t")[2]
        rows.append(f"many/{number:04}.png\t{best}")
    return rows


def test_rows_and_files_are_those_of_one_process(pictures: Path, run: Run, two: str) -> None:
    (pictures / "pictures/no.png").write_text("no picture")
    files = ("-i", "pictures", "--csv", "here.csv", "--output_dir", "out", "--json")
    alone = run(*MODEL, *files, "alone.json")
    expected = Path("here.csv").read_text(), sorted(Path("out").rglob("*.*"))
    shutil.rmtree("out")
    ran = run(*MODEL, *files, "spread.json", "--scheduler", two, "--chunk", "2")
    assert (ran.code, ran.out) == (alone.code, alone.out) == (255, ROWS)
    assert (Path("here.csv").read_text(), sorted(Path("out").rglob("*.*"))) == expected
    assert ran.beginning("ERROR") == alone.beginning("ERROR")
    found, before = (json.loads(Path(f"{name}.json").read_text()) for name in ("spread", "alone"))
    assert found["pictures"] == before["pictures"]
    assert (found["classified"], found["unreadable"]) == (3, 1)
    assert sum(each["pictures"] for each in found["workers"]) == 4
    assert {each["device"] for each in found["workers"]} == {"CPU"}


def test_pictures_go_by_bytes_where_no_file_system_is_shared(
    pictures: Path, run: Run, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The workers see a file of another time: it is not the one that is meant.
    monkeypatch.setattr("label_image.cluster.chunks._facts", lambda path: (1, 1))
    ran = run(*MODEL, "-i", "pictures", "--scheduler", two, "--chunk", "1")
    assert (ran.code, ran.out) == (0, ROWS)
    text = "INFO: workers do not see the files of this machine: pictures go by bytes"
    assert ran.beginning("INFO: workers do") == [text]


def test_a_model_that_no_worker_can_run_is_one_line(files: Path, run: Run, two: str) -> None:
    ran = run(*MODEL, "-i", "picture.bmp", "--use_gpu", "--device", "nonesuch", "--scheduler", two)
    assert (ran.code, ran.out) == (2, [])
    (line,) = ran.beginning("ERROR")
    assert "none of the 2 workers" in line


def test_results_that_are_not_finite_are_an_error(
    pictures: Path, run: Run, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers find the same: one line tells it, with the picture's name, and so by bytes."""
    source, flat, scores = (t(shape) for shape in ((1, 4, 4, 3), (1, 48), (1, 48)))
    sizes = const(np.array([1, 48], np.int32))
    rows = op("RESHAPE", [source, sizes], [flat], {"new_shape": (1, 48)})
    Path("model.tflite").write_bytes(chain_model([rows, op("LOG", [flat], [scores])]))
    words = ("-m", "model.tflite", "-i", "pictures")
    alone = run(*words)
    (line,) = alone.beginning("ERROR")
    assert line.startswith("ERROR: pictures/blue/blue.png: output 0 ")
    assert line.endswith(" values are not finite (NaN or infinite)")
    spread = (*words, "--scheduler", two, "--chunk", "1")
    ran = run(*spread)
    assert (ran.code, ran.beginning("ERROR")) == (alone.code, [line]) == (1, [line])
    fine = run(*spread[:4], "--input_mean", "-1", "--input_std", "1", *spread[4:])
    assert (fine.code, fine.beginning("ERROR")) == (0, [])
    monkeypatch.setattr("label_image.cluster.chunks._facts", lambda path: (1, 1))
    ran = run(*spread)
    assert (ran.code, ran.beginning("ERROR")) == (1, [line])


def test_resume_goes_on_and_unordered_leaves_none_out(pictures: Path, run: Run, two: str) -> None:
    rows = many(pictures, 30)
    lines = ("--json_lines", "lines.jsonl", "--scheduler", two, "--chunk", "3", "-i", "many")
    assert run(*MODEL, *lines).out == rows
    kept = Path("lines.jsonl").read_text().splitlines(keepends=True)
    Path("lines.jsonl").write_text("".join(kept[:7]) + kept[7][:20])
    ran = run(*MODEL, *lines, "--resume", "--unordered")
    assert sorted(ran.out) == rows[7:]
    found = [json.loads(line)["image"] for line in Path("lines.jsonl").read_text().splitlines()]
    assert sorted(found) == [row.split("\t")[0] for row in rows]


def test_workers_are_killed_paused_and_started_late(pictures: Path, run: Run) -> None:
    rows = many(pictures, 150)

    def count() -> int:
        return Path("lines.jsonl").read_bytes().count(b"\n")

    def pause() -> None:
        os.kill(second, signal.SIGSTOP)
        # Less would take one for dead that a busy machine holds up.
        cluster.scheduler.worker_ttl = 6.0

    with workers(2, ttl="2s") as cluster:
        cluster.scheduler.worker_ttl = 60.0
        first, second = (worker.pid for worker in cluster.workers.values())
        steps: list[tuple[int, Callable[[], Any]]] = [
            (5, lambda: cluster.scale(4)),
            (30, lambda: os.kill(first, signal.SIGKILL)),
            (60, pause),
        ]

        def disturb() -> None:
            for least, step in steps:
                while not Path("lines.jsonl").exists() or count() < least:
                    time.sleep(0.01)
                step()

        threading.Thread(target=disturb, daemon=True).start()
        ran = run(
            *MODEL, "-i", "many", "--scheduler", cluster.scheduler_address, "--chunk", "1",
            "--json_lines", "lines.jsonl", "--json", "all.json",
        )  # fmt: skip
    assert (ran.code, ran.out) == (0, rows)
    assert count() == 150
    found = json.loads(Path("all.json").read_text())
    assert found["classified"] == 150
    assert found["workers_gone"] >= 2
    assert len(found["workers"]) == 4


def test_ctrl_c_keeps_what_is_there(pictures: Path, run: Run, two: str) -> None:
    many(pictures, 300)

    def interrupt() -> None:
        while not Path("lines.jsonl").exists() or Path("lines.jsonl").stat().st_size < 2000:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    ran = run(
        *MODEL, "-i", "many", "--scheduler", two, "--chunk", "1", "--json_lines", "lines.jsonl",
        "--json", "all.json",
    )  # fmt: skip
    found = json.loads(Path("all.json").read_text())
    assert ran.code == 130
    assert found["interrupted"] is True
    assert 0 < found["classified"] == len(ran.out) < 300
    assert Path("lines.jsonl").read_bytes().count(b"\n") == found["classified"]

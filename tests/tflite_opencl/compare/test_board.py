# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl compare --scheduler` with processes as boards."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from PIL import Image

from delegate.inspect import write_model
from tests.support.cluster import workers
from tests.support.nets import conv_pool
from tests.support.small_v2 import small_v2
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl.command import main

pytestmark = [slow, needs_tflite]

# A delegate library that kills the worker whose child loads it, once or always.
KILLER = """
int kill(int, int); int getppid(void); int access(const char*, int); int creat(const char*, int);
void* tflite_plugin_create_delegate(void) {
  if (%d || access("%s", 0)) { creat("%s", 0600); kill(getppid(), 9); }
  return 0;
}
void tflite_plugin_destroy_delegate(void* delegate) {}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.tflite"
    path.write_bytes(write_model(conv_pool()))
    return path


@pytest.fixture
def killer(tmp_path: Path) -> Callable[[bool], str]:
    def built(always: bool) -> str:
        source, library = tmp_path / "killer.c", tmp_path / f"libkiller{int(always)}.so"
        source.write_text(KILLER % (always, tmp_path / "was_there", tmp_path / "was_there"))
        subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", library, source], check=True)
        return f"external:{library}"

    return built


@pytest.fixture(scope="module")
def two() -> Iterator[str]:
    with workers(2) as cluster:
        yield cluster.scheduler_address


def compare(scheduler: str, *arguments: str) -> int:
    few = "--tune", "off", "--count", "2", "--warmup_runs", "1", "--threads", "1"
    return main(["compare", *few, "--scheduler", scheduler, *arguments])


def results(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_each_board_compares_all_models(
    two: str,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # long times on a busy machine change the columns
    other = tmp_path / "b" / model.name  # with the same name
    other.parent.mkdir()
    other.write_bytes(model.read_bytes())
    path, paths = tmp_path / "kept.json", "builtin,reference"
    models = str(model), str(other)
    assert compare(two, *models, "--paths", paths, "--json", str(path)) == 0
    text = capsys.readouterr().out
    rows = [line.split()[:2] for line in text.splitlines()]
    for row in (["0", "builtin"], ["0", "reference"], ["1", "builtin"], ["1", "reference"]):
        assert rows.count(row) == 2
    boards = json.loads(path.read_text())["boards"]
    assert [*boards] == ["0", "1"]
    for board in boards.values():
        assert board["machine"]["threads"] == "1"
        assert [each["model"] for each in board["models"]] == [model.name] * 2
        for builtin, reference in (each["paths"] for each in board["models"]):
            assert (builtin["failure"], builtin["timing"]["runs"]) == ("", 2)
            assert (reference["failure"], reference["quanta"]) == ("", 0)


def test_job_of_dead_worker_goes_to_another(
    model: Path, killer: Callable[[bool], str], capsys: pytest.CaptureFixture[str]
) -> None:
    with workers(1) as cluster:
        at, paths = cluster.scheduler_address, f"{killer(False)},reference"
        assert compare(at, str(model), "--paths", paths, "--json", "-") == 1
    document = results(capsys)
    library, reference = document["boards"]["0"]["models"][0]["paths"]
    assert "cannot load the delegate" in library["failure"]
    assert (reference["failure"], reference["timing"]["runs"]) == ("", 2)
    assert document["why_not"] == {}


def test_board_whose_workers_die_is_named(
    model: Path, killer: Callable[[bool], str], capsys: pytest.CaptureFixture[str]
) -> None:
    with workers(1) as cluster:
        at = cluster.scheduler_address
        assert compare(at, str(model), "--paths", killer(True), "--json", "-") == 1
    document = results(capsys)
    assert document["boards"] == {}
    assert document["why_not"] == {"0": "3 workers died or hung while they had it"}


def test_picture_is_sent_as_model_input(
    two: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, picture = tmp_path / "v2.tflite", tmp_path / "picture.png"
    model.write_bytes(write_model(small_v2()))
    Image.new("RGB", (30, 20), (51, 204, 102)).save(picture)
    arguments = str(model), "--paths", "reference", "--image", str(picture), "--json", "-"
    code = compare(two, *arguments)
    document = results(capsys)
    assert code == 0
    models = [each["models"][0] for each in document["boards"].values()]
    assert [each["input"] for each in models] == ["picture.png"] * 2
    assert len({each["paths"][0]["top"] for each in models}) == 1
    assert models[0]["paths"][0]["top"]


def test_local_flags_are_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kept.json"
    path.write_text('{"schema": 1, "machine": {}, "models": []}')
    assert compare("local:2", str(model), "--against", str(path)) == 64
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "ERROR: --against is of one machine, and --scheduler is given\n"

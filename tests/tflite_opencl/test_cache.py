# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl cache`: contents, removal and errors."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from delegate.guard import cache
from delegate.guard.cache import leases, limit
from delegate.guard.children.records import Records
from delegate.guard.children.trials import SELF_TEST, Trial
from delegate.guard.store import CHOICES, Store
from tflite_opencl.command import main

IDENTITY = "PoCL|OpenCL 3.0 PoCL 3.1|a CPU|3.1|small"
PROGRAM = f"programs/conv_2d-{7:040x}.bin"
MODEL = f"language_models/{7:032x}-int8-512-2"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with facts about a device, a program and a model."""
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path))
    monkeypatch.setenv("COLUMNS", "140")
    Records(IDENTITY).add({Trial(SELF_TEST, "avx2"): "passed"})
    Store(IDENTITY).save(CHOICES, {"transfer": "direct"})
    cache.store(PROGRAM, bytes(3 << 20))
    cache.write_cached(f"{MODEL}/model.tflite", bytes(5 << 20))
    leases._end()
    return tmp_path


def document_of(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, object]:
    """Return the command's JSON."""
    assert main(["cache", *flags, "--json", "-"]) == 0
    results: dict[str, object] = json.loads(capsys.readouterr().out)
    return results


def test_kinds_models_and_devices(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day = time.strftime("%Y-%m-%d", time.localtime())
    assert main(["cache"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{folder}: 8.0 MiB; the limit is 2048 MiB\n")
    rows = [" ".join(line.split()) for line in text.splitlines()]
    for row in ("models 1 - 5.0", "programs 1 - 3.0", f"{MODEL} - 5.0"):
        assert any(line.startswith(f"{row} {day}") for line in rows), row
    assert "a CPU (PoCL, 3.1, small) 2" in rows
    facts = document_of(capsys)
    names = [each["name"] for each in facts["kinds"]]  # type: ignore[attr-defined]
    assert names[:2] == ["models", "programs"]
    assert {*names[2:]} == {"records", "devices"}
    assert facts["devices"][0]["device"] == IDENTITY  # type: ignore[index]


def test_listing_does_not_count_as_use(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (1e9, 1e9))
    document_of(capsys)
    assert {entry.used for entry in limit.cache_entries()} == {1e9}
    assert limit.cache_in_use() == set()


def test_prune(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    os.utime(folder / PROGRAM, (1e9, 1e9))
    assert document_of(capsys, "--prune")["removed"] == 0
    monkeypatch.setenv(limit.LIMIT_VARIABLE, "6")
    assert main(["cache", "--prune"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{folder}: 1 entry (3.0 MiB) removed, 3 entries (5.0 MiB) left")
    assert not (folder / PROGRAM).exists()
    assert (folder / MODEL).exists()


def test_clear_keeps_entries_in_use(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    cache.hold(MODEL)
    assert main(["cache"]) == 0
    assert f"{MODEL} 1 5.0" in " ".join(capsys.readouterr().out.split())
    facts = document_of(capsys, "--clear")
    assert (facts["removed"], facts["left"], facts["left_in_use"]) == (3, 1, 1)
    assert (folder / MODEL / "model.tflite").exists()
    leases._end()
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out.startswith(f"{folder}: 1 entry (5.0 MiB) removed, 0 entries")
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == f"{folder}: 0.0 MiB; the limit is 2048 MiB\n"


@pytest.mark.parametrize("flags", [[], ["--prune"], ["--clear"]])
def test_missing_folder_is_empty(
    flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, "/dev/null/none")
    assert main(["cache", *flags]) == 0
    assert "0.0 MiB" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [[], ["--prune"], ["--clear"]])
def test_unusable_folder_is_one_line(
    flags: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: Path,
) -> None:
    (folder / "file").write_text("no folder")
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(folder / "file"))
    assert main(["cache", *flags]) == 255
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"ERROR: the cache cannot be used: {folder}/file: Not a directory"
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(folder))
    folder.chmod(0o777)
    assert main(["cache", *flags]) == 255
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ERROR: {folder} is not used: other users may write to it")
    folder.chmod(0o700)


def test_undeletable_entry_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    def refused(path: str, *_: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "unlink", refused)
    assert main(["cache", "--clear"]) == 255
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ERROR: the cache cannot be used: {folder}/")
    assert line.endswith(": Permission denied")


def test_prune_and_clear_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "--clear", "--prune"]) == 64
    assert "not allowed with argument" in capsys.readouterr().err

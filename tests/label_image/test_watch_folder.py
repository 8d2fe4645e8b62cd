# SPDX-License-Identifier: Apache-2.0
"""--watch: pictures that come into a folder, by halves, anew, and in the run of a user."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from label_image import watch_folder
from tests.support.command import ROOT, Run
from tests.support.notified import manager
from tests.support.tiers import slow


@pytest.fixture
def looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield what each look gives."""
    monkeypatch.setattr(watch_folder, "_LOOK_S", 0.0)

    def each() -> Iterator[list[str]]:
        names = []
        for path in watch_folder.watch_folder(str(tmp_path)):
            if path is None:
                yield names
                names = []
            else:
                names.append(os.path.basename(path))

    return each()  # type: ignore[return-value]


def test_a_picture_is_given_once_it_is_whole(looks: Iterator[list[str]], tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"half")
    assert next(looks) == []
    (tmp_path / "a.png").write_bytes(b"half and more")
    (tmp_path / "b.txt").write_bytes(b"no picture")
    assert next(looks) == []
    assert next(looks) == ["a.png"]
    assert next(looks) == []
    (tmp_path / "a.png").write_bytes(b"another")
    assert [next(looks), next(looks), next(looks)] == [[], ["a.png"], []]
    (tmp_path / "a.png").unlink()
    assert next(looks) == []
    shutil.rmtree(tmp_path)
    assert next(looks, None) is None


@slow
def test_what_is_there_and_what_comes(pictures: Path, tmp_path: Path) -> None:
    with manager(tmp_path) as systemd, subprocess.Popen(
        [sys.executable, "-m", "label_image", "-m", "model.tflite", "-l", "labels.txt", "--watch",
         "pictures"],
        cwd=pictures, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "NOTIFY_SOCKET": systemd.path,
                          "WATCHDOG_USEC": "2000000"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        names = [process.stdout.readline().partition("\t")[0] for _ in range(3)]
        assert names == [f"pictures/{name}/{name}.png" for name in ("blue", "green", "red")]
        shutil.copy(pictures / "picture.bmp", pictures / "pictures" / "new.bmp")
        assert process.stdout.readline().startswith("pictures/new.bmp\t0.8")
        systemd.wait_for("WATCHDOG", 2)
        assert systemd.read()[0] == {"READY": "1"}
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


@pytest.mark.parametrize("words", [("-i", "picture.bmp"), ("--batch", "2"), ("--video", "x")])
def test_what_it_excludes(words: tuple[str, str], files: Path, run: Run) -> None:
    assert run("-m", "model.tflite", "--watch", ".", *words).code == 64


def test_a_folder_that_is_not_there(files: Path, run: Run) -> None:
    ran = run("-m", "model.tflite", "-l", "labels.txt", "--watch", "nothing")
    assert ran.code == 255
    assert ran.beginning("ERROR") == ["ERROR: --watch: there is no folder nothing"]

# SPDX-License-Identifier: Apache-2.0
"""Files are written atomically, and obstacles are found before the work."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from tests.support.process import run_python
from tflite_opencl.console.files import file_obstacle, folder_obstacle, write_file


def test_file_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    write_file(str(path), "new\n")
    assert path.read_text() == "new\n"
    assert os.listdir(tmp_path) == ["a.json"]


def test_name_that_is_not_utf8_is_escaped(tmp_path: Path) -> None:
    write_file(str(tmp_path / "a.html"), os.fsdecode(b"\xff.png"))
    assert (tmp_path / "a.html").read_text() == "\\udcff.png"


def test_failed_write_keeps_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(str(path), "new\n")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_stdout_is_no_file() -> None:
    """ "-" is stdout where a flag takes it; elsewhere no file of this name appears."""
    for obstacle in (file_obstacle, folder_obstacle):
        assert obstacle("-") == "it cannot be stdout; ./- is a file of this name"
    assert file_obstacle("./-") is None


def test_unreadable_folder_is_an_obstacle(tmp_path: Path) -> None:
    (tmp_path / "locked" / "in").mkdir(parents=True)
    (tmp_path / "locked").chmod(0)
    code = (
        "import sys\nfrom tflite_opencl.console.files import file_obstacle, folder_obstacle\n"
        "print(file_obstacle(sys.argv[1]), folder_obstacle(sys.argv[1]), sep=', ')"
    )
    message = run_python(code, tmp_path / "locked" / "in" / "a.json", is_root=False)
    assert message == "permission denied, permission denied\n"


def test_link_is_preserved(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_file(str(tmp_path / "link"), "new\n")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new\n"


def test_pipe_is_preserved(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(path.read_text()))
    reader.start()
    write_file(str(path), "new\n")
    reader.join()
    assert read == ["new\n"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_obstacles_of_file(tmp_path: Path) -> None:
    assert file_obstacle(str(tmp_path / "new.json")) is None
    assert file_obstacle(str(tmp_path)) == "it is a folder"
    assert file_obstacle(str(tmp_path / "no" / "new.json")) == (
        f"there is no folder {tmp_path / 'no'}"
    )


def test_unwritable_folder_is_an_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert file_obstacle(str(tmp_path / "new.json")) == "permission denied"


def test_obstacles_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert folder_obstacle(str(tmp_path)) is None
    assert folder_obstacle(str(tmp_path / "new" / "deep")) is None
    assert folder_obstacle(str(tmp_path / "file")) == "it is not a folder"
    assert folder_obstacle(str(tmp_path / "file" / "a")) == f"{tmp_path / 'file'} is not a folder"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert folder_obstacle(str(tmp_path / "new")) == "permission denied"

# SPDX-License-Identifier: Apache-2.0
"""Full disks, of outputs or temporary files: one line, and no partial file.

As in a process, `start.run` handles what `main` does not catch.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delegate.inspect import write_model
from label_image import command as label_image
from tests.support.nets import conv_pool
from tflite_opencl import command, library
from tflite_opencl.conformance import command as suite
from tflite_opencl.console import start

WORDS = "No space left on device"
OUTPUTS = [
    (command.main, ["cut", "model.tflite", "--output", "parts"], "parts/000.tflite"),
    (command.main, ["cut", "model.tflite", "--output", "a/b", "--inputs"], "a/b/000.tflite"),
    (command.main, ["rewrite", "model.tflite", "o", "--pass", "remove_dead"], "o"),
    (command.main, ["library", "x.so"], "x.so"),
    (command.main, ["library", "new/"], "new/libtflite_opencl_delegate.so"),
    (suite.main, ["--filter", "^add/int8/", "--write_models", "m"], "m/add/int8/"),
]


@pytest.fixture(autouse=True)
def _model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.tflite").write_bytes(write_model(conv_pool()))
    # Debian's python3-venv has no libpython; the compiled library is not loaded here.
    monkeypatch.setattr(library, "libpython_file", lambda: "libpython3.so")
    monkeypatch.setattr(library, "require_loadable", lambda libpython: None)


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, WORDS)


def ended(
    main: Callable[[list[str]], int], words: list[str], capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    code = start.run(lambda: main(words))
    output = capsys.readouterr()
    assert "Traceback" not in output.err
    return code, output.err


@pytest.mark.parametrize(("main", "words", "file"), OUTPUTS)
def test_full_disk_of_output(
    main: Callable[[list[str]], int],
    words: list[str],
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        code, err = ended(main, words, capsys)
    assert code == 255
    assert err.startswith(f"ERROR: cannot write {file}")
    assert err.endswith(f": {WORDS}\n")
    assert [each.name for each in Path().rglob("*") if each.is_file()] == ["model.tflite"]


def test_full_disk_of_new_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Path, "mkdir", full)
    for main, words in ((command.main, ["library", "new/"]), (OUTPUTS[-1][0], OUTPUTS[-1][1])):
        code, err = ended(main, words, capsys)
        assert code == 255
        assert err.startswith("ERROR: cannot write ")
        assert err.endswith(f": {WORDS}\n")


def test_existing_library_survives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x.so").write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        assert ended(command.main, ["library", "x.so"], capsys)[0] == 255
    monkeypatch.setenv("CC", "false")  # a failing compiler
    code, err = ended(command.main, ["library", "x.so"], capsys)
    assert (code, "fails: exit code 1" in err) == (255, True)
    assert Path("x.so").read_bytes() == b"old"


def test_full_disk_of_temporary_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is an expected error, whoever writes temporary files."""
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    line = f"ERROR: cannot write a temporary file: {WORDS}\n"
    assert ended(command.main, ["library", "x.so"], capsys) == (255, line)

    def unexpected(words: list[str]) -> int:
        raise OSError(errno.EDQUOT, "Disk quota exceeded", "judge")

    line = "ERROR: cannot write judge: Disk quota exceeded\n"
    assert ended(unexpected, [], capsys) == (255, line)
    monkeypatch.setattr(label_image, "_command", lambda settings, out: unexpected([]))
    assert ended(label_image.main, ["-i", "none.bmp"], capsys) == (255, line)

# SPDX-License-Identifier: Apache-2.0
"""The cache folder: where it is, and that its files are whole or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from label_image import cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_environment_variable_names_the_folder(folder: Path) -> None:
    assert cache.cache_folder() == folder
    assert not folder.exists()


@pytest.mark.parametrize("value", [None, ""], ids=["unset", "empty"])
def test_without_variable_the_folder_is_the_users(
    value: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is None:
        monkeypatch.delenv(cache.ENVIRONMENT_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "tflite-opencl"


def test_written_file_replaces_the_old_one(folder: Path) -> None:
    assert cache.write_cached("model.bin", b"old") == folder / "model.bin"
    cache.write_cached("model.bin", b"new")
    assert (folder / "model.bin").read_bytes() == b"new"
    assert os.listdir(folder) == ["model.bin"]


def test_full_disk_leaves_the_old_file_and_no_part(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.write_cached("model.bin", b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(cache.CacheError, match=r"model\.bin: No space left on device"):
        cache.write_cached("model.bin", b"new")
    assert (folder / "model.bin").read_bytes() == b"old"
    assert os.listdir(folder) == ["model.bin"]


def test_interrupt_leaves_no_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.write_cached("model.bin", b"new")
    assert os.listdir(folder) == []


def test_folder_that_cannot_be_made_is_one_clear_line(folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    with pytest.raises(cache.CacheError) as caught:
        cache.write_cached("model.bin", b"new")
    text = str(caught.value)
    assert str(folder) in text
    assert cache.ENVIRONMENT_VARIABLE in text
    assert "\n" not in text

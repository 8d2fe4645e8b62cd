# SPDX-License-Identifier: Apache-2.0
"""Files of the cache: whole or not there, and a folder that takes none is said once."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the test's own, not yet made, about which nothing was said."""
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_said", set())
    return tmp_path / "cache"


def test_the_folder_is_the_user_s_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFLITE_OPENCL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.folder() == Path("/somewhere/tflite-opencl")
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", "/elsewhere")
    assert cache.folder() == Path("/elsewhere")


def test_what_was_stored_is_loaded(folder: Path) -> None:
    assert cache.load("a/b.bin") is None
    assert cache.store("a/b.bin", b"one")
    assert cache.store("a/b.bin", b"two")
    assert cache.load("a/b.bin") == b"two"
    assert cache.store("empty", b"")
    assert cache.load("empty") == b""
    assert [path.name for path in sorted(folder.rglob("*"))] == ["a", "b.bin", "empty"]


@given(place=st.integers(0, 35 * 8 - 1))
def test_a_flipped_bit_is_noticed(folder: Path, place: int) -> None:
    cache.store("x", b"abc")
    content = bytearray((folder / "x").read_bytes())
    assert len(content) == 35
    content[place // 8] ^= 1 << place % 8
    (folder / "x").write_bytes(content)
    assert cache.load("x") is None


@pytest.mark.parametrize("length", [0, 1, 31, 32, 34, 36])
def test_a_wrong_length_is_noticed(folder: Path, length: int) -> None:
    cache.store("x", b"abc")
    (folder / "x").write_bytes(((folder / "x").read_bytes() + b"?")[:length])
    assert cache.load("x") is None


def test_what_is_no_file_is_not_loaded(folder: Path) -> None:
    (folder / "x").mkdir(parents=True)
    assert cache.load("x") is None


def test_a_folder_that_cannot_be_made_is_said_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write_text("a file is in its place")
    with caplog.at_level(logging.WARNING, "delegate"):
        assert not cache.store("programs/x", b"abc")
        assert not cache.store("devices/y", b"abc")
        assert cache.load("programs/x") is None
    (message,) = caplog.messages
    assert message.startswith("the cache is not used, so each start takes longer: ")
    assert str(folder) in message


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_said_once_and_leaves_no_part(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache.store("x", b"old")
    real = os.fdopen

    def full(handle: int, mode: str) -> object:
        os.close(handle)
        return real(os.open("/dev/full", os.O_WRONLY), mode)

    monkeypatch.setattr(os, "fdopen", full)
    with caplog.at_level(logging.WARNING, "delegate"):
        for name in ("x", "y"):
            assert not cache.store(name, b"new")
    (message,) = caplog.messages
    assert message.endswith(os.strerror(28))
    assert cache.load("x") == b"old"
    assert [path.name for path in folder.iterdir()] == ["x"]

# SPDX-License-Identifier: Apache-2.0
"""Cache files are complete or absent, and an unusable folder is reported once."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate.guard import cache
from delegate.guard.cache.files import read
from delegate.inspect import CacheError
from tests.support.cache_files import written_files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new cache folder, not created yet, without earlier warnings."""
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("delegate.guard.cache.folder._warned", set())
    return tmp_path / "cache"


def test_default_folder_is_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFLITE_OPENCL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.cache_folder() == Path("/somewhere/tflite-opencl")
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", "/elsewhere")
    assert cache.cache_folder() == Path("/elsewhere")


def test_without_home_nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TFLITE_OPENCL_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert cache.cache_folder() == Path("/dev/null/no-home/tflite-opencl")


def test_stored_content_is_loaded(folder: Path) -> None:
    assert cache.load("a/b.bin") is None
    assert cache.store("a/b.bin", b"one")
    assert cache.store("a/b.bin", b"two")
    assert cache.load("a/b.bin") == b"two"
    assert cache.store("empty", b"")
    assert cache.load("empty") == b""
    assert written_files(folder) == ["a/b.bin", "empty"]


@pytest.mark.parametrize(("failures", "found"), [(1, b"content"), (9, None)])
def test_stale_handle_is_opened_again(folder: Path, failures: int, found: bytes | None) -> None:
    """As on NFS, where another client has replaced the file."""
    assert cache.store("a", b"content")
    left = [OSError(errno.ESTALE, os.strerror(errno.ESTALE))] * failures

    def use(file: FileIO, size: int) -> bytes:
        if left:
            raise left.pop()
        return file.read()[32:]

    assert read("a", use) == found


def test_other_failures_to_read_are_not_repeated(folder: Path) -> None:
    assert cache.store("a", b"content")
    calls = []

    def use(file: FileIO, size: int) -> bytes:
        calls.append(size)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    assert read("a", use) is None
    assert len(calls) == 1


@given(place=st.integers(0, 35 * 8 - 1))
def test_flipped_bit_is_detected(folder: Path, place: int) -> None:
    cache.store("x", b"abc")
    content = bytearray((folder / "x").read_bytes())
    assert len(content) == 35
    content[place // 8] ^= 1 << place % 8
    (folder / "x").write_bytes(content)
    assert cache.load("x") is None


@pytest.mark.parametrize("length", [0, 1, 31, 32, 34, 36])
def test_wrong_length_is_detected(folder: Path, length: int) -> None:
    cache.store("x", b"abc")
    (folder / "x").write_bytes(((folder / "x").read_bytes() + b"?")[:length])
    assert cache.load("x") is None


def test_renamed_entry_is_not_loaded(folder: Path) -> None:
    for name in ("programs/one.bin", "programs/two.bin"):
        cache.store(name, name.encode())
    shutil.copy(folder / "programs/one.bin", folder / "programs/two.bin")
    assert cache.load("programs/one.bin") == b"programs/one.bin"
    assert cache.load("programs/two.bin") is None


def test_folder_is_private(folder: Path) -> None:
    before = os.umask(0o002)
    try:
        cache.store("programs/x", b"abc")
    finally:
        os.umask(before)
    for path, mode in (
        (folder, 0o700),
        (folder / "programs", 0o700),
        (folder / "programs/x", 0o600),
    ):
        assert path.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("writable", [".", "programs", "programs/x"])
@pytest.mark.parametrize("bit", [0o020, 0o002], ids=["group", "others"])
def test_folder_writable_by_others_is_refused_with_one_warning(
    folder: Path, caplog: pytest.LogCaptureFixture, writable: str, bit: int
) -> None:
    cache.store("programs/x", b"abc")
    path = folder / writable
    path.chmod(path.stat().st_mode | bit)
    with caplog.at_level(logging.WARNING, "delegate"):
        assert cache.load("programs/x") is None
        assert cache.load("programs/x") is None
        is_folder = writable != "programs/x"
        assert cache.store("programs/y", b"abc") is not is_folder
    (message,) = caplog.messages
    assert message == (
        f"each start takes longer without the cache: {path} is not used: other users may write to "
        f"it; chmod go-w {path} ends that (TFLITE_OPENCL_CACHE can name another folder)"
    )


def test_folder_of_another_user_is_refused_with_one_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache.store("x", b"abc")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with caplog.at_level(logging.WARNING, "delegate"):
        assert cache.load("x") is None
        assert not cache.store("x", b"other")
    (message,) = caplog.messages
    assert f"{folder} is not used: it belongs to another user" in message
    with pytest.raises(CacheError, match="it belongs to another user"):
        cache.write_cached("model.tflite", b"abc")
    monkeypatch.undo()
    assert (folder / "x").read_bytes()[-3:] == b"abc"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file away")
def test_entry_of_another_user_is_not_used(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache.store("x", b"abc")
    os.chown(folder / "x", 65534, 65534)
    with caplog.at_level(logging.WARNING, "delegate"):
        assert cache.load("x") is None
    (message,) = caplog.messages
    assert f"{folder}/x is not used: it belongs to another user" in message


def _open_part(name: str, content: bytes) -> None:
    with cache.open_part(name, is_rest=False) as file:
        file.write(content)


ODD: dict[str, Callable[[Path], object]] = {
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,  # opening it would wait for a writer
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to(path.parent / "nothing" / "there"),
}


@pytest.mark.parametrize("write", [cache.write_cached, cache.store, _open_part])
@pytest.mark.parametrize("odd", ODD)
def test_special_file_is_replaced(
    folder: Path, odd: str, write: Callable[[str, bytes], object]
) -> None:
    if (odd, write) == ("a folder", _open_part):
        pytest.skip("it does not replace folders")
    folder.mkdir(mode=0o700)
    ODD[odd](folder / "x")
    assert cache.load("x") is None
    assert cache.sha256_of("x") is None
    write("x", b"abc")
    assert (folder / "x").read_bytes()[-3:] == b"abc"
    assert not (folder / "x").is_symlink()


def test_store_does_not_follow_links(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    folder.mkdir(mode=0o700)
    for is_rest in (False, True, None):
        (folder / "x").unlink(missing_ok=True)
        (folder / "x").symlink_to(precious)
        if is_rest is None:
            cache.write_cached("x", b"abc")
        else:
            with cache.open_part("x", is_rest) as file:
                file.write(b"abc")
        assert (folder / "x").read_bytes() == b"abc"
        assert precious.read_text() == "precious"


def test_non_empty_folder_in_place_of_entry_is_reported(folder: Path) -> None:
    (folder / "x").mkdir(parents=True, mode=0o700)
    (folder / "x" / "precious").write_text("precious")
    with pytest.raises(CacheError, match=f"cannot write {folder}/x: Directory not empty"):
        cache.write_cached("x", b"abc")
    assert os.listdir(folder) == ["x"]
    assert (folder / "x" / "precious").read_text() == "precious"


def test_checksum_is_that_of_sha256sum(folder: Path) -> None:
    content = bytes(range(256)) * 8192  # more than one chunk
    cache.write_cached("x", content)
    assert cache.sha256_of("x") == hashlib.sha256(content).hexdigest()


def test_failure_to_create_folder_is_reported_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write_text("a file is in its place")
    with caplog.at_level(logging.WARNING, "delegate"):
        assert not cache.store("programs/x", b"abc")
        assert not cache.store("devices/y", b"abc")
        assert cache.load("programs/x") is None
    (message,) = caplog.messages
    assert message.startswith("each start takes longer without the cache: cannot write ")
    assert str(folder) in message
    with pytest.raises(CacheError) as caught:
        cache.write_cached("model.bin", b"new")
    text = str(caught.value)
    assert str(folder) in text
    assert cache.ENVIRONMENT_VARIABLE in text
    assert "\n" not in text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disk_is_reported_once_and_leaves_no_temporary_file(
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
    assert f"x: {os.strerror(28)}" in message
    assert cache.load("x") == b"old"
    assert written_files(folder) == ["x"]


@pytest.mark.parametrize(
    ("error", "raised", "text"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            CacheError,
            r"model\.bin: No space left",
        ),
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),
    ],
)
def test_failed_write_keeps_old_file_and_leaves_no_temporary_file(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    raised: type[BaseException],
    text: str,
) -> None:
    cache.write_cached("model.bin", b"old")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(raised, match=text):
        cache.write_cached("model.bin", b"new")
    assert (folder / "model.bin").read_bytes() == b"old"
    assert written_files(folder) == ["model.bin"]

# SPDX-License-Identifier: Apache-2.0
"""Download of official files, from a local server with faults."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate.guard import cache
from tests.support.cache_files import written_files
from tests.support.http_server import Page, Server
from tflite_opencl.console.errors import UsageError
from tflite_opencl.models import fetch
from tflite_opencl.models.fetch import FetchError, OfficialFile

# Noise does not compress, so the archive can be cut in the middle.
MODEL = np.random.default_rng(1).integers(0, 256, 200_000, np.uint8).tobytes()
NAME = "model_quant"


def _tgz(members: Sequence[tuple[str, bytes]]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def _zip(members: Sequence[tuple[str, bytes]]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return packed.getvalue()


ARCHIVE = _tgz([("./checkpoint.ckpt", b"not wanted"), (f"./{NAME}.tflite", MODEL)])


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def _official(server: Server, archive: bytes = ARCHIVE, **changes: Any) -> dict[str, OfficialFile]:
    """Put an archive on the server and return the table that pins it."""
    server.pages["/model.tgz"] = Page(archive)
    pinned = OfficialFile(
        f"{server.url}/model.tgz",
        f"{NAME}.tflite",
        f"{NAME}.tflite",
        (_sha256(MODEL),),
        archive_sha256=_sha256(archive),
    )
    return {NAME: replace(pinned, **changes)}


def _fetch(official: dict[str, OfficialFile], **arguments: Any) -> Path:
    return fetch.fetch(NAME, official=official, **arguments)


def _fail(official: dict[str, OfficialFile], **arguments: Any) -> str:
    with pytest.raises(FetchError) as caught:
        _fetch(official, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_fetch_caches_only_the_wanted_file(server: Server, folder: Path) -> None:
    official = _official(server)
    assert fetch.fetched(NAME, official) is None
    assert _fetch(official) == folder / f"{NAME}.tflite"
    assert fetch.fetched(NAME, official) == folder / f"{NAME}.tflite"
    assert (folder / f"{NAME}.tflite").read_bytes() == MODEL
    assert written_files(folder) == [f"{NAME}.tflite"]


def test_second_fetch_sends_no_request(server: Server) -> None:
    official = _official(server)
    _fetch(official)
    _fetch(official)
    assert len(server.ranges) == 1


def test_manually_copied_file_is_used(server: Server, folder: Path) -> None:
    official = _official(server)
    folder.mkdir()
    (folder / f"{NAME}.tflite").write_bytes(MODEL)
    assert _fetch(official) == fetch.fetched(NAME, official)
    assert server.ranges == []


def test_zip_archive_is_unpacked_too(server: Server) -> None:
    archive = _zip([("__MACOSX/._labels.txt", b"junk"), ("labels.txt", b"background\ntench\n")])
    official = _official(
        server,
        archive,
        member="labels.txt",
        file_name="imagenet_labels.txt",
        file_sha256=(_sha256(b"background\ntench\n"),),
    )
    path = _fetch(official)
    assert path.name == "imagenet_labels.txt"
    assert path.read_bytes() == b"background\ntench\n"


@pytest.mark.parametrize("has_length", [True, False], ids=["size-known", "size-unknown"])
def test_progress_ends_at_the_archive_size(server: Server, has_length: bool) -> None:
    official = _official(server)
    server.pages["/model.tgz"].has_length = has_length
    seen: list[tuple[int, int]] = []
    _fetch(official, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (len(ARCHIVE), len(ARCHIVE) if has_length else 0)


def test_interrupted_download_resumes(server: Server, folder: Path) -> None:
    official = _official(server)
    server.pages["/model.tgz"].cut_after = 70_000
    assert f"after 70000 of {len(ARCHIVE)} bytes" in _fail(official)
    assert (folder / "model.tgz.part").stat().st_size == 70_000
    assert fetch.fetched(NAME, official) is None

    server.pages["/model.tgz"].cut_after = None
    seen: list[int] = []
    path = _fetch(official, progress=lambda done, _: seen.append(done))
    assert server.ranges == [None, "bytes=70000-"]
    assert min(seen) > 70_000
    assert path.read_bytes() == MODEL


def test_server_without_ranges_restarts(server: Server, folder: Path) -> None:
    official = _official(server)
    folder.mkdir()
    (folder / "model.tgz.part").write_bytes(ARCHIVE[:50_000])
    server.pages["/model.tgz"].knows_ranges = False
    assert _fetch(official).read_bytes() == MODEL
    assert server.ranges == ["bytes=50000-"]


@pytest.mark.parametrize("extra", [0, 10], ids=["whole", "longer"])
def test_complete_partial_file_restarts(server: Server, folder: Path, extra: int) -> None:
    official = _official(server)
    folder.mkdir()
    (folder / "model.tgz.part").write_bytes(ARCHIVE + b"x" * extra)
    assert _fetch(official).read_bytes() == MODEL
    assert server.ranges == [f"bytes={len(ARCHIVE) + extra}-", None]


def test_partial_file_of_other_content_is_removed(server: Server, folder: Path) -> None:
    official = _official(server)
    folder.mkdir()
    (folder / "model.tgz.part").write_bytes(b"something else")
    assert "wrong checksum" in _fail(official)
    assert written_files(folder) == []
    assert _fetch(official).read_bytes() == MODEL


def test_wrong_archive_is_refused_and_removed(server: Server, folder: Path) -> None:
    official = _official(server)
    server.pages["/model.tgz"].content = _tgz([(f"{NAME}.tflite", b"another model")])
    assert "wrong checksum" in _fail(official)
    assert written_files(folder) == []


def test_wrong_file_in_an_unpinned_archive_is_refused_and_removed(
    server: Server, folder: Path
) -> None:
    official = _official(server, archive_sha256=None, file_sha256=(_sha256(b"the real one"),))
    assert "wrong checksum" in _fail(official)
    assert written_files(folder) == []


def test_known_copy_from_other_origin_is_used(server: Server, folder: Path) -> None:
    official = _official(server, file_sha256=(_sha256(MODEL), _sha256(b"the same with metadata")))
    folder.mkdir()
    (folder / f"{NAME}.tflite").write_bytes(b"the same with metadata")
    assert _fetch(official) == folder / f"{NAME}.tflite"
    assert server.ranges == []


def test_damaged_cached_file_is_fetched_again(server: Server, folder: Path) -> None:
    official = _official(server)
    _fetch(official)
    (folder / f"{NAME}.tflite").write_bytes(MODEL[:-1])
    with pytest.raises(FetchError) as caught:
        fetch.fetched(NAME, official)
    assert str(caught.value) == (
        f"{folder / NAME}.tflite is damaged or another file: its checksum is not that of the "
        f"official one; label_image --fetch {NAME} replaces it, or copy {NAME}.tflite by hand "
        f"into {folder}"
    )
    assert _fetch(official).read_bytes() == MODEL
    assert len(server.ranges) == 2


@pytest.mark.parametrize(
    "archive",
    [b"", b"<html>not an archive</html>", ARCHIVE[:-1000], _zip([("a", b"b" * 99)])[:-30]],
    ids=["empty", "web-page", "cut-tgz", "cut-zip"],
)
def test_archive_that_does_not_unpack_is_refused(
    server: Server, folder: Path, archive: bytes
) -> None:
    assert "archive is damaged" in _fail(_official(server, archive, archive_sha256=None))
    assert written_files(folder) == []


def test_archive_without_the_wanted_file_is_refused(server: Server) -> None:
    archive = _tgz([("other.tflite", MODEL)])
    assert f"there is no {NAME}.tflite" in _fail(_official(server, archive))


def test_links_and_outside_names_of_an_archive_write_nothing(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        link = tarfile.TarInfo(f"{NAME}.tflite")
        link.type = tarfile.SYMTYPE
        link.linkname = str(tmp_path / "target")
        tar.addfile(link)
        outside = tarfile.TarInfo(f"../../{NAME}.tflite")
        outside.size = len(MODEL)
        tar.addfile(outside, io.BytesIO(MODEL))
    path = _fetch(_official(server, packed.getvalue()))
    assert path.read_bytes() == MODEL
    assert not path.is_symlink()
    assert os.listdir(tmp_path) == ["cache"]
    assert written_files(folder) == [f"{NAME}.tflite"]


@pytest.mark.parametrize("pack", [_tgz, _zip], ids=["tgz", "zip"])
def test_archive_that_unpacks_to_too_much_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch, pack: Any
) -> None:
    monkeypatch.setattr(fetch, "UNPACKED_LIMIT_BYTES", 1000)
    archive = pack([("first", b"0" * 1001), (f"{NAME}.tflite", b"model")])
    assert "unpacks to far more" in _fail(_official(server, archive))


def test_endless_download_is_stopped(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    official = _official(server)
    monkeypatch.setattr(fetch, "DOWNLOAD_LIMIT_BYTES", 100_000)
    assert "far larger" in _fail(official)


def test_missing_page_explains_manual_copy(server: Server, folder: Path) -> None:
    official = _official(server)
    server.pages.clear()
    text = _fail(official)
    assert "404" in text
    assert f"copy {NAME}.tflite by hand into {folder}" in text


def test_no_network_explains_manual_copy(folder: Path) -> None:
    with Server() as server:
        official = _official(server)
    text = _fail(official)
    assert "refused" in text
    assert f"copy {NAME}.tflite by hand into {folder}" in text


@pytest.mark.parametrize("after", [0, 5000], ids=["before-the-first-byte", "in-the-middle"])
def test_stalled_server_times_out(server: Server, after: int) -> None:
    official = _official(server)
    server.pages["/model.tgz"].stalls = True
    server.pages["/model.tgz"].cut_after = after
    assert "no answer for 0.2 seconds" in _fail(official, timeout_seconds=0.2)


def test_local_redirect_is_followed(server: Server) -> None:
    official = _official(server)
    server.pages["/moved.tgz"] = server.pages["/model.tgz"]
    server.pages["/model.tgz"] = Page(redirect=f"{server.url}/moved.tgz")
    assert _fetch(official).read_bytes() == MODEL


@pytest.mark.parametrize(
    "target", ["http://example.com/model.tgz", "ftp://127.0.0.1/model.tgz"], ids=["http", "ftp"]
)
def test_redirect_to_an_insecure_address_is_refused(server: Server, target: str) -> None:
    official = _official(server)
    server.pages["/model.tgz"] = Page(redirect=target)
    assert f"refusing to load {target}" in _fail(official)


def test_secure_server_cannot_redirect_to_localhost() -> None:
    with pytest.raises(FetchError, match="only https"):
        fetch._require_secure("http://127.0.0.1/model.tgz", from_loopback=False)


@pytest.mark.parametrize("url", ["http://example.com/m.tgz", "file:///etc/passwd"])
def test_insecure_address_is_refused(server: Server, url: str) -> None:
    assert "only https" in _fail(_official(server, url=url))


def test_unknown_name_lists_the_known_ones() -> None:
    assert fetch.fetched("nothing") is None
    with pytest.raises(UsageError, match=r"'nothing'; there are mobilenet_v1_1\.0_224_quant, "):
        fetch.fetch("nothing")


def test_failure_to_create_cache_is_one_line(server: Server, folder: Path) -> None:
    official = _official(server)
    folder.write_text("a file where the folder should be")
    assert f"cannot write {folder}" in _fail(official)
    assert server.ranges == []


def test_full_disk_is_one_line_and_partial_file_stays(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    official = _official(server)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert "No space left on device" in _fail(official)
    assert written_files(folder) == ["model.tgz.part"]


def test_full_disk_during_download_is_one_line(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    official = _official(server)
    monkeypatch.setattr(
        fetch, "open_part", lambda name, is_rest: os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb")
    )
    assert "No space left on device" in _fail(official)


@pytest.mark.parametrize("name", fetch.OFFICIAL)
def test_official_files_are_pinned_and_secure(name: str) -> None:
    wanted = fetch.OFFICIAL[name]
    assert wanted.url.startswith("https://")
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in wanted.file_sha256)
    assert wanted.file_sha256


@pytest.mark.model
@pytest.mark.parametrize("name", fetch.OFFICIAL)
def test_manually_copied_real_files_are_used(name: str, folder: Path) -> None:
    shared = Path(__file__).parents[4] / "shared"
    results = list(shared.rglob(fetch.OFFICIAL[name].file_name))
    if not results:
        pytest.skip("../shared is not here")
    folder.mkdir()
    copied = folder / results[0].name
    copied.write_bytes(results[0].read_bytes())
    assert fetch.fetched(name) == copied

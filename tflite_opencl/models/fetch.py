# SPDX-License-Identifier: Apache-2.0
"""Downloads the official quantised MobileNets and their labels to the cache, by name.

Interrupted downloads are resumed. Nothing is used before its checksum is verified, and only the
required file is extracted from an archive.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from delegate.inspect import (
    CacheError,
    cache_folder,
    hold,
    make_folder,
    open_part,
    sha256_of,
    write_cached,
)
from tflite_opencl.console.errors import OneLineError, UsageError

# Progress callback: (done, total); total 0 means unknown.
Progress = Callable[[int, int], None]
_CHUNK_BYTES = 1 << 16
# Far larger than any of the files, and far smaller than a disk.
DOWNLOAD_LIMIT_BYTES = 256 << 20
UNPACKED_LIMIT_BYTES = 512 << 20
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class FetchError(OneLineError):
    """The download failed; the text is one line that says why and what to do."""


@dataclass(frozen=True, slots=True)
class OfficialFile:
    """A file in an archive on a server."""

    url: str  # of the archive, .tgz or .zip
    member: str  # name in the archive, without folders
    file_name: str  # name in the cache
    file_sha256: tuple[str, ...]  # pinned; the archive's file, then known copies of other origin
    archive_sha256: str | None = None  # pinned; None: only the file is pinned

    @property
    def by_hand(self) -> str:
        """Instructions for obtaining the file without the server."""
        return f"or copy {self.file_name} by hand into {cache_folder()}"


_SERVER = "https://storage.googleapis.com/download.tensorflow.org/models"
# Source of the archives' checksums: TensorFlow's own build files, tensorflow/workspace2.bzl. The
# second checksum of each file is that of the copy in google-coral/test_data.
OFFICIAL: Mapping[str, OfficialFile] = {
    "mobilenet_v1_1.0_224_quant": OfficialFile(
        f"{_SERVER}/mobilenet_v1_2018_08_02/mobilenet_v1_1.0_224_quant.tgz",
        "mobilenet_v1_1.0_224_quant.tflite", "mobilenet_v1_1.0_224_quant.tflite",
        ("ecc3a67c47c5a609ec35f6a58a7d97532834e43df4cb7d3f1204a8164b7d20dd",
         "6e3a35cd8e45e5661ca3d89941378a46ad48e2329ae4a81ef79518c740aab183"),
        "d32432d28673a936b2d6281ab0600c71cf7226dfe4cdcef3012555f691744166",
    ),
    "mobilenet_v2_1.0_224_quant": OfficialFile(
        f"{_SERVER}/tflite_11_05_08/mobilenet_v2_1.0_224_quant.tgz",
        "mobilenet_v2_1.0_224_quant.tflite", "mobilenet_v2_1.0_224_quant.tflite",
        ("f08d447cde49b4e0446428aa921aff0a14ea589fa9c5817b31f83128e9a43c1d",
         "7aad0c74c5e3c06e5eb3c827e13304fdd68a83da6087d92ee169c24ff9fd4776"),
    ),
    "imagenet_labels": OfficialFile(
        f"{_SERVER}/tflite/mobilenet_v1_1.0_224_quant_and_labels.zip",
        "labels_mobilenet_quant_v1_224.txt", "imagenet_labels.txt",
        ("536feacc519de3d418de26b2effb4d75694a8c4c0063e36499a46fa8061e2da9",
         "b8aaeb5630c62626a7d124a05c0e14230a7ffdd2136a31d0190a4fb71c1d82f1"),
        "2f8054076cf655e1a73778a49bd8fd0306d32b290b7e576dda9574f00f186c0f",
    ),
}  # fmt: skip


def fetched(name: str, official: Mapping[str, OfficialFile] = OFFICIAL) -> Path | None:
    """Return the cached file with this official name, or None if it is not cached.

    Raises: FetchError: it is cached, but damaged or a different file.
    """
    if (wanted := official.get(name)) is None:
        return None
    path = cache_folder() / wanted.file_name
    hold(wanted.file_name)
    if (found := sha256_of(wanted.file_name)) is None:
        return None
    if found not in wanted.file_sha256:
        raise FetchError(
            f"{path} is damaged or another file: its checksum is not that of the official one; "
            f"label_image --fetch {name} replaces it, {wanted.by_hand}"
        )
    return path


def fetch(
    name: str,
    progress: Progress | None = None,
    official: Mapping[str, OfficialFile] = OFFICIAL,
    timeout_seconds: float = 30.0,
) -> Path:
    """Return the cached file with this official name; download it if it is not cached.

    Raises: UsageError: unknown name. FetchError: no network, wrong checksum, or a full disk.
    """
    if name not in official:
        raise UsageError(f"no official file is called {name!r}; there are {', '.join(official)}")
    with contextlib.suppress(FetchError):  # a damaged file is replaced
        if (cached := fetched(name, official)) is not None:
            return cached
    wanted = official[name]
    part = cache_folder() / f"{PurePosixPath(urlsplit(wanted.url).path).name}.part"
    try:
        make_folder("")
        _download(wanted, part, progress, timeout_seconds)
        try:
            content = _checked_member(wanted, part)
        except FetchError:
            part.unlink(missing_ok=True)
            raise
        path = write_cached(wanted.file_name, content)
    except CacheError as error:  # the partial download is kept for a retry
        raise FetchError(str(error)) from error
    part.unlink(missing_ok=True)
    return path


class _SecureRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, *others: Any) -> urllib.request.Request | None:
        try:
            _require_secure(others[-1], urlsplit(req.full_url).hostname in _LOOPBACK)
        except FetchError:
            fp.close()
            raise
        return super().redirect_request(req, fp, *others)


def _require_secure(url: str, from_loopback: bool = True) -> None:
    parts = urlsplit(url)
    on_this_machine = from_loopback and parts.scheme == "http" and parts.hostname in _LOOPBACK
    if parts.scheme != "https" and not on_this_machine:
        raise FetchError(f"refusing to load {url}: only https addresses are trusted")


def _download(
    wanted: OfficialFile, part: Path, progress: Progress | None, timeout_seconds: float
) -> None:
    """Complete `part` to the archive's full length, resuming an earlier download."""
    _require_secure(wanted.url)
    present = part.stat().st_size if part.is_file() and not part.is_symlink() else 0
    ranges = {"Range": f"bytes={present}-"} if present else {}
    request = urllib.request.Request(wanted.url, headers=ranges)
    opener = urllib.request.build_opener(_SecureRedirects)
    try:
        with opener.open(request, timeout=timeout_seconds) as response:
            is_rest = response.status == HTTPStatus.PARTIAL_CONTENT
            _receive(wanted, response, part, present if is_rest else 0, progress)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not present:
            said = f"the server says {error.code} {error.reason}; try later"
            raise FetchError(f"{wanted.url}: {said}, {wanted.by_hand}") from error
        part.unlink()
        _download(wanted, part, progress, timeout_seconds)
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, TimeoutError):
            reason = f"no answer for {timeout_seconds:g} seconds"
        raise FetchError(
            f"{wanted.url}: {reason}; run it again to go on, {wanted.by_hand}"
        ) from error


def _receive(
    wanted: OfficialFile,
    response: http.client.HTTPResponse,
    part: Path,
    received: int,
    progress: Progress | None,
) -> None:
    """Append the response's body to `part`."""
    # NOTE: `length` decreases while the body is read.
    total = 0 if response.length is None else received + response.length
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open_part(part.name, is_rest=received > 0))
        while chunk := response.read(_CHUNK_BYTES):
            received += len(chunk)
            if received > DOWNLOAD_LIMIT_BYTES:
                raise FetchError(f"{wanted.url}: far larger than {wanted.file_name} should be")
            with _writing(part):
                file.write(chunk)
                file.flush()
            if progress is not None:
                progress(received, total)
    if received < total:
        raise FetchError(
            f"{wanted.url}: the connection ended after {received} of {total} bytes; "
            "run it again to go on from there"
        )


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn a file system error, as opposed to a network error, into FetchError."""
    try:
        yield
    except OSError as error:
        why = f"{error.strerror or error} (TFLITE_OPENCL_CACHE can name another folder)"
        raise FetchError(f"cannot write {path}: {why}") from error


def _checked_member(wanted: OfficialFile, archive: Path) -> bytes:
    """Return the required file's bytes; names and links in the archive never reach the disk."""
    again = f"run it again, {wanted.by_hand}"
    try:
        if wanted.archive_sha256 not in (None, _sha256(archive.read_bytes())):
            what = "what came is not the known archive and was removed"
            raise FetchError(f"{wanted.url}: wrong checksum, {what}; {again}")
        for name, unpacked_bytes, read in _members(archive):
            if unpacked_bytes > UNPACKED_LIMIT_BYTES:
                raise FetchError(f"{wanted.url}: the archive unpacks to far more than it should")
            if PurePosixPath(name).name != wanted.member:
                continue
            if _sha256(data := read()) not in wanted.file_sha256:
                what = f"{wanted.member} in it is not the known file"
                raise FetchError(f"{wanted.url}: wrong checksum, {what}; {again}")
            return data
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        why = f"the archive is damaged and was removed: {error}"
        raise FetchError(f"{wanted.url}: {why}") from error
    raise FetchError(f"{wanted.url}: there is no {wanted.member} in the archive")


def _members(archive: Path) -> Iterator[tuple[str, int, Callable[[], bytes]]]:
    """Yield each file's name, "" for a link; its unpacked size; and a function that unpacks it."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for entry in opened.infolist():
                yield entry.filename, entry.file_size, partial(opened.read, entry)
        return
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:  # each step unpacks up to there
            file = tar.extractfile(member) if member.isfile() else None
            size = member.offset_data + member.size
            yield (member.name, size, file.read) if file else ("", size, bytes)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

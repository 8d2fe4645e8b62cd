# SPDX-License-Identifier: Apache-2.0
"""Content-addressed storage: content is read back unchanged, or is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from delegate.guard import cache
from delegate.guard.cache import digests
from delegate.plan import contents
from delegate.plan.contents import (
    FOLDER,
    MissingContent,
    digest_of,
    load,
    paths_outside_cache,
    save,
)

VALUES = np.arange(999, dtype=np.uint16).view(np.uint8)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path))
    monkeypatch.setattr(contents, "_unsaved", {})
    yield
    for handle in contents._unsaved.values():
        os.close(handle)


def file_of(digest: str) -> Path:
    return cache.cache_folder() / FOLDER / digest


def test_saved_contents_are_loaded_from_one_file() -> None:
    digest = save(VALUES)
    assert digest == save(VALUES.copy()) == digest_of(VALUES)
    assert file_of(digest).read_bytes() == VALUES.tobytes()  # no other content
    assert np.array_equal(load(digest, VALUES.nbytes), VALUES)
    assert not load(digest, VALUES.nbytes).flags.writeable
    other = save(VALUES[1:].copy())
    assert other != digest
    assert len([*file_of(digest).parent.glob("[!.]*")]) == 2
    assert paths_outside_cache() == {}


def test_empty_content() -> None:
    nothing = np.zeros(0, np.uint8)
    assert load(save(nothing), 0).nbytes == 0
    assert load("never saved", 0).nbytes == 0


CHANGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "flipped": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1, *VALUES[1:]])),
    "empty": lambda path: path.write_bytes(b""),
    "gone": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "others may write": lambda path: path.chmod(0o666),
}


@pytest.mark.parametrize("change", CHANGES)
def test_damaged_content_is_missing_until_saved_again(change: str) -> None:
    digest = save(VALUES)
    CHANGES[change](file_of(digest))
    with pytest.raises(MissingContent):
        load(digest, VALUES.nbytes)
    assert save(VALUES) == digest
    assert np.array_equal(load(digest, VALUES.nbytes), VALUES)


@pytest.mark.parametrize("change", CHANGES)
def test_remembered_digest_does_not_hide_damage(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_SETTLED_SECONDS", 0)
    monkeypatch.setattr(digests, "_LEAST_BYTES", 0)
    digest = save(VALUES)
    load(digest, VALUES.nbytes)
    cache.keep_digests()
    CHANGES[change](file_of(digest))
    with pytest.raises(MissingContent):
        load(digest, VALUES.nbytes)


def test_wrong_size_or_digest_is_missing() -> None:
    digest, other = save(VALUES), save(VALUES[2:].copy())
    for size in (VALUES.nbytes - 1, VALUES.nbytes + 1):
        with pytest.raises(MissingContent):
            load(digest, size)
    file_of(digest).write_bytes(file_of(other).read_bytes())
    for size in (VALUES.nbytes, VALUES.nbytes - 2):
        with pytest.raises(MissingContent):
            load(digest, size)


def test_contents_are_in_memory_without_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, "/proc/none")
    digest = save(VALUES)
    assert save(VALUES.copy()) == digest
    path = paths_outside_cache()[digest]
    assert np.array_equal(load(digest, VALUES.nbytes, path), VALUES)
    with pytest.raises(MissingContent):
        load(digest, VALUES.nbytes)
    with pytest.raises(MissingContent):
        load(digest, VALUES.nbytes - 1, path)
    with pytest.raises(MissingContent):
        load(digest_of(VALUES[1:].copy()), VALUES.nbytes, path)
    with pytest.raises(MissingContent):
        load(digest, VALUES.nbytes, "/proc/none/fd/3")

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

from label_image.cluster.chunks import Chunks


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    for number in range(5):
        Path(f"{number}.bmp").write_bytes(b"x" * (number + 1))
    return [(number + 1, f"name {number}", f"{number}.bmp") for number in range(5)]


def test_pictures_go_by_path_with_what_tells_another_file(
    named: list[tuple[int, str, str]],
) -> None:
    first, second, third = Chunks(2, 1).of(named)
    assert [len(first), len(second), len(third)] == [2, 2, 1]
    picture = first[1]
    assert (picture.number, picture.name) == (2, "name 1")
    assert picture.path == os.path.abspath("1.bmp")
    assert picture.is_there()
    Path("1.bmp").write_bytes(b"another")
    assert not picture.is_there()


def test_once_a_worker_sees_no_file_all_go_by_bytes(named: list[tuple[int, str, str]]) -> None:
    chunks = Chunks(2, 1)
    found = chunks.of(named)
    assert [each.content for each in chunks.with_bytes(next(found))] == [b"x", b"xx"]
    again = next(found)
    assert [each.content for each in again] == [b"xxx", b"xxxx"]
    os.unlink("3.bmp")
    assert again[1].is_there()  # it has its content


def test_a_picture_that_is_gone_is_the_workers_to_tell() -> None:
    (chunk,) = Chunks(2, 1).of([(1, "none.bmp", "none.bmp")])
    assert chunk[0].is_there()
    assert chunk[0].by_bytes().content is None


def test_chunks_by_bytes_have_a_limit(
    named: list[tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("label_image.cluster.chunks._MOST_BYTES", 3)
    chunks = Chunks(100, 1)
    chunks.are_by_bytes = True
    assert [len(chunk) for chunk in chunks.of(named)] == [2, 1, 1, 1]


def test_chunks_grow_to_what_takes_two_seconds_in_whole_batches() -> None:
    pictures = [(number, "a", "a") for number in range(10_000)]
    chunks = Chunks(None, 4)
    found = chunks.of(pictures)
    assert len(next(found)) == 8
    chunks.learn(8, 0.1)
    next(found)
    assert len(next(found)) == 32  # four times as many at most
    chunks.learn(32, 1.9)
    next(found)
    assert len(next(found)) == 32  # 33 are no whole batches
    chunks.learn(32, 60.0)
    next(found)
    assert len(next(found)) == 4


def test_a_size_that_was_asked_for_stays() -> None:
    chunks = Chunks(3, 1)
    chunks.learn(3, 0.001)
    assert len(next(chunks.of([(1, "a", "a")] * 9))) == 3

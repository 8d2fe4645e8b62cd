# SPDX-License-Identifier: Apache-2.0
"""Recognition of arrays that are the same bytes of a file, mapped twice."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.host.tflite.mapped_files import MappedFiles

_PAGE = mmap.PAGESIZE


def mapping(path: Path, begin: int = 0, access: int = mmap.ACCESS_READ) -> NDArray[np.uint8]:
    with open(path, "r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=access, offset=begin), np.uint8)


def written(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(np.arange(3 * _PAGE, dtype=np.uint8).tobytes())
    return path


def test_same_bytes_of_a_file_are_recognised(tmp_path: Path) -> None:
    path = written(tmp_path, "one")
    one, two, later = mapping(path), mapping(path), mapping(path, _PAGE)
    mapped = MappedFiles()
    assert mapped.are_same(one, two)
    assert mapped.are_same(one[10:500], two[10:500])
    assert mapped.are_same(one[_PAGE + 5 : _PAGE + 9], later[5:9])
    assert mapped.are_same(two[_PAGE:].view(np.int32), later)
    assert not mapped.are_same(one[5:9], later[5:9])  # equal bytes elsewhere
    assert not mapped.are_same(one[10:500], two[10:499])
    assert not mapped.are_same(one[::2], two[::2])


def test_anonymous_memory_is_compared_by_address(tmp_path: Path) -> None:
    one = mapping(written(tmp_path, "one"))
    other = mapping(written(tmp_path, "other"))
    changed = mapping(tmp_path / "one", access=mmap.ACCESS_COPY)
    copy = one.copy()
    mapped = MappedFiles()
    others: list[NDArray[Any]] = [other, changed, copy]
    assert not any(mapped.are_same(one, each) for each in others)
    assert mapped.are_same(copy[3:7], copy[3:7])

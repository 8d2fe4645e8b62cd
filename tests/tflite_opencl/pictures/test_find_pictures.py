# SPDX-License-Identifier: Apache-2.0
"""Resolution of names of pictures and folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tflite_opencl.console.errors import RunError
from tflite_opencl.pictures import find_pictures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "b.jpg", "a.PNG", "labels.csv", ".hidden.png", "no_ending", "sub/c.webp", "sub/d.txt",
        "another/e.bmp", "another/deep/f.JPEG",
    ):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_folder_means_its_pictures_in_order(folder: Path) -> None:
    paths = [
        str(Path(path).relative_to(folder)) for path in find_pictures.picture_paths([str(folder)])
    ]
    assert paths == ["a.PNG", "b.jpg", "another/e.bmp", "another/deep/f.JPEG", "sub/c.webp"]


def test_named_file_may_have_any_suffix(folder: Path) -> None:
    names = [str(folder / "no_ending"), str(folder / "sub"), str(folder / "nosuch.jpg")]
    assert list(find_pictures.picture_paths(find_pictures.find_pictures(names))) == [
        names[0], str(folder / "sub/c.webp"), names[2],
    ]  # fmt: skip


def test_no_picture_is_an_error(folder: Path) -> None:
    names = [str(folder / "empty"), str(folder / "none")]
    (folder / "none").mkdir()
    with pytest.raises(RunError) as caught:
        find_pictures.find_pictures(names)
    assert str(caught.value) == "; ".join(
        f"there is no picture in the folder {name}" for name in names
    )


def test_missing_folder_is_an_error_after_others(folder: Path) -> None:
    paths = find_pictures.picture_paths([str(folder)])
    first = next(paths)
    shutil.rmtree(folder / "sub")
    names = [str(Path(path).relative_to(folder)) for path in (first, *paths)]
    assert names == ["a.PNG", "b.jpg", "another/e.bmp", "another/deep/f.JPEG", "sub"]


def test_sample_picture_among_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(folder)
    first, second = find_pictures.find_pictures(["grace_hopper.bmp", "b.jpg"])
    assert first.endswith("grace_hopper.jpg")
    assert second == "b.jpg"

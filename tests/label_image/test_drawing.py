# SPDX-License-Identifier: Apache-2.0
"""Pictures with what was found in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from label_image import drawing
from label_image.drawing import color_of, draw_scene, write_drawing
from label_image.flag_fields import picture_obstacle
from label_image.scene import Scene, mask_of
from tests.support.views import thing

GRAY = np.full((100, 200, 3), 128, np.uint8)


def test_a_box_is_drawn_where_it_is() -> None:
    found = Scene(boxes=[thing(1, 0.5, 50, 50, 150, 90)])
    pixels = np.asarray(draw_scene(GRAY, found, 5))
    assert tuple(pixels[70, 50]) == tuple(pixels[70, 150]) == tuple(pixels[90, 80]) == color_of(1)
    assert (pixels[60:85, 60:140] == 128).all()
    assert (pixels[:, 170:] == 128).all()
    assert (pixels != 128).any(axis=2)[30:49, 50:100].any()  # its name, above
    assert (GRAY == 128).all()


SIDES = [
    (-200, -100, 400, 200),
    (0, 0, 200, 1),
    (198, 99, 200, 100),
    (100, 50, 40, 20),
    (600, 300, 800, 400),
]


@pytest.mark.parametrize("sides", SIDES)
def test_boxes_over_the_edge_are_cut(sides: tuple[float, float, float, float]) -> None:
    image = draw_scene(
        GRAY, Scene(boxes=[thing(0, 0.5, *sides, label="a name that is long " * 9)]), 5
    )
    assert image.size == (200, 100)


def test_no_more_than_asked_for_is_drawn() -> None:
    found = Scene(boxes=[thing(0, 0.9, 20, 20, 60, 90), thing(1, 0.8, 120, 20, 180, 90)])
    assert (np.asarray(draw_scene(GRAY, found, 1))[:, 110:] == 128).all()


def test_classes_are_coloured_but_for_the_background() -> None:
    mask = np.zeros((2, 4), np.int64)
    mask[:, 2:] = 5
    pixels = np.asarray(draw_scene(GRAY, Scene(mask=mask_of(mask, str)), 0))
    assert (pixels[:, :100] == 128).all()
    expected = 128 + (np.array(color_of(5)) - 128) * drawing._OPACITY
    assert np.abs(pixels[:, 100:] - expected).max() <= 1
    scene = Scene(mask=mask_of(mask, {0: "road", 5: "5"}.__getitem__), names=1)
    named = np.asarray(draw_scene(GRAY, scene, 5))
    assert (named[50:, :100] != 128).any()  # class 0 is a thing here
    assert tuple(named[0, 0]) == color_of(0)  # the legend


def test_colours_of_classes_differ() -> None:
    assert len({color_of(index) for index in range(100)}) == 100


@pytest.mark.parametrize("name", ["a.png", "a.JPG", "a.jpeg", "a.bmp", "a.webp", "a.gif"])
def test_formats(name: str, tmp_path: Path) -> None:
    assert picture_obstacle(name) is None
    path = tmp_path / name
    write_drawing(str(path), GRAY, Scene(boxes=[thing(0, 0.5, 0, 0, 200, 100)]), 5)
    with Image.open(path) as image:
        assert image.size == (200, 100)
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a", "a.txt", "png", "a.png.gz"])
def test_other_names_are_refused(name: str) -> None:
    assert "is no format of pictures" in str(picture_obstacle(name))


def test_a_picture_is_never_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"old")

    def full(self: Image.Image, file: object, format: str) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(OSError, match="No space"):
        write_drawing(str(path), GRAY, Scene(), 5)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("a.png", b"old")]

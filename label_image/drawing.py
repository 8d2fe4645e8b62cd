# SPDX-License-Identifier: Apache-2.0
"""Draws results into the picture: boxes with names, poses, masks, or a class."""

from __future__ import annotations

import colorsys
import os

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from label_image.scene import BACKGROUND, Mask, Pose, Scene, Sides
from tflite_opencl.console.files import replaced_file
from tflite_opencl.harness.labels import format_score

DRAWN, MASK = "drawn.jpg", "mask.png"  # in a folder of outputs
_LEAST_SEEN = 0.2  # minimum score of a drawn point
_LIMBS = (
    ("nose", "left eye"), ("nose", "right eye"), ("left eye", "left ear"),
    ("right eye", "right ear"), ("left shoulder", "right shoulder"), ("left hip", "right hip"),
    *(
        (f"{side} {one}", f"{side} {other}")
        for side in ("left", "right")
        for one, other in (
            ("shoulder", "elbow"), ("elbow", "wrist"), ("shoulder", "hip"), ("hip", "knee"),
            ("knee", "ankle"),
        )
    ),
)  # fmt: skip
_OPACITY = 0.55  # of a mask's colours
_GOLDEN = 0.618033988749895  # golden-ratio steps, which keep neighbouring hues apart

Color = tuple[int, int, int]


def write_drawing(path: str, picture: NDArray[np.uint8], scene: Scene, most: int) -> None:
    """Write the picture annotated with at most `most` results.

    Shapes: picture (h, w, 3)
    Raises: OSError, ValueError: it cannot be written.
    """
    kind = Image.registered_extensions()[os.path.splitext(path)[1].lower()]
    image = draw_scene(picture, scene, most)
    with replaced_file(path, "wb") as file:
        image.save(file, format=kind)


def write_scene(folder: str, picture: NDArray[np.uint8], scene: Scene, most: int) -> list[str]:
    """Write the annotated picture and a mask's classes; return the files' names.

    A pixel of the mask's file is its class, at most 256; viewers show it in colour.
    Shapes: picture (h, w, 3)
    Raises: OSError: it cannot be written.
    """
    write_drawing(os.path.join(folder, DRAWN), picture, scene, most)
    if scene.mask is None or scene.mask.classes.max() > 255:
        return [DRAWN]
    mask = Image.fromarray(scene.mask.classes.clip(0).astype(np.uint8)).convert("P")
    colours = [(0, 0, 0), *map(color_of, range(1, 256))]
    mask.putpalette([part for colour in colours for part in colour])
    with replaced_file(os.path.join(folder, MASK), "wb") as file:
        size = picture.shape[1], picture.shape[0]
        mask.resize(size, Image.Resampling.NEAREST).save(file, format="PNG")
    return [DRAWN, MASK]


def draw_scene(picture: NDArray[np.uint8], scene: Scene, most: int) -> Image.Image:
    """Return the annotated picture; the arguments are `write_drawing`'s."""
    image = Image.fromarray(picture)
    if scene.mask is not None:
        return _with_mask(image, scene, scene.mask, most)
    pen = _Pen(image)
    for thing in reversed((scene.boxes or ())[:most]):  # highest score on top
        text = f"{thing.label or thing.index} {format_score(round(thing.score, 2))}"
        pen.box(thing.box, text, color_of(thing.index))
    for number, row in enumerate((scene.rows or ())[:most]):
        corner = (0, number * pen.row_height)
        pen.label(corner, f"{format_score(round(row.score, 2))} {row.label}", color_of(row.index))
    for number, pose in enumerate((scene.poses or ())[:most]):
        pen.pose(pose, color_of(number))
    return image


def color_of(index: int) -> Color:
    """Return a class's colour, the same in each picture."""
    red, green, blue = colorsys.hsv_to_rgb((index * _GOLDEN) % 1, 0.85, 0.95)
    return round(red * 255), round(green * 255), round(blue * 255)


def _with_mask(image: Image.Image, scene: Scene, mask: Mask, most: int) -> Image.Image:
    shape = mask.classes.shape
    # Class 0 is background unless it is named otherwise.
    shown = [
        area
        for area in mask.areas
        if area.index or (scene.has_name(area) and area.label not in BACKGROUND)
    ]
    colours, opacity = np.zeros((*shape, 3), np.uint8), np.zeros(shape, np.uint8)
    for area in shown:
        colours[mask.classes == area.index] = color_of(area.index)
        opacity[mask.classes == area.index] = round(255 * _OPACITY)
    over, alpha = (
        Image.fromarray(values).resize(image.size, Image.Resampling.NEAREST)
        for values in (colours, opacity)
    )
    image.paste(over, (0, 0), alpha)
    pen = _Pen(image)
    for row, area in enumerate(shown[:most]):
        pen.label((0, row * pen.row_height), scene.name_of(area), color_of(area.index))
    return image


class _Pen:
    """Draws on a picture, with line widths and fonts scaled to its size."""

    def __init__(self, image: Image.Image) -> None:
        self._size = image.size
        self._draw = ImageDraw.Draw(image)
        self._line = max(2, min(image.size) // 200)
        self._font = ImageFont.load_default(max(11, min(image.size) // 30))
        self.row_height = self._extent("Ag")[1]

    def box(self, sides: Sides, text: str, color: Color) -> None:
        """Draw a box, clipped to the picture, and its name above, or inside if there is no room."""
        width, height = self._size
        left, right = (min(max(0, round(x)), width - 1) for x in sides[::2])
        top, bottom = (min(max(0, round(y)), height - 1) for y in sides[1::2])
        if right <= left or bottom <= top:
            return
        self._draw.rectangle((left, top, right, bottom), outline=color, width=self._line)
        self.label((left, top - self.row_height if top >= self.row_height else top), text, color)

    def pose(self, pose: Pose, color: Color) -> None:
        """Draw the visible points and the limbs between them."""
        seen = {p.name: (p.x, p.y) for p in pose.points if p.score >= _LEAST_SEEN}
        for one, other in _LIMBS:
            if one in seen and other in seen:
                self._draw.line((*seen[one], *seen[other]), fill=color, width=self._line)
        radius = 2 * self._line
        for x, y in seen.values():
            circle = (x - radius, y - radius, x + radius, y + radius)
            self._draw.ellipse(circle, fill=color, outline="white")

    def label(self, corner: tuple[int, int], text: str, color: Color) -> None:
        """Draw text on a coloured bar, inside the picture if it fits."""
        width, height = self._extent(text)
        left = max(0, min(corner[0], self._size[0] - width))
        self._draw.rectangle((left, corner[1], left + width, corner[1] + height), fill=color)
        is_light = sum(part * weight for part, weight in zip(color, (299, 587, 114), strict=True))
        ink = "black" if is_light > 128_000 else "white"
        self._draw.text((left + self._line, corner[1]), text, fill=ink, font=self._font)

    def _extent(self, text: str) -> tuple[int, int]:
        _, _, right, bottom = self._draw.textbbox((0, 0), text, font=self._font)
        return round(right) + 2 * self._line, round(bottom) + self._line

# SPDX-License-Identifier: Apache-2.0
"""Where and by how much one tensor is wrong: its histogram, its extent, and a map of a channel."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Array = NDArray[Any]
_BINS = 9
_FOLDED = 32  # columns of a map of what has no rows and columns of its own
_LEAST_PIXELS = 256  # a picture's longer side
_SHADES = ".:-=+*#%@"  # the first: equal; plain ASCII, for any terminal


@dataclass(frozen=True, slots=True, eq=False)
class Errors:
    """What the device computed less what it should have.

    Attributes:
        apart: in quanta for integers. histogram: a label and a count for each kind of error.
        extent: for each axis, the first and last wrong index, and how many are wrong.
        plane: of the channel with the most errors, as rows and columns; plane_name: for people.
    """

    apart: NDArray[np.float64]
    histogram: list[tuple[str, int]]
    extent: list[tuple[int, int, int]]
    plane: NDArray[np.float64]
    plane_name: str


def errors(got: Array, expected: Array) -> Errors:
    """Return how a tensor differs from what it should be; shapes are equal.

    What is not a number in one of the two alone counts as infinitely far.
    """
    with np.errstate(all="ignore"):
        apart = got.astype(np.float64) - expected.astype(np.float64)
    both = np.isnan(got.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    apart = np.where((got == expected) | both, 0.0, np.where(np.isnan(apart), np.inf, apart))
    plane, name = _plane(apart)
    return Errors(apart, _histogram(apart), _extent(apart != 0), plane, name)


def _histogram(apart: NDArray[np.float64]) -> list[tuple[str, int]]:
    counts = Counter(apart.ravel().tolist())
    if len(counts) <= 2 * _BINS:
        return [(f"{value:+g}" if value else "0", counts[value]) for value in sorted(counts)]
    rows = [("0", counts[0.0])] if counts[0.0] else []
    finite = apart[np.isfinite(apart) & (apart != 0)]
    if finite.size:
        found, edges = np.histogram(finite, _BINS)
        names = [f"{a:+.4g} .. {b:+.4g}" for a, b in itertools.pairwise(edges)]
        rows += [(name, int(n)) for name, n in zip(names, found, strict=True) if n]
    infinite = int(np.count_nonzero(np.isinf(apart)))
    return rows + ([("infinite", infinite)] if infinite else [])


def _extent(wrong: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    found = []
    for axis in range(wrong.ndim):
        others = tuple(i for i in range(wrong.ndim) if i != axis)
        places = np.flatnonzero(wrong.any(axis=others))
        found.append((int(places[0]), int(places[-1]), len(places)) if len(places) else (0, 0, 0))
    return found


def _plane(apart: NDArray[np.float64]) -> tuple[NDArray[np.float64], str]:
    """Return the rows and columns of the channel and picture with the most wrong elements."""
    if apart.ndim >= 3:
        stack = apart.reshape(-1, *apart.shape[-3:])
        counts = np.count_nonzero(stack, axis=(1, 2))
        first, channel = (int(i) for i in np.unravel_index(counts.argmax(), counts.shape))
        where = f", {first} of the first dimension" if len(stack) > 1 else ""
        return stack[first, :, :, channel], f"channel {channel}{where}"
    flat = apart.ravel()
    width = min(_FOLDED, max(flat.size, 1))
    folded = np.zeros(-(-max(flat.size, 1) // width) * width)
    folded[: flat.size] = flat
    return folded.reshape(-1, width), f"all elements, {width} a line"


def map_text(plane: NDArray[np.float64], columns: int = 64, rows: int = 32) -> str:
    """Return a plane as lines of characters; of those that share one, the greatest counts."""
    height, width = plane.shape
    tall, wide = -(-height // rows), -(-width // columns)
    padded = np.pad(np.abs(plane), ((0, -height % tall), (0, -width % wide)))
    small = padded.reshape(len(padded) // tall, tall, -1, wide).max(axis=(1, 3))
    shades = np.ceil(_shares(small) * (len(_SHADES) - 1)).astype(int)
    return "\n".join("".join(_SHADES[shade] for shade in row) for row in shades)


def map_image(plane: NDArray[np.float64]) -> Image.Image:
    """Return a plane as a picture: white is equal, red too much, blue too little."""
    shares = _shares(np.abs(plane))
    faded = np.where(shares > 0, 200 - 200 * shares, 255).astype(np.uint8)
    full = np.full_like(faded, 255)
    red = np.where(plane >= 0, full, faded)
    blue = np.where(plane <= 0, full, faded)
    picture = Image.fromarray(np.stack([red, faded, blue], axis=-1))
    factor = max(1, -(-_LEAST_PIXELS // max(plane.shape)))
    size = (plane.shape[1] * factor, plane.shape[0] * factor)
    return picture.resize(size, Image.Resampling.NEAREST)


def _shares(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each size's share of the greatest finite one; what is infinite has the whole."""
    finite = sizes[np.isfinite(sizes)]
    greatest = float(finite.max(initial=0.0)) or 1.0
    return np.where(np.isfinite(sizes), sizes, greatest) / greatest

# SPDX-License-Identifier: Apache-2.0
"""The distribution of one tensor's errors: histogram, extent, and a map of a channel."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tflite_opencl.oracle.difference import distances

Array = NDArray[Any]
_BINS = 9
_FOLDED = 32  # columns of a map for tensors without rows and columns
_LEAST_PIXELS = 256  # minimum of a picture's longer side
_SHADES = ".:-=+*#%@"  # the first: equal; plain ASCII, for any terminal


@dataclass(frozen=True, slots=True, eq=False)
class Errors:
    """The errors of a tensor."""

    apart: NDArray[np.float64]  # device minus reference, in quanta for integers

    @property
    def histogram(self) -> list[tuple[str, int]]:
        """Return a label and a count for each kind of error."""
        counts = Counter(self.apart.ravel().tolist())
        if len(counts) <= 2 * _BINS:
            return [(f"{value:+g}" if value else "0", counts[value]) for value in sorted(counts)]
        rows = [("0", counts[0.0])] if counts[0.0] else []
        finite = self.apart[np.isfinite(self.apart) & (self.apart != 0)]
        if finite.size:
            found, edges = np.histogram(finite, _BINS)
            names = [f"{a:+.4g} .. {b:+.4g}" for a, b in itertools.pairwise(edges)]
            rows += [(name, int(n)) for name, n in zip(names, found, strict=True) if n]
        infinite = int(np.count_nonzero(np.isinf(self.apart)))
        return rows + ([("infinite", infinite)] if infinite else [])

    @property
    def extent(self) -> list[tuple[int, int, int]]:
        """Return for each axis the first and last wrong index, and the number of wrong ones."""
        axes = [np.unique(indices) for indices in np.nonzero(np.atleast_1d(self.apart))]
        found = [(int(of[0]), int(of[-1]), len(of)) if len(of) else (0, 0, 0) for of in axes]
        return found[: self.apart.ndim]

    @property
    def plane(self) -> tuple[NDArray[np.float64], str]:
        """Return the plane, rows and columns, of the channel and picture with the most errors.

        And its name, for people.
        """
        if self.apart.ndim >= 3:
            stack = self.apart.reshape(-1, *self.apart.shape[-3:])
            counts = np.count_nonzero(stack, axis=(1, 2))
            first, channel = (int(i) for i in np.unravel_index(counts.argmax(), counts.shape))
            where = f", {first} of the first dimension" if len(stack) > 1 else ""
            return stack[first, :, :, channel], f"channel {channel}{where}"
        width = min(_FOLDED, max(self.apart.size, 1))
        folded = np.pad(self.apart.ravel(), (0, -self.apart.size % width))
        return folded.reshape(-1, width), f"all elements, {width} a line"


def errors(got: Array, expected: Array) -> Errors:
    """Return the errors of a tensor; shapes are equal."""
    apart = distances(got, expected).astype(np.float64)
    return Errors(np.where(got < expected, -apart, apart))


def map_text(plane: NDArray[np.float64], columns: int = 64, rows: int = 32) -> str:
    """Return a plane as lines of characters; each shows the largest of its elements."""
    height, width = plane.shape
    tall, wide = -(-height // rows), -(-width // columns)
    padded = np.pad(np.abs(plane), ((0, -height % tall), (0, -width % wide)))
    small = padded.reshape(len(padded) // tall, tall, -1, wide).max(axis=(1, 3))
    shades = np.ceil(_shares(small) * (len(_SHADES) - 1)).astype(int)
    return "\n".join("".join(_SHADES[shade] for shade in row) for row in shades)


def map_image(plane: NDArray[np.float64]) -> Image.Image:
    """Return a plane as a picture: white is equal, red too large, blue too small."""
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
    """Return each size relative to the largest finite one; infinity counts as 1."""
    finite = sizes[np.isfinite(sizes)]
    greatest = float(finite.max(initial=0.0)) or 1.0
    return np.where(np.isfinite(sizes), sizes, greatest) / greatest

# SPDX-License-Identifier: Apache-2.0
"""What the classes of predictors.py return of a picture; a pose is scene.py's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Sides(NamedTuple):
    """A box in pixels of the picture, and inside it."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Class:
    """A class of a picture."""

    label: str  # its number, where it has no name
    score: float
    index: int


@dataclass(frozen=True, slots=True)
class Found:
    """A thing in a picture."""

    label: str  # its class; a number, where that has no name
    score: float
    box: Sides
    index: int  # of its class, as the labels count


@dataclass(frozen=True, slots=True)
class Area:
    """A class of a mask."""

    label: str
    part: float  # of all pixels
    index: int


@dataclass(frozen=True, slots=True)
class Mask:
    """A picture's classes, pixel by pixel."""

    classes: NDArray[np.int64]  # (h, w), of the picture; -1: none
    areas: Sequence[Area]  # the largest first

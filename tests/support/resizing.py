# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR: nodes from parameters, and strategies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.model import chain_model, const, op, t


@dataclass(frozen=True, slots=True, kw_only=True)
class Resizing:
    """The parameters of a resize."""

    op: str = "RESIZE_BILINEAR"
    shape: tuple[int, int, int, int] = (1, 3, 5, 3)
    size: tuple[int, int] = (7, 11)  # h, w of the output
    centers: str = ""  # "align_corners", "half_pixel_centers" or neither
    dtype: str = "uint8"

    def __str__(self) -> str:
        parts = ["in" + "x".join(map(str, self.shape)), "to{}x{}".format(*self.size), self.centers]
        return "-".join(part for part in (*parts, self.dtype) if part)

    def node(self) -> Node:
        is_quantised = self.dtype in ("uint8", "int8", "int16")
        zero = 3 if self.dtype in ("uint8", "int8") else 0
        scale = 0.5 if is_quantised else None
        return op(
            self.op,
            [t(self.shape, self.dtype, scale, zero), const(np.array(self.size, np.int32))],
            [t((self.shape[0], *self.size, self.shape[3]), self.dtype, scale, zero)],
            {
                "align_corners": self.centers == "align_corners",
                "half_pixel_centers": self.centers == "half_pixel_centers",
            },
            version=3,
        )

    def model(self) -> bytes:
        return chain_model([self.node()])


CENTERS = ("", "align_corners", "half_pixel_centers")
# Input shapes and output sizes: equal, multiples, fractions, one row or pixel.
SIZES = [
    ((1, 3, 5, 3), (7, 11)),
    ((2, 4, 3, 5), (8, 6)),
    ((1, 5, 3, 16), (65, 33)),
    ((1, 1, 1, 21), (3, 2)),
    ((3, 13, 17, 4), (5, 3)),
    ((1, 7, 5, 1), (1, 1)),
    ((1, 6, 6, 37), (6, 6)),
]


@st.composite
def resizings(draw: st.DrawFn, op: str, dtypes: tuple[str, ...]) -> Resizing:
    """Draw a resize; half of the output sides are multiples of the input's."""
    sides = st.integers(1, 13)

    def size(side: int) -> int:
        return draw(st.integers(1, 30) | st.sampled_from([side, 2 * side, 4 * side, 8 * side + 1]))

    height, width = draw(sides), draw(sides)
    return Resizing(
        op=op,
        shape=(draw(st.integers(1, 3)), height, width, draw(st.integers(1, 40))),
        size=(size(height), size(width)),
        centers=draw(st.sampled_from(CENTERS)),
        dtype=draw(st.sampled_from(dtypes)),
    )

# SPDX-License-Identifier: Apache-2.0
"""The two resizing ops, drawn."""

from __future__ import annotations

from hypothesis import strategies as st

from delegate.inspect import Graph
from tflite_opencl.conformance.cases.resizes import resize


@st.composite
def resizings(draw: st.DrawFn, op: str, dtypes: tuple[str, ...]) -> Graph:
    """Draw one; a side is as often a multiple of the input's as anything else."""
    sides = st.integers(1, 13)

    def size(side: int) -> int:
        return draw(st.integers(1, 30) | st.sampled_from([side, 2 * side, 4 * side, 8 * side + 1]))

    height, width = draw(sides), draw(sides)
    shape = (draw(st.integers(1, 3)), height, width, draw(st.integers(1, 40)))
    centers = draw(st.sampled_from([(), ("align_corners",), ("half_pixel_centers",)]))
    dtype = draw(st.sampled_from(dtypes))
    return resize(op, shape, (size(height), size(width)), *centers).graph(dtype)

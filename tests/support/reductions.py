# SPDX-License-Identifier: Apache-2.0
"""Reductions over axes, drawn."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Graph
from tests.support.cases import scales, zero_points
from tflite_opencl.conformance.cases.reductions import reduction


@st.composite
def reductions(draw: st.DrawFn, op: str, dtypes: tuple[str, ...]) -> Graph:
    """Draw one of up to five dimensions over at least one axis."""
    dtype = draw(st.sampled_from(dtypes))
    shape = tuple(draw(st.lists(st.integers(1, 9) | st.integers(15, 18), min_size=1, max_size=5)))
    while np.prod(shape) > 60000:
        shape = shape[1:]
    rank = len(shape)
    axes = tuple(draw(st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=rank)))
    quantised = dtype in ("uint8", "int8", "int16")
    zeros = zero_points(dtype) if dtype in ("uint8", "int8") else st.just(0)
    one, other = draw(st.tuples(scales(), zeros)), draw(st.tuples(scales(), zeros))
    if draw(st.booleans()) or op not in ("MEAN", "SUM"):  # which alone rescale
        other = one
    numbers = zip(one, other, strict=True) if quantised else ((), ())
    return reduction(op, dtype, shape, axes, draw(st.booleans()), *numbers)

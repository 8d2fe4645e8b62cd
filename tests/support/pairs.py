# SPDX-License-Identifier: Apache-2.0
"""Ops on two tensors element by element: shapes that are broadcast, and drawn models."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Graph
from tests.support.cases import FUSED, Strategy, scales, zero_points
from tests.support.compare import inputs_for
from tests.support.suite_cases import assert_graph_or_refused
from tflite_opencl.conformance.cases.binary import pair

Shape = tuple[int, ...]
QUANT = ("uint8", "int8", "int16")
COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
# More dimensions crash some ops of tflite-runtime.
MOST_DIMENSIONS = 4 if installed_rules().runtime == "tflite-runtime" else 5
# Pairs of shapes that broadcast.
BROADCASTS: dict[str, tuple[Shape, Shape]] = {
    "equal": ((1, 7, 5, 3), (1, 7, 5, 3)),
    "one": ((1,), (1,)),
    "scalar": ((1, 5, 4, 33), ()),
    "channels": ((2, 5, 4, 33), (1, 1, 1, 33)),
    "squeeze": ((1, 1, 1, 17), (1, 5, 4, 17)),
    "pixels": ((1, 5, 4, 7), (1, 5, 4, 1)),
    "both": ((31, 1), (1, 37)),
    "ranks": ((6,), (2, 3, 6)),
    "many": ((2, 1, 3, 1, 20), (1, 4, 1, 5, 20))
    if MOST_DIMENSIONS == 5
    else ((1, 3, 1, 20), (4, 1, 5, 20)),
}


def every_pair(dtype: str) -> list[NDArray[Any]]:
    """Return two arrays of 256 x 256 that have each pair of values of an 8-bit type once."""
    limits = np.iinfo(dtype)
    values = np.arange(limits.min, limits.max + 1).astype(dtype)
    return [np.repeat(values, 256).reshape(256, 256), np.tile(values, (256, 1))]


@st.composite
def broadcast_shapes(draw: st.DrawFn) -> tuple[Shape, Shape]:
    """Draw two shapes that broadcast, of up to MOST_DIMENSIONS dimensions."""
    full = draw(st.lists(st.integers(1, 6), max_size=MOST_DIMENSIONS))
    if full and draw(st.booleans()):
        full[-1] = draw(st.integers(1, 40))

    def lacking() -> Shape:
        shape = [size if draw(st.booleans()) else 1 for size in full]
        return tuple(shape[draw(st.integers(0, len(shape))) :])

    if draw(st.booleans()):
        return tuple(full), lacking() if draw(st.booleans()) else tuple(full)
    return lacking(), lacking()


@st.composite
def pairs(
    draw: st.DrawFn, ops: tuple[str, ...], types: tuple[str, ...], divisors: bool = False
) -> Graph:
    """Draw a model of one of these ops and types; `divisors`: by constants without zeros."""
    op, dtype = draw(st.sampled_from(ops)), draw(st.sampled_from(types))
    zeros = zero_points(dtype) if dtype in ("uint8", "int8") else st.just(0)
    left, right, result = draw(zeros), draw(zeros), draw(zeros)
    values: tuple[int, ...] = ()
    if divisors:
        drawn = draw(st.lists(st.integers(-32768, 32767), min_size=1, max_size=9))
        zero = right if op == "DIV" else 0
        wrapped = np.array(drawn, np.int64).astype(dtype)
        wrapped[wrapped == zero] = 1 if zero != 1 else 2
        values = tuple(wrapped.tolist())
    return pair(
        op,
        dtype,
        draw(broadcast_shapes()),
        constant="right" if divisors else draw(st.sampled_from(["", "left", "right"])),
        fused=draw(st.sampled_from(FUSED)),
        scales=(draw(scales(-8, -0.1)), draw(scales(-8, -0.1)), draw(scales(-4, 4))),
        zeros=(left, right, result),
        values=values,
    )


def assert_pair_or_refused(graph: Graph, device: DeviceInfo, strategy: Strategy, seed: int) -> None:
    """Assert that a drawn model gives the oracle's results, of inputs of the whole range."""
    assert_graph_or_refused(graph, device, strategy, seed, inputs_for(graph, seed))

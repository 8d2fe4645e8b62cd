# SPDX-License-Identifier: Apache-2.0
"""Input sets of a model, and the comparison of outputs; no interpreter is made here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Tensor
from tflite_opencl.common.build import Array, seeded

Arrays = list[Array]

SETS = ("random", "ends", "zero points")


def input_sets(graph: Graph, seed: int = 0) -> list[Arrays]:
    """Return random inputs, inputs at the ends of their range, and all at their zero points."""
    rng = seeded(seed, [tensor.shape for tensor in graph.inputs])
    return [[_values(rng, tensor, which) for tensor in graph.inputs] for which in SETS]


def _values(rng: np.random.Generator, tensor: Tensor, which: str) -> Array:
    shape, dtype = tensor.shape, tensor.dtype
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype in ("float32", "float16", "float64"):
        if tensor.ranges is not None:
            low, high = (float(limit) for limit in tensor.ranges)
            if which == "ends":
                return rng.choice([low, high], shape).astype(dtype)
            middle = np.full(shape, (low + high) / 2)
            values = rng.uniform(low, high, shape) if which == "random" else middle
            return np.asarray(values, dtype)
        if which == "zero points":
            return np.zeros(shape, dtype)
        values = np.asarray(rng.standard_normal(shape))
        if which == "ends":
            values = values * 10 ** rng.uniform(-3, 3 if dtype == "float32" else 2, shape)
        return np.asarray(values, dtype)
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    if tensor.ranges is not None:
        low, high = (int(limit) for limit in tensor.ranges)
    if which == "random":
        drawn = rng.integers(low, high, shape, endpoint=True)
    elif which == "ends":
        drawn = rng.choice([low, high], shape)
    else:
        zero = tensor.quantization.zero_point[0] if tensor.quantization else 0
        drawn = np.full(shape, min(max(zero, low), high))
    return np.asarray(drawn, dtype)


@dataclass(frozen=True, slots=True)
class Difference:
    """How an output differs from the oracle's."""

    where: str  # input set and output
    count: int  # elements
    size: int  # of the output
    first: tuple[int, ...]
    got: float
    expected: float
    greatest: float  # quanta, or units in the last place of the allowed sum for floats
    is_beyond: bool  # more than is allowed
    rows: tuple[int, int] = (0, 0)  # rows of the first dimension that differ, and all of them

    def __str__(self) -> str:
        unit = "quanta" if float(self.greatest).is_integer() else "times the bound"
        text = (
            f"{self.where}: {self.count} of {self.size} elements differ, by up to "
            f"{self.greatest:g} {unit}; first at {list(self.first)}: {self.got:g} instead of "
            f"{self.expected:g}"
        )
        wrong, rows = self.rows
        if rows > 1 and wrong < rows:
            text += f"; in {wrong} of {rows} rows of the first dimension"
        return text


def compare(
    got: Array, expected: Array, bound: NDArray[np.float64] | None, tolerance: int, where: str
) -> Difference | None:
    """Return how an output differs, None if it does not.

    Floats that differ within `bound` do not differ; an infinite bound allows anything.
    `tolerance`: quanta that an integer may be off.

    Raises: ValueError: type or shape is another one.
    """
    if got.dtype != expected.dtype or got.shape != expected.shape:
        raise ValueError(
            f"{where} is {got.dtype} {list(got.shape)} instead of "
            f"{expected.dtype} {list(expected.shape)}"
        )
    with np.errstate(all="ignore"):
        if got.dtype.kind == "f":
            distance = np.abs(got.astype(np.float64) - expected.astype(np.float64))
            is_same = (got == expected) | (np.isnan(got) & np.isnan(expected))
            allowed = np.broadcast_to(0.0 if bound is None else bound, got.shape)
            wrong = ~is_same & ~(distance <= allowed) & ~np.isposinf(allowed)
            ratio = np.where(wrong, distance / np.maximum(allowed, 1e-300), 0)
            greatest = float(np.nanmax(ratio, initial=0))
            greatest = math.inf if not math.isfinite(greatest) else greatest + 1e-9
            is_beyond = bool(wrong.any())
        elif got.dtype == np.bool_ or got.dtype.kind in "iu":
            wrong = got != expected
            steps = np.where(wrong, np.abs(got.astype(np.float64) - expected.astype(np.float64)), 0)
            greatest = float(steps.max(initial=0))
            is_beyond = greatest > tolerance or (got.dtype == np.bool_ and bool(wrong.any()))
        else:
            wrong = got != expected
            greatest, is_beyond = 1.0, bool(wrong.any())
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    rows = (0, 0)
    if got.ndim:
        axes = tuple(range(1, got.ndim))
        rows = int(np.count_nonzero(wrong.any(axis=axes))), got.shape[0]
    return Difference(
        where, count, got.size, first, float(got[first]), float(expected[first]), greatest,
        is_beyond, rows,
    )  # fmt: skip


def worst(differences: Sequence[Difference]) -> Difference | None:
    """Return the difference to report."""
    return max(differences, key=lambda one: (one.is_beyond, one.greatest), default=None)

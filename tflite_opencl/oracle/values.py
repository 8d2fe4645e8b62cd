# SPDX-License-Identifier: Apache-2.0
"""Input sets of a model, and the comparison of outputs; creates no interpreters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import BITS, SAME_ELEMENTS, Graph, Node, Tensor
from tflite_opencl.models.build import Array, seeded
from tflite_opencl.oracle.difference import distances

Arrays = list[Array]

SETS = ("random", "ends", "zero points")


def input_sets(graph: Graph, seed: int = 0) -> list[Arrays]:
    """Return random inputs, inputs at the limits of their range, and all at their zero points.

    Row indices, such as token ids, are within the table's bounds.
    """
    rng = seeded(seed, [tensor.shape for tensor in graph.inputs])
    inputs = _with_rows(graph)
    return [[_values(rng, tensor, which) for tensor in inputs] for which in SETS]


def _with_rows(graph: Graph) -> list[Tensor]:
    """Return the inputs, with row indices limited to their table."""
    begun = {tensor: tensor for tensor in graph.inputs}  # tensors with an input's values, unchanged
    rows: dict[Tensor, int] = {}
    makers = {tensor: node for node in graph.nodes for tensor in node.outputs}
    below: dict[Tensor, int] = {}  # inputs that may index from the end -> number of rows
    for node in graph.nodes:
        if count := _from_the_end(node, makers):
            (x,) = node.inputs[2:]
            if x in begun:
                begun[node.outputs[0]] = begun[x]
                below[begun[x]] = count
        elif node.op in SAME_ELEMENTS and node.inputs and node.inputs[0] in begun:
            begun[node.outputs[0]] = begun[node.inputs[0]]
        elif node.op in _LOOKS_UP and len(node.inputs) > 1:
            at, of = (node.inputs[place] for place in _LOOKS_UP[node.op])
            if at in begun and of is not None:
                # Skip missing axes: TFLite rejects such a node.
                for count in of.shape[int(node.options.get("axis", 0)) :][:1]:
                    rows[begun[at]] = min(count, rows.get(begun[at], count))
    return [
        replace(
            tensor,
            ranges=(
                np.int64(-rows[tensor] if below.get(tensor) == rows[tensor] else 0),
                np.int64(max(rows[tensor] - 1, 0)),
            ),
        )
        if tensor in rows and tensor.ranges is None
        else tensor
        for tensor in graph.inputs
    ]


def _from_the_end(node: Node, makers: Mapping[Tensor, Node]) -> int:
    """Return n of x < 0 ? x + n : x, the converters' form of an index into n rows; 0: no match."""
    if node.op not in ("SELECT", "SELECT_V2"):
        return 0
    condition, moved, x = node.inputs
    less, sum_ = (makers.get(each) if each else None for each in (condition, moved))
    if less is None or less.op != "LESS" or sum_ is None or sum_.op != "ADD":
        return 0
    (one, zero), (other, count) = less.inputs, sum_.inputs
    if one != x or other != x or zero is None or zero.data is None or zero.data.any():
        return 0
    if count is None or count.data is None or count.data.size != 1:
        return 0
    return int(count.data.item())


_LOOKS_UP = {"EMBEDDING_LOOKUP": (0, 1), "GATHER": (1, 0)}  # inputs: row indices, table


def _values(rng: np.random.Generator, tensor: Tensor, which: str) -> Array:
    shape, dtype = tensor.shape, tensor.dtype
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype == "complex64":
        parts = replace(tensor, shape=(*shape, 2), dtype="float32")
        return _values(rng, parts, which).view(dtype).reshape(shape)
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
    if dtype in BITS:
        high, dtype = 2 ** (BITS[dtype] - 1) - 1, "int8"  # the Interpreter's type for it
        low = -1 - high
    else:
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
class OutputMismatch:
    """An output's difference from the oracle's."""

    where: str  # input set and output
    count: int  # elements
    size: int  # of the output
    first: tuple[int, ...]
    got: float
    expected: float
    most: float  # the largest difference; of integers in quanta
    times: float | None  # ratio to the error bound of floats; None: not floats
    is_beyond: bool  # exceeds the bound
    rows: tuple[int, int] = (0, 0)  # differing rows of the first dimension, and all rows

    @property
    def greatest(self) -> float:
        """The largest difference relative to the bound."""
        return self.most if self.times is None else self.times

    def __str__(self) -> str:
        unit = "quanta" if self.times is None else "times the bound"
        text = self._text(f"{self.greatest:g} {unit}")
        wrong, rows = self.rows
        return f"{text}; in {wrong} of {rows} rows of the first dimension" if wrong < rows else text

    def plain(self) -> str:
        """Return the same with the absolute difference."""
        return self._text(f"{self.most:g}{' quanta' if self.times is None else ''}")

    def _text(self, most: str) -> str:
        return (
            f"{self.where}: {self.count} of {self.size} elements differ, by up to {most}; first "
            f"at {list(self.first)}: {self.got:g} instead of {self.expected:g}"
        )


def compare(
    got: Array, expected: Array, bound: NDArray[np.float64] | None, tolerance: int, where: str
) -> OutputMismatch | None:
    """Return how an output differs, or None if it does not.

    Floats within `bound` count as equal; an infinite bound accepts anything.
    `tolerance`: allowed difference of integers in quanta.

    Raises: ValueError: another type or shape.
    """
    if got.dtype != expected.dtype or got.shape != expected.shape:
        raise ValueError(
            f"{where} is {got.dtype} {list(got.shape)} instead of "
            f"{expected.dtype} {list(expected.shape)}"
        )
    if got.dtype == np.complex64:  # real and imaginary parts separately
        got, expected = (each[..., None].view(np.float32) for each in (got, expected))
        bound = bound if bound is None else np.broadcast_to(bound, got.shape[:-1])[..., None]
    is_number, is_float = got.dtype.kind in "biuf", got.dtype.kind == "f"
    apart = (distances(got, expected) if is_number else got != expected).astype(np.float64)
    allowed = np.zeros(got.shape)
    if is_float and bound is not None:
        allowed = np.broadcast_to(bound, got.shape)
    wrong = ~(apart <= allowed)
    if not (count := int(np.count_nonzero(wrong))):
        return None
    most, times = float(apart[wrong].max()), None
    if is_float:
        with np.errstate(all="ignore"):
            times = float((apart / np.maximum(allowed, 1e-300))[wrong].max())
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    axes = tuple(range(1, got.ndim))
    rows = (int(np.count_nonzero(wrong.any(axis=axes))), got.shape[0]) if got.ndim else (0, 0)
    is_beyond = got.dtype.kind not in "iu" or most > tolerance
    return OutputMismatch(
        where, count, got.size, first, float(got[first]), float(expected[first]), most, times,
        is_beyond, rows,
    )  # fmt: skip


def worst(differences: Iterable[OutputMismatch]) -> OutputMismatch | None:
    """Return the difference to report."""
    return max(differences, key=lambda one: (one.is_beyond, one.greatest), default=None)

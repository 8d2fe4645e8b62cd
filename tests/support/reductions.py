# SPDX-License-Identifier: Apache-2.0
"""Reductions over axes: nodes from parameters, hypothesis strategies, bounds of floats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from delegate import DeviceInfo
from delegate.inspect import Node, sum_bound
from tests.support.cases import Way, assert_exact_or_refused, assert_exact_way, scales, zero_points
from tests.support.compare import Arrays, Bounds
from tests.support.floats import assert_float_or_refused, assert_float_ways
from tests.support.model import chain_model, const, op, t

QUANT = ("uint8", "int8", "int16")


def arg(
    shape: tuple[int, ...],
    axis: int,
    dtype: str = "uint8",
    name: str = "ARG_MAX",
    result: str = "int32",
) -> Node:
    """Return an ARG_MAX or ARG_MIN."""
    along = axis % len(shape)
    scale = 0.5 if dtype in ("uint8", "int8") else None
    return op(
        name,
        [t(shape, dtype, scale, 3), const(np.array(axis, np.int32))],
        [t(shape[:along] + shape[along + 1 :], result)],
        {"output_type": result},
        version=2,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reducing:
    """The parameters of a reduction."""

    op: str = "MEAN"
    shape: tuple[int, ...] = (1, 7, 5, 3)
    axes: tuple[int, ...] = (1, 2)
    keeps_dims: bool = False
    scales: tuple[float, float] = (0.1, 0.07)
    zeros: tuple[int, int] | None = None
    dtype: str = "int8"

    def __str__(self) -> str:
        parts = {
            self.op.lower(): True,
            "in" + "x".join(map(str, self.shape)): True,
            "axes" + "_".join(map(str, self.axes)): True,
            "keep_dims": self.keeps_dims,
            "scales{:g}_{:g}".format(*self.scales): self.scales != (0.1, 0.07),
            "zeros{}_{}".format(*self.zeros or "--"): self.zeros is not None,
            self.dtype: True,
        }
        return "-".join(part for part, is_shown in parts.items() if is_shown)

    def node(self) -> Node:
        over = {axis % len(self.shape) for axis in self.axes}
        shape = tuple(
            1 if axis in over else size
            for axis, size in enumerate(self.shape)
            if self.keeps_dims or axis not in over
        )
        scaled = self.scales if self.dtype in QUANT else (None, None)
        if self.op not in ("MEAN", "SUM"):
            scaled = (scaled[0], scaled[0])
        zeros = self.zeros or {"uint8": (131, 120), "int8": (3, -8)}.get(self.dtype, (0, 0))
        if self.op not in ("MEAN", "SUM"):
            zeros = (zeros[0], zeros[0])
        return op(
            self.op,
            [t(self.shape, self.dtype, scaled[0], zeros[0]), const(np.array(self.axes, np.int32))],
            [t(shape, self.dtype, scaled[1], zeros[1])],
            {"keep_dims": self.keeps_dims},
            version=1 if self.dtype == "bool" else 2,
        )

    def model(self) -> bytes:
        return chain_model([self.node()])

    @property
    def is_exact(self) -> bool:
        """False for float sums, which depend on their order."""
        return self.dtype != "float32" or self.op not in ("MEAN", "SUM")

    def bounds(self, inputs: Arrays) -> Bounds:
        """Return how far float results may lie from the reference's."""
        axes = tuple({axis % len(self.shape) for axis in self.axes})
        values = np.abs(inputs[0].astype(np.float64))
        terms = int(np.prod([self.shape[axis] for axis in axes]))
        sums = np.asarray(values.sum(axes, keepdims=self.keeps_dims))
        return [sum_bound(sums / (terms if self.op == "MEAN" else 1), terms)]


def options(case: Reducing, seed: int) -> dict[str, Any]:
    """Return the options of an exact comparison.

    The reference kernel of signed sums is wrong. Float products are of values near 1, because
    devices may flush denormal floats.
    """
    if case.op == "SUM" and case.dtype in ("int8", "int16"):
        return {"cpu_kernels": "builtin"}
    if case.op == "REDUCE_PROD" and case.dtype == "float32":
        values = np.random.default_rng(seed).uniform(0.9, 1.1, case.shape)
        return {"inputs": [[values.astype(np.float32)], [(-values).astype(np.float32)]]}
    return {}


def assert_reduces(case: Reducing, device: DeviceInfo, way: Way, seed: int = 0) -> set[str]:
    """Assert TFLite's results, exact or within bounds; return the alternatives' names."""
    if case.is_exact:
        return assert_exact_way(case.model(), device, way, seed, **options(case, seed))
    return set(assert_float_ways(case.node(), device, way, case.bounds))


def assert_reduces_or_refused(case: Reducing, device: DeviceInfo, way: Way, seed: int) -> None:
    """Assert the same for a drawn case; reject one that TFLite itself does not run."""
    if case.is_exact:
        assert_exact_or_refused(case.model(), device, way, seed, **options(case, seed))
    else:
        assert_float_or_refused(case.node(), device, way, case.bounds)


# Shapes and axes: innermost axis reduced or not, adjacent or alternating axes, all axes.
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 5, 4, 17), (1, 2)),
    ((3, 37), (-1,)),
    ((40,), (0,)),
    ((2, 3, 4, 5, 6), (0, 2, 4)),
    ((2, 3, 4, 1, 5, 6), (1, -2)),
    ((3, 4, 5, 3), (3, 1, 0, 2)),
    ((2, 3, 4, 19), (0, -1)),
    ((1, 33, 29, 16), (2, 1, -3)),
    ((3, 2, 3, 9, 2), (3,)),
    ((1, 4, 1, 8), (0, 2)),
    ((5,), (-1,)),
]


@st.composite
def reductions(draw: st.DrawFn, ops: tuple[str, ...], dtypes: tuple[str, ...]) -> Reducing:
    """Draw a reduction of up to five dimensions over at least one axis."""
    dtype = draw(st.sampled_from(dtypes))
    shape = tuple(draw(st.lists(st.integers(1, 9) | st.integers(15, 18), min_size=1, max_size=5)))
    while np.prod(shape) > 60000:
        shape = shape[1:]
    rank = len(shape)
    axes = draw(st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=rank))
    zeros = zero_points(dtype) if dtype in ("uint8", "int8") else st.just(0)
    one, other = draw(st.tuples(scales(), zeros)), draw(st.tuples(scales(), zeros))
    other = draw(st.sampled_from([one, other]))
    return Reducing(
        op=draw(st.sampled_from(ops)),
        shape=shape,
        axes=tuple(axes),
        keeps_dims=draw(st.booleans()),
        scales=(one[0], other[0]),
        zeros=(one[1], other[1]),
        dtype=dtype,
    )

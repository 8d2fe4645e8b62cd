# SPDX-License-Identifier: Apache-2.0
"""Elementwise binary ops: nodes from parameters, and hypothesis strategies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate.host.tflite.library import installed_rules
from delegate.inspect import Node, Tensor
from tests.support.cases import FUSED, scales, zero_points
from tests.support.model import const, op, t

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The parameters of a binary node."""

    op: str
    dtype: str = "int8"
    shapes: tuple[Shape, Shape] = ((1, 7, 5, 3), (1, 7, 5, 3))
    scales: tuple[float, float, float] = (0.1, 0.07, 0.13)  # left, right, output
    zeros: tuple[int, int, int] | None = None
    fused: str = "NONE"
    constant: str = ""  # "left", "right" or none
    values: tuple[int, ...] = ()  # of the constant, repeated; (): random values
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        left, right = ("x".join(map(str, shape)) or "scalar" for shape in self.shapes)
        parts = {
            self.op.lower(): True,
            f"{left}_{right}" if left != right else left: True,
            "scales{:g}_{:g}_{:g}".format(*self.scales): self.scales != (0.1, 0.07, 0.13),
            "zeros{}_{}_{}".format(*self.zeros or "---"): self.zeros is not None,
            self.fused.lower(): self.fused != "NONE",
            f"{self.constant}_constant": bool(self.constant),
            **{f"{name}{value}": True for name, value in self.options.items()},
            self.dtype: True,
        }
        return "-".join(part for part, is_shown in parts.items() if is_shown)

    @property
    def result_dtype(self) -> str:
        return "bool" if self.op in COMPARISONS else self.dtype

    def node(self) -> Node:
        """Return the node; its constants have a fixed seed."""
        left, right = (
            self._tensor(self.dtype, shape, i, self.constant == ("left", "right")[i])
            for i, shape in enumerate(self.shapes)
        )
        result = self._tensor(self.result_dtype, np.broadcast_shapes(*self.shapes), 2, False)
        options = dict(self.options)
        if self.op in ("ADD", "SUB", "MUL", "DIV"):
            options["fused_activation_function"] = self.fused
        return op(
            self.op,
            [left, right],
            [result],
            options,
            version=1 if self.op in ("POW", "ATAN2") else 2,
        )

    def _tensor(self, dtype: str, shape: Shape, which: int, is_constant: bool) -> Tensor:
        numbers: tuple[Any, ...] = ()
        if dtype in QUANT:
            usual = {"uint8": (131, 120, 125), "int8": (3, -8, -3), "int16": (0, 0, 0)}[dtype]
            numbers = (self.scales[which], (self.zeros or usual)[which])
        if is_constant:
            return const(self._values(dtype, shape), *numbers)
        return t(shape, dtype, *numbers)

    def _values(self, dtype: str, shape: Shape) -> NDArray[Any]:
        if self.values:
            return np.resize(np.array(self.values, dtype), shape)
        rng = np.random.default_rng(1)
        if dtype == "float32":
            return rng.standard_normal(shape).astype(np.float32)
        limits = np.iinfo(dtype if dtype != "bool" else np.uint8)
        values = rng.integers(limits.min, limits.max, shape, endpoint=True)
        return np.asarray(values % 2 if dtype == "bool" else values).astype(dtype)


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
def cases(draw: st.DrawFn, ops: tuple[str, ...], types: tuple[str, ...]) -> Case:
    """Draw a case of one of these ops and types."""
    dtype = draw(st.sampled_from(types))
    zeros = zero_points(dtype) if dtype in ("uint8", "int8") else st.just(0)
    return Case(
        op=draw(st.sampled_from(ops)),
        dtype=dtype,
        shapes=draw(broadcast_shapes()),
        scales=(draw(scales(-8, -0.1)), draw(scales(-8, -0.1)), draw(scales(-4, 4))),
        zeros=(draw(zeros), draw(zeros), draw(zeros)),
        fused=draw(st.sampled_from(FUSED)),
        constant=draw(st.sampled_from(["", "left", "right"])),
        options={},
    )

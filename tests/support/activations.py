# SPDX-License-Identifier: Apache-2.0
"""Activations: nodes from their parameters, every input value, and drawn cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo
from delegate.inspect import Node
from tests.support.cases import (
    RUN,
    Way,
    assert_exact_or_refused,
    assert_exact_way,
    changed,
    forced,
    quantization,
    require_isa,
    scales,
    way_on,
    zero_points,
)
from tests.support.compare import Arrays, assert_within
from tests.support.model import chain_model, op, t
from tests.support.refusals import sparse, unquantised

SHAPES = [(), (1,), (3,), (63,), (64,), (65,), (2, 3, 5, 7), (4097,)]

# From the input, the sum of the absolute values of the terms that the function adds.
Magnitude = Callable[[NDArray[np.float64]], NDArray[np.float64]]
# The one quantisation of an op's output that TFLite takes, by type.
Fixed = Mapping[str, tuple[float, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """One activation by its parameters; floats have neither scales nor zero points."""

    op: str
    dtype: str = "uint8"
    shape: tuple[int, ...] = (256,)
    scales: tuple[float, float] = (0.1, 0.07)  # input, output
    zeros: tuple[int, int] = (0, 0)
    options: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1

    def __str__(self) -> str:
        parts = [self.op.lower(), "in" + ("x".join(map(str, self.shape)) or "scalar"), self.dtype]
        if self.dtype != "float32":
            parts.append("scales{:g}_{:g}-zeros{}_{}".format(*self.scales, *self.zeros))
        parts += [f"{name}_{value}" for name, value in self.options.items()]
        return "-".join(parts)

    def node(self) -> Node:
        source, result = (
            t(
                self.shape,
                self.dtype,
                None if self.dtype == "float32" else scale,
                0 if self.dtype == "int16" else zero,
            )
            for scale, zero in zip(self.scales, self.zeros, strict=True)
        )
        return op(self.op, [source], [result], self.options, self.version)

    def model(self) -> bytes:
        return chain_model([self.node()])


def every_value(dtype: str) -> NDArray[Any]:
    """Return all values of an integer type."""
    limits = np.iinfo(dtype)
    return np.arange(limits.min, limits.max + 1).astype(dtype)


def floats_of_all_sizes() -> NDArray[np.float32]:
    """Return floats dense where functions bend, of every magnitude, and those without a number."""
    rng = np.random.default_rng(0)
    sizes = 10 ** rng.uniform(-36, 6, 3000)
    special = [0.0, -0.0, 1e-40, -1e-40, 1e38, -1e38, 3e19, -3e19, np.inf, -np.inf, np.nan]
    parts = [np.linspace(-20, 20, 8001), np.linspace(-120, 100, 4001), sizes, -sizes, special]
    return np.concatenate(parts).astype(np.float32)


def assert_every_value(case: Activation, device: DeviceInfo, way: Way) -> set[str]:
    """Assert that all values of the case's type have TFLite's answers; return the alternatives."""
    values = every_value(case.dtype)
    case = replace(case, shape=values.shape)
    return assert_exact_way(case.model(), device, way, inputs=[[values]])


def assert_float_function(
    case: Activation,
    device: DeviceInfo,
    way: Way,
    magnitude: Magnitude,
    terms: int = 1,
    inputs: Sequence[Arrays] | None = None,
) -> None:
    """Assert that floats are within 2 places of the terms' sum, times the root of their number.

    `magnitude`: the sum of the absolute values of the terms, by the input. The least normal float
    is allowed for, as a device may take lower ones for zero.
    """

    def bounds(given: Arrays) -> list[NDArray[np.float64]]:
        with np.errstate(all="ignore"):
            sizes = magnitude(given[0].astype(np.float64)).astype(np.float32)
            places = np.spacing(np.abs(sizes)).astype(np.float64)
        places = np.where(np.isfinite(places), places, 0)
        return [2 * np.sqrt(terms) * places + float(np.finfo(np.float32).tiny)]

    require_isa(way, device)
    with forced(way):
        assert_within(case.model(), device, bounds, inputs=inputs)
    RUN[case.op] += 1


@st.composite
def activations(
    draw: st.DrawFn, name: str, types: Sequence[str], fixed: Fixed | None = None
) -> Activation:
    """Draw an activation on one of these integer types; `fixed` are the outputs' parameters."""
    dtype = draw(st.sampled_from(list(types)))
    least, most = (-14, -4) if dtype == "int16" else (-8, 2)
    zero = 0 if dtype == "int16" else draw(zero_points(dtype))
    out_scale, out_zero = draw(scales(least, most)), 0
    if dtype != "int16":
        out_zero = draw(zero_points(dtype))
    if fixed is not None:
        out_scale, out_zero = fixed[dtype]
    return Activation(
        op=name,
        dtype=dtype,
        shape=tuple(draw(st.lists(st.integers(1, 11), max_size=4))),
        scales=(draw(scales(least, most)), out_scale),
        zeros=(zero, out_zero),
    )


def assert_drawn(case: Activation, device: DeviceInfo, way: Way, seed: int) -> None:
    """Assert a drawn case, and one of all values of its type."""
    assert_exact_or_refused(case.model(), device, way, seed)
    assert_every_value(case, device, way_on(device, way))


def common_refusals(node: Node) -> dict[str, tuple[Node, str]]:
    """Return what every op of one input and one output refuses; the node's type is uint8."""
    return {
        "types_differ": (changed(node, -1, dtype="int8"), "uint8 in, int8 out: they must be equal"),
        "shape_changes": (changed(node, -1, shape=(16, 16)), "256 -> 16x16: the shape must stay"),
        "empty": (changed(changed(node, 0, shape=(0,)), -1, shape=(0,)), "shape 0: it is empty"),
        "without_quantisation": unquantised(node, 0),
        "per_channel": (
            changed(node, 0, quantization=quantization([0.5, 0.25])),
            "2 scales: only one per tensor here",
        ),
        "sparse": sparse(node, 0),
        "no_input": (replace(node, inputs=()), "0 inputs: 1 expected"),
        "no_output": (replace(node, outputs=()), "0 outputs: 1 is expected"),
    }

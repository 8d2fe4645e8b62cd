# SPDX-License-Identifier: Apache-2.0
"""Ops that apply a function to each element: inputs of all sizes, bounds, and drawn models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo
from delegate.inspect import Graph, Node, write_model
from tests.support.cases import (
    RUN,
    Strategy,
    changed,
    forced,
    quantization,
    require_isa,
    scales,
    strategy_on,
    zero_points,
)
from tests.support.compare import Arrays, assert_within, inputs_for
from tests.support.model import graph_of
from tests.support.refusals import sparse, unquantised
from tests.support.suite_cases import assert_graph, assert_graph_or_refused
from tflite_opencl.conformance.cases.elementwise import function

# From the input, the sum of the absolute values of the terms that the function adds.
Magnitude = Callable[[NDArray[np.float64]], NDArray[np.float64]]


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


def assert_float_function(
    graph: Graph,
    device: DeviceInfo,
    strategy: Strategy,
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

    require_isa(strategy, device)
    with forced(strategy):
        assert_within(write_model(graph), device, bounds, inputs=inputs)
    RUN[graph.nodes[0].op] += 1


@st.composite
def functions(
    draw: st.DrawFn,
    name: str,
    types: Sequence[str],
    zero: int | None = None,
    **options: st.SearchStrategy[Any],
) -> Graph:
    """Draw a model of one op on one of these types; `zero`: the input's zero point, if fixed."""
    dtype = draw(st.sampled_from(list(types)))
    least, most = (-14, -4) if dtype == "int16" else (-8, 2)
    zeros = zero_points(dtype) if dtype in ("uint8", "int8") else st.just(0)
    return function(
        name,
        dtype,
        tuple(draw(st.lists(st.integers(1, 11), max_size=4))),
        (draw(scales(least, most)), draw(scales(least, most))),
        (draw(zeros) if zero is None else zero, draw(zeros)),
        **{option: draw(values) for option, values in options.items()},
    )


def assert_drawn(graph: Graph, device: DeviceInfo, strategy: Strategy, seed: int) -> None:
    """Assert a drawn model, and the same model on all values of its type if that has 8 bits."""
    assert_graph_or_refused(graph, device, strategy, seed, inputs_for(graph, seed))
    (node,), (source,) = graph.nodes, graph.inputs
    if source.dtype in ("uint8", "int8"):
        values = every_value(source.dtype)
        result = replace(node.outputs[0], shape=values.shape)
        node = replace(node, inputs=(replace(source, shape=values.shape),), outputs=(result,))
        assert_graph(graph_of([node]), device, strategy_on(device, strategy), [[values]])


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

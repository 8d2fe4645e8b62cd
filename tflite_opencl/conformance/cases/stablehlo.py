# SPDX-License-Identifier: Apache-2.0
"""StableHLO's data movement ops, which TFLite runs unconverted, of every type."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.conformance.cases._rows import NodeTemplate, cases_of, one, step
from tflite_opencl.models.build import (
    Case,
    Shape,
    case,
    constant,
    dtype_of,
    graph,
    node,
    numbers,
    sizes,
    tensor,
    usual,
)

_KINDS = ("uint8", "int8", "16x8", "float32", "int32", "int64", "bool")


def cases() -> Iterator[Case]:
    """Yield the cases of STABLEHLO_PAD and STABLEHLO_GATHER."""
    yield from cases_of([*_pads()], _KINDS)
    for kind in _KINDS:
        for detail, given in _GATHERS.items():
            yield case("stablehlo_gather", kind, detail, _gather, dtype_of(kind), *given)
        for index in ("int32", "int64"):
            detail = f"computed_{index}"
            yield case("stablehlo_gather", kind, detail, _computed, dtype_of(kind), index)


_PADS: tuple[tuple[Shape, Shape, Shape, Shape], ...] = (  # shape; low, high and interior padding
    ((1, 5, 4, 3), (0, 1, 1, 0), (0, 1, 1, 0), (0, 0, 0, 0)),
    ((1, 5, 4, 3), (0, 0, 0, 0), (0, 1, 0, 0), (0, 1, 1, 0)),
    ((5, 7), (-1, 2), (-2, 0), (0, 2)),
    ((6, 9), (-3, 0), (1, -5), (1, 0)),
    ((2, 3, 4, 17), (1, 0, 3, 0), (0, 2, 1, 0), (0, 0, 0, 0)),
)


def _pads() -> Iterator[NodeTemplate]:
    """Edge and interior padding, also negative."""
    for shape, *paddings in _PADS:
        names = ("edge_padding_low", "edge_padding_high", "interior_padding")
        words = "-".join("_".join(map(str, each)) for each in paddings)
        options = dict(zip(names, paddings, strict=True))
        yield NodeTemplate("STABLEHLO_PAD", f"in{sizes(shape)}-{words}", [shape, 1], options)


# Shape, slice sizes, indices, their dimensions, collapsed slice dimensions, offset dimensions of
# the result, and the index vector's dimension. Some indices are out of bounds.
_GATHERS: dict[str, tuple[Shape, Shape, Any, Shape, Shape, Shape, int]] = {
    "rows": ((7, 16), (1, 16), [[6], [0], [3], [9], [-1]], (0,), (0,), (1,), 1),
    "windows": ((7, 5, 3), (2, 5, 3), [[6], [0], [3]], (0,), (), (1, 2, 3), 1),
    "places": ((5, 4), (1, 1), [[0, 9], [-3, 1], [4, 0]], (0, 1), (0, 1), (), 1),
    "other_order": ((5, 4, 3), (1, 1, 3), [[0, 9], [-3, 1]], (1, 0), (0, 1), (1,), 1),
    "slices_first": ((5, 4, 8), (2, 1, 8), [[0, 9], [3, 1]], (0, 1), (1,), (0, 2), 1),
    "index_first": ((5, 33), (1, 33), [[4, 0, 7, 1]], (0,), (0,), (1,), 0),
}


def _gather(
    dtype: str,
    shape: Shape,
    slices: Shape,
    indices: Any,
    mapped: Shape,
    dropped: Shape,
    offsets: Shape,
    vectors: int,
) -> Graph:
    places = numbers(indices) if isinstance(indices, list) else indices
    options = {
        "offset_dims": offsets,
        "collapsed_slice_dims": dropped,
        "start_index_map": mapped,
        "index_vector_dim": vectors,
        "slice_sizes": slices,
    }
    rank = len(offsets) + len(places.shape) - 1
    result = usual((1,) * rank, dtype)
    return one("STABLEHLO_GATHER", [usual(shape, dtype), places], result, options)


def _computed(dtype: str, index: str) -> Graph:
    places = tensor((3, 5, 2), index, limits=(-2, 8))
    return _gather(dtype, (8, 6, 4), (2, 1, 4), places, (0, 1), (1,), (2, 3), 2)


# Shape; window, strides, base dilation, window dilation, padding before and after.
_WINDOWS: tuple[tuple[Shape, Shape, Shape, Shape, Shape, Shape], ...] = (
    ((1, 5, 6, 2), (1, 2, 2, 1), (1, 2, 2, 1), (1,) * 4, (1,) * 4, (0,) * 8),
    ((1, 5, 6, 3), (1, 3, 3, 1), (1, 1, 2, 1), (1,) * 4, (1,) * 4, (0, 0, 1, 1, 1, 1, 0, 0)),
    ((5, 7), (2, 3), (2, 1), (1, 2), (1, 2), (0, 1, 1, 0)),
    ((33,), (33,), (1,), (1,), (1,), (32, 0)),
    ((4, 9), (2, 2), (1, 2), (1, 1), (1, 1), (-1, 2, 0, -2)),
    ((2, 3, 2, 4, 3), (1, 2, 1, 2, 3), (1, 1, 1, 2, 1), (1,) * 5, (1,) * 5, (0,) * 10),
)
_REDUCED = {
    "sum": ("ADD", 3), "product": ("MUL", 1), "least": ("MINIMUM", 7), "most": ("MAXIMUM", -3),
    "all": ("LOGICAL_AND", 1), "any": ("LOGICAL_OR", 0),
}  # fmt: skip


def windows() -> Iterator[Case]:
    """Yield the cases of STABLEHLO_REDUCE_WINDOW."""
    for kind, (words, (body, initial)) in itertools.product(
        ("float32", "int32", "int8", "uint8", "16x8", "bool"), _REDUCED.items()
    ):
        if kind == "bool" and words in ("sum", "product"):
            continue  # numbers that are no valid bools
        for given in _WINDOWS:
            detail = "-".join([words, f"in{sizes(given[0])}", f"window{sizes(given[1])}"])
            own = dtype_of(kind), body, initial, *given
            yield case("stablehlo_reduce_window", kind, detail, _reduced, *own)
    for words, (_, initial) in _REDUCED.items():
        function = {"sum": "ADD", "product": "MUL", "least": "MINIMUM", "most": "MAXIMUM"}
        how = function.get(words, words.upper())
        yield case("reduce_window", "float32", words, _older, how, initial)


def _reduced(dtype: str, body: str, initial: float, shape: Shape, *windows: Shape) -> Graph:
    is_positive = dtype in ("uint8", "bool")
    first = constant(np.array(max(initial, 0) if is_positive else initial, dtype))
    return graph([reduced_windows(usual(shape, dtype), first, body, *windows)])


def reduced_windows(
    source: Tensor,
    initial: Tensor,
    body: str,
    window: Shape,
    strides: Shape,
    between: Shape,
    dilations: Shape,
    padding: Shape,
) -> Node:
    """Return a STABLEHLO_REDUCE_WINDOW with a body of one op."""
    pair = [tensor((), source.dtype), tensor((), source.dtype)]
    options = {
        "window_dimensions": window,
        "window_strides": strides,
        "base_dilations": between,
        "window_dilations": dilations,
        "padding": padding,
    }
    result = replace(source, name="", data=None, ranges=None)
    made = step("STABLEHLO_REDUCE_WINDOW", [source, initial], [result], options)
    of_pair = graph([node(body, pair, [tensor((), source.dtype)])], pair)
    return replace(made, body=of_pair)


def _older(function: str, initial: float) -> Graph:
    """Return the model of a REDUCE_WINDOW with constant windows."""
    windows = [numbers(each, "int64") for each in ((2, 3), (2, 1), (1, 2))]
    inputs = [tensor((7, 9)), constant(np.float32(initial)), *windows]
    return one("REDUCE_WINDOW", inputs, tensor(()), {"reduce_function": function})


# Operand, updates, indices, and options: update window dimensions, inserted window
# dimensions, mapping of index coordinates, and the index vector's dimension.
_SCATTERS: dict[str, tuple[Shape, Shape, Any, Shape, Shape, Shape, int]] = {
    "rows": ((7, 16), (4, 16), [[6], [0], [3], [0]], (1,), (0,), (0,), 1),
    "elements": ((5, 4), (3,), [[0, 3], [4, 1], [0, 3]], (), (0, 1), (0, 1), 1),
    "windows": ((7, 5, 3), (2, 2, 5, 3), [[5], [6]], (1, 2, 3), (), (0,), 1),
    "beyond": ((4, 6), (3, 2, 2), [[3, 5], [9, 0], [2, 2]], (1, 2), (), (0, 1), 1),
    "other_order": ((5, 4, 3), (3, 2), [[1, 0], [4, 3]], (0,), (0, 1), (1, 0), 0),
}
_COMBINED = ("", "STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MINIMUM", "STABLEHLO_MAXIMUM")


def scatters() -> Iterator[Case]:
    """Yield the cases of STABLEHLO_SCATTER."""
    for kind, body in itertools.product(("float32", "int32", "int8", "uint8", "16x8"), _COMBINED):
        for words, given in _SCATTERS.items():
            detail = f"{words}-{body.removeprefix('STABLEHLO_').lower() or 'update'}"
            own = dtype_of(kind), body, *given
            yield case("stablehlo_scatter", kind, detail, _scattered, *own)


def _scattered(
    dtype: str, body: str, shape: Shape, sizes_of: Shape, indices: Any, *options: Any
) -> Graph:
    inputs = [usual(shape, dtype), numbers(indices), usual(sizes_of, dtype)]
    return graph([scattered(inputs, body, *options)])


def scattered(
    inputs: Sequence[Tensor], body: str, window: Shape, inserted: Shape, mapped: Shape, vectors: int
) -> Node:
    """Return a STABLEHLO_SCATTER with a body of one op, or "": none."""
    dtype = inputs[0].dtype
    pair = [tensor((), dtype), tensor((), dtype)]
    options = {
        "update_window_dims": window,
        "inserted_window_dims": inserted,
        "scatter_dims_to_operand_dims": mapped,
        "index_vector_dim": vectors,
    }
    result = replace(inputs[0], name="", data=None, ranges=None)
    made = step("STABLEHLO_SCATTER", inputs, [result], options)
    nodes = [node(body, pair, [tensor((), dtype)])] if body else []
    return replace(made, body=graph(nodes, pair, None if nodes else pair[1:]))

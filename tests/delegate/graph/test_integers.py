# SPDX-License-Identifier: Apache-2.0
"""Drawn nodes of integers against TFLite: every option, and values at the ends of their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from delegate.graph.fold import fold
from delegate.graph.integers import FUSED_BOUNDS, INDEX_TYPES, INTEGER_FOLDERS
from delegate.inspect import Node, Tensor, output_shapes
from tests.support.compare import interpreter, invoke, oracle
from tests.support.model import chain_model, const, graph_of, op, t

Rng = np.random.Generator
DRAWN = 40
_SUMS = ("ADD", "SUB", "MUL")  # those with a fused activation


def shape_of(rng: Rng, least: int = 0, most: int = 3) -> tuple[int, ...]:
    return tuple(rng.integers(1, 4, rng.integers(least, most + 1)).tolist())


def values_of(rng: Rng, shape: tuple[int, ...], dtype: str) -> Any:
    """Return numbers of which many are at the ends of the type or of an activation."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith("float"):
        return rng.choice([-3.5, -0.5, 0.0, 0.5, 2.75, 2.0**30], shape).astype(dtype)
    limits = np.iinfo(dtype)
    ends = np.array([limits.min, limits.min + 1, limits.max, limits.max // 2 + 1, 0, 1, 5, 6, 7])
    small = rng.integers(max(-9, int(limits.min)), 10, shape)
    return np.where(rng.random(shape) < 0.5, rng.choice(ends, shape), small).astype(dtype)


def drawn(rng: Rng, shape: tuple[int, ...], dtype: str) -> Tensor:
    return const(values_of(rng, shape, dtype))


def axis_in(rng: Rng, rank: int) -> int:
    return int(rng.integers(-rank, rank)) if rank else 0


def two(rng: Rng, name: str) -> Node:
    dtype = str(rng.choice(INDEX_TYPES))
    left, right = shape_of(rng), shape_of(rng)
    if rng.random() < 0.7:
        right = tuple(n if rng.random() < 0.7 else 1 for n in left)[int(rng.random() * 2) :]
    divisor = values_of(rng, right, dtype)
    if name == "FLOOR_DIV":  # the quotients that C leaves undefined may end the process
        divisor = np.where((divisor == 0) | (divisor == -1), dtype == "int32", divisor)
    options = {}
    if name in _SUMS:
        options["fused_activation_function"] = str(rng.choice([*FUSED_BOUNDS]))
    try:
        shape = np.broadcast_shapes(left, right)
    except ValueError:
        shape = left
    operands = [drawn(rng, left, dtype), const(np.asarray(divisor, dtype))]
    return op(name, operands, [t(shape, dtype)], options)


def cast(rng: Rng, name: str) -> Node:
    kinds = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "uint32")
    source, result = str(rng.choice(kinds)), str(rng.choice(INDEX_TYPES))
    shape = shape_of(rng)
    names = {"in_data_type": source, "out_data_type": result}
    return op(name, [drawn(rng, shape, source)], [t(shape, result)], names)


def joined(rng: Rng, name: str) -> Node:
    shape, dtype = shape_of(rng, 1), str(rng.choice(INDEX_TYPES))
    parts = [drawn(rng, shape, dtype) for _ in range(rng.integers(1, 4))]
    axis = axis_in(rng, len(shape) + (name == "PACK"))
    options: dict[str, Any] = {"axis": axis}
    if name == "PACK":
        options["values_count"] = len(parts)
    return with_shape(op(name, parts, [t((), dtype)], options))


def moved(rng: Rng, name: str) -> Node:
    shape, dtype = shape_of(rng, 1), str(rng.choice(INDEX_TYPES))
    rank = len(shape)
    source, options, result = drawn(rng, shape, dtype), {}, dtype
    sizes: list[Any] = []
    if name == "GATHER":
        options = {"axis": axis_in(rng, rank), "batch_dims": 0}
        size = shape[options["axis"]]
        sizes = [const(rng.integers(0, size, shape_of(rng)).astype(np.int32))]
    elif name == "SLICE":
        begins = np.array([rng.integers(0, n) for n in shape], np.int32)
        counts = np.array([rng.choice([-1, 1]) for _ in shape], np.int32)
        sizes = [const(begins), const(counts)]
    elif name == "STRIDED_SLICE":
        ends = rng.integers(-3, 4, (2, rank)).astype(np.int32)
        strides = rng.choice([-2, -1, 1, 2], rank).astype(np.int32)
        sizes = [const(ends[0]), const(ends[1]), const(strides)]
        names = ("begin", "end", "shrink_axis", "ellipsis", "new_axis")
        masks = rng.integers(0, 1 << rank, 5) * (rng.random(5) < [0.6, 0.6, 0.3, 0.1, 0.1])
        options = {f"{each}_mask": int(mask) for each, mask in zip(names, masks, strict=True)}
    elif name == "RESHAPE":
        sizes = [const(rng.permutation([-1, *shape[1:]]).astype(np.int32))]
    elif name == "EXPAND_DIMS":
        sizes = [const(np.array(axis_in(rng, rank + 1), np.int32))]
    elif name == "SQUEEZE":
        ones = [axis for axis, size in enumerate(shape) if size == 1]
        options = {"squeeze_dims": [axis - rank * int(rng.integers(2)) for axis in ones[:1]]}
    elif name == "REDUCE_PROD":
        axes = rng.integers(-rank, rank, rng.integers(0, rank + 1)).astype(np.int32)
        sizes, options = [const(axes)], {"keep_dims": bool(rng.integers(2))}
    elif name == "WHERE":
        source, result = drawn(rng, shape, str(rng.choice(["bool", "int32", "float32"]))), "int64"
    elif name in ("SHAPE", "RANK"):
        source = t(shape, "float32")
        result = dtype if name == "SHAPE" else "int32"
        options = {"out_type": dtype} if name == "SHAPE" else {}
    return with_shape(op(name, [source, *sizes], [t((), result)], options))


def numbers(rng: Rng, name: str) -> Node:
    dtype = str(rng.choice([*INDEX_TYPES, "float32"]))
    ends = np.sort(rng.integers(-20, 20, 2)).astype(dtype)
    step = rng.integers(1, 5) * (1 if rng.random() < 0.5 else -1)
    parts = [ends[0], ends[1], step] if step > 0 else [ends[1], ends[0], step]
    return with_shape(op(name, [const(np.array(n, dtype)) for n in parts], [t((), dtype)]))


def with_shape(node: Node) -> Node:
    """Return the node with its output's shape, where there is a rule that gives it."""
    shapes = output_shapes(node)
    (result,) = node.outputs
    return (
        node
        if shapes is None
        else op(node.op, node.inputs, [t(shapes[0], result.dtype)], dict(node.options))
    )


DRAW: dict[str, Callable[[Rng, str], Node]] = {
    **dict.fromkeys([*_SUMS, "MAXIMUM", "MINIMUM", "FLOOR_DIV"], two),
    **dict.fromkeys(["PACK", "CONCATENATION"], joined),
    "CAST": cast,
    "RANGE": numbers,
}


@pytest.mark.parametrize("name", INTEGER_FOLDERS)
def test_drawn_nodes_are_folded_as_tflite_computes_them(name: str) -> None:
    rng = np.random.default_rng(list(name.encode()))
    compared = 0
    for _ in range(DRAWN):
        node = DRAW.get(name, moved)(rng, name)
        graph = graph_of([node])
        (folded,) = fold(graph).nodes
        result = folded.outputs[0]
        model = chain_model([node], outputs=node.outputs)
        inputs = [np.zeros(each.shape, np.float32) for each in graph.inputs]
        try:
            (expected,) = invoke(interpreter(model, cpu_kernels=oracle(model)), inputs)
        except (RuntimeError, ValueError):
            continue  # TFLite refuses the node, or Python's interpreter to read what is empty
        if not result.is_folded:
            continue
        assert result.data is not None
        assert (result.data.dtype, result.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(result.data, expected, err_msg=f"{node}")
        compared += 1
    assert compared >= DRAWN // 8

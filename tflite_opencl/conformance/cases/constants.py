# SPDX-License-Identifier: Apache-2.0
"""What follows from shapes and constants alone: computed sizes, weights stored in other ways."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.common.build import (
    Array,
    Case,
    Shape,
    case,
    constant,
    dtype_of,
    graph,
    node,
    numbers,
    same,
    seeded,
    sizes,
    tensor,
)
from tflite_opencl.conformance.cases._convolution import Convolution, fully_connected

_KEPT = 0.3  # share of sparse weights that are not 0


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for kind, shape, index in itertools.product(
        ("uint8", "int8", "16x8", "float32"), ((2, 3, 4), (1, 5, 7, 3)), ("int32", "int64")
    ):
        detail = f"reshape-in{sizes(shape)}-{index}"
        yield case("shape", kind, detail, _computed_reshape, shape, dtype_of(kind), index)
    for op, side in itertools.product(("CONV_2D", "DEPTHWISE_CONV_2D"), (1, 3)):
        convolution = Convolution(op=op, size=(7, 6, 5), kernel=(side, side))
        detail = f"float16_weights-{op.lower()}-k{side}"
        yield case("chain", "float32", detail, _half_weights, convolution, op="chain")
    for kind, side in itertools.product(("float32", "int8"), (1, 3)):
        dense = partial(Convolution(size=(7, 6, 5), kernel=(side, side)).graph, kind)
        yield case("densify", kind, f"conv_2d-k{side}", _sparse_weights, dense)
    for kind in ("float32", "int8"):
        dense = partial(fully_connected, kind, (2,), 24, 8)
        yield case("densify", kind, "fully_connected", _sparse_weights, dense)


def _computed_reshape(shape: Shape, dtype: str, index: str) -> Graph:
    """Return a RESHAPE to (batch, all the rest), which the graph computes from the input's shape.

    So converters write a layer that flattens. int64 shapes are cast to int32 on the way.
    """
    batch, rest = shape[0], int(np.prod(shape[1:]))
    source, computed = same(shape, dtype), tensor((len(shape),), index)
    steps = [node("SHAPE", [source], [computed], {"out_type": index})]
    if index != "int32":
        steps.append(node("CAST", [computed], [tensor(computed.shape, "int32")]))
    first, both = tensor((), "int32"), tensor((2,), "int32")
    ends: list[Tensor] = [steps[-1].outputs[0], *(numbers([at]) for at in (0, 1, 1))]
    steps += [
        node("STRIDED_SLICE", ends, [first], {"shrink_axis_mask": 1}),
        node("PACK", [first, numbers(rest)], [both], {"axis": 0, "values_count": 2}),
        node("RESHAPE", [source, both], [same((batch, rest), dtype)]),
    ]
    return graph(steps)


def _with_weights(
    step: Node, op: str, version: int, store: Callable[[Tensor, Array], Tensor]
) -> Graph:
    """Return the graph of a node whose weights `op` makes of what `store` keeps of them."""
    source, weights, *rest = step.inputs
    assert weights is not None
    assert weights.data is not None
    made = replace(weights, data=None)
    unpack = node(op, [store(weights, weights.data)], [made], {}, version)
    return graph([unpack, replace(step, inputs=(source, made, *rest))])


def _half_weights(convolution: Convolution) -> Graph:
    """Return a float convolution whose weights are kept as float16."""
    step = convolution.node("float32", None)
    return _with_weights(step, "DEQUANTIZE", 3, lambda _, data: constant(data.astype(np.float16)))


def _sparse_weights(dense: Callable[[], Graph]) -> Graph:
    """Return a graph of one node with most weights 0, and those not stored."""
    (step,) = dense().nodes

    def sparse(weights: Tensor, data: Array) -> Tensor:
        is_kept = seeded(step.op, weights.dtype).random(weights.shape) < _KEPT
        return replace(weights, data=(data * is_kept).astype(data.dtype), is_sparse=True)

    return _with_weights(step, "DENSIFY", 1, sparse)

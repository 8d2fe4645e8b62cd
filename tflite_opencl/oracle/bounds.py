# SPDX-License-Identifier: Apache-2.0
"""Error bounds of a graph's float outputs relative to the oracle's: `sum_bound` of the terms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import (
    BITS,
    COPY,
    SELECTION,
    SUM,
    TRANSPOSE_CONV_BIAS,
    WRITES,
    Graph,
    Node,
    Tensor,
    float_result,
    halves_bound,
    pool_3d_of,
    sum_bound,
)
from tflite_opencl.models.build import Array
from tflite_opencl.oracle.absolute import absolute, gate_sum, inlined, near, of_halves, sizes_of
from tflite_opencl.oracle.values import Arrays

Bounds = list[NDArray[np.float64] | None]
# A graph and its inputs -> its outputs on the oracle's kernels; RuntimeError or ValueError.
Run = Callable[[Graph, Arrays], Arrays]
Values = dict[Tensor, Array]

_WITHOUT_TERMS = (COPY, SELECTION)
# Op with weights -> their axis of output channels.
_CHANNEL_AXES = {
    **dict.fromkeys(("CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", TRANSPOSE_CONV_BIAS), 0),
    **{"CONV_3D": 4, "CONV_3D_TRANSPOSE": 3, "DEPTHWISE_CONV_2D": 3},
}
_FLOATS = ("float16", "float32", "complex64")
# Functions that subtract numbers of this size to compute a smaller result.
_INNER_SIZE = {"ELU": 1.0, "LOG": 1.0, "SIN": 1.0, "COS": 1.0, "TANH": 0.0, "GELU": 1.0}


def float_bounds(
    run: Run, graph: Graph, inputs: Arrays, outputs: Arrays, is_last_alone: bool = False
) -> Bounds:
    """Return the error bound of each float output relative to the oracle's.

    The sum of the terms' absolute values comes from the model with absolute values, starting
    after the last nodes that are no sums. `is_last_alone`: ignore errors that the last sums
    inherit from functions, because the caller accounts for them.
    """
    if all(tensor.dtype not in _FLOATS for tensor in graph.outputs):
        return [None] * len(outputs)
    graph = inlined(graph)
    terms = sum(terms_of(node) for node in graph.nodes)
    if not terms:
        return [np.zeros(o.shape) if o.dtype.name in _FLOATS else None for o in outputs]
    kept = [node for node in graph.nodes if _is_sum(node)]
    known = known_values(run, graph, inputs, (t for node in graph.nodes for t in _read(node)))
    magnitudes = _magnitudes(run, graph, kept, known)
    is_pure = all(_is_linear(node) for node in graph.nodes if _is_float(node))
    makers = {tensor: node for node in graph.nodes for tensor in node.outputs}
    halves = of_halves(graph)
    bounds: Bounds = []
    for tensor, expected in zip(graph.outputs, outputs, strict=True):
        if expected.dtype.name not in _FLOATS:
            bounds.append(None)
            continue
        sizes = _sizes(expected)
        if not is_pure and len(graph.nodes) > 1:
            inner = _before_functions(graph, known, is_last_alone)
            sizes = np.full(expected.shape, max(sizes.max(initial=0), inner))
        elif not is_pure:
            sizes = sizes + _inner(graph, inputs, sizes)
        if tensor in magnitudes:
            sizes = np.maximum(sizes, magnitudes[tensor])
        off = _error(makers[tensor], known, expected) if tensor in makers else 0.0
        bound = sum_bound(sizes, terms, off)
        if any(node.op == "LOGISTIC" for node in graph.nodes):
            # Below -9 the reference uses exp(x) for exp(x) / (1 + exp(x)).
            bound = bound + np.where(sizes < np.exp(-8.9), sizes**2, 0)
        bounds.append(halves_bound(bound, expected) if tensor in halves else bound)
    return bounds


def _is_float(node: Node) -> bool:
    return any(each.dtype in _FLOATS for each in node.outputs)


def _sizes(values: Array) -> NDArray[np.float64]:
    """Return the magnitudes of values; of complex ones the sum of both parts."""
    wide = np.complex128 if values.dtype.kind == "c" else np.float64
    return _finite(np.asarray(np.abs(values.astype(wide))))


def is_hybrid(node: Node) -> bool:
    """Whether a node quantises its float inputs: equal inputs give equal results."""
    kinds = [each.dtype for each in node.inputs[:2] if each is not None]
    return (
        _is_float(node)
        and kinds[:1] in (["float16"], ["float32"])
        and kinds[1:] in (["int8"], *([each] for each in BITS))
    )


def _read(node: Node) -> list[Tensor]:
    return [each for each in node.inputs if each is not None and each.data is None]


def _is_linear(node: Node) -> bool:
    return float_result(node.op).kind in (SUM, *_WITHOUT_TERMS)


def _is_sum(node: Node) -> bool:
    """Whether a node sums or moves floats; floats converted from integers have no terms."""
    if is_hybrid(node):
        return False
    kinds = {each.dtype for each in node.inputs if each is not None}
    return _is_float(node) and _is_linear(node) and bool(kinds & {"float32", "float16"})


def known_values(run: Run, graph: Graph, inputs: Arrays, wanted: Iterable[Tensor]) -> Values:
    """Return the oracle's values of a graph's inputs, and of these tensors if available."""
    given = dict(zip(graph.inputs, inputs, strict=True))
    inner = tuple(each for each in dict.fromkeys(wanted) if each not in given)
    if inner:
        try:
            values = run(dataclasses.replace(graph, outputs=inner), inputs)
        except (RuntimeError, ValueError):
            return given
        given |= dict(zip(inner, values, strict=True))
    return given


def _magnitudes(
    run: Run, graph: Graph, kept: list[Node], known: Values
) -> Mapping[Tensor, NDArray[np.float64]]:
    """Return the sums of absolute terms of these nodes' outputs, if known."""
    made = {tensor for node in kept for tensor in node.outputs}
    outputs = tuple(each for each in graph.outputs if each in made)
    given = tuple(dict.fromkeys(t for node in kept for t in _read(node) if t not in made))
    if not outputs or not all(each in known for each in given):
        return {}
    resizes = any(node.op == "RESIZE_BILINEAR" for node in kept)
    values = [sizes_of(known[each]) for each in given]
    part = dataclasses.replace(graph, nodes=tuple(kept), inputs=given, outputs=outputs)
    try:
        sums = run(absolute(part), [near(each) if resizes else each for each in values])
    except (RuntimeError, ValueError):
        return {}
    return {t: _finite(v.astype(np.float64)) for t, v in zip(outputs, sums, strict=True)}


def _error(node: Node, known: Values, expected: Array) -> NDArray[np.float64] | float:
    """Return the error of the oracle's own long sums relative to the exact ones."""
    source = node.inputs[0] if node.inputs else None
    if node.op not in ("MEAN", "SUM") or source not in known:
        return 0.0
    if (axes := node.inputs[1]) is None or axes.data is None:
        return 0.0
    values = known[source].astype(np.float64)
    over = tuple({int(axis) % values.ndim for axis in np.ravel(axes.data)})
    with np.errstate(all="ignore"):
        exact = (np.mean if node.op == "MEAN" else np.sum)(values, axis=over)
        off = np.abs(exact.reshape(expected.shape) - expected)
    return np.asarray(np.nan_to_num(off, nan=0, posinf=0))


def _before_functions(graph: Graph, known: Values, are_parts_alone: bool) -> float:
    """Return the largest argument of a network's functions: its error is the result's.

    `are_parts_alone`: only complex arguments, whose parts each have the error of both.
    """
    given = {
        tensor
        for node in graph.nodes
        for tensor in _read(node)
        if tensor.dtype == "complex64" or (float_result(node.op).roundings and not are_parts_alone)
    }
    values = [
        _sizes(known[each]).max(initial=0)
        for each in given - {*graph.inputs}
        if each.dtype in _FLOATS and each in known
    ]
    return max(map(float, values), default=0.0)


def _inner(graph: Graph, inputs: Arrays, sizes: NDArray[np.float64]) -> NDArray[np.float64] | float:
    """Return the magnitude of values that cancel out inside a function."""
    (node,) = graph.nodes
    op = node.op
    if op == "RFFT2D":  # each frequency depends on the whole picture
        return np.asarray(sizes.max((-2, -1), keepdims=True))
    if op == "LOG_SOFTMAX":
        return np.asarray(_finite(np.abs(inputs[0]).astype(np.float64)).max(-1, keepdims=True) * 2)
    if op == "EXP":  # the result multiplies the argument's error
        return sizes * np.abs(inputs[0].astype(np.float64))
    if op in ("GELU", "ELU", "HARD_SWISH"):
        return np.abs(inputs[0].astype(np.float64)).clip(max=1e30) + _INNER_SIZE.get(op, 0)
    if op == "SQUARED_DIFFERENCE":
        given = dict(zip(graph.inputs, inputs, strict=True))
        both = (given[t] if t.data is None else t.data for t in node.inputs if t is not None)
        left, right = (_finite(np.abs(values.astype(np.float64))) for values in both)
        return np.asarray((left + right) ** 2)
    if op in WRITES and op != "SVDF":
        return gate_sum(node, inputs[0])
    is_remainder = op == "FLOOR_MOD"
    return np.abs(inputs[0].astype(np.float64)) if is_remainder else _INNER_SIZE.get(op, 0.0)


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.nan_to_num(values, nan=0, posinf=3e38, neginf=3e38)


def terms_of(node: Node) -> int:
    """Return the number of terms in the sum behind an output element; 0: it is exact.

    For ops that run subgraphs: the sum over each of them, once.
    """
    if node.calls is not None:
        return sum(terms_of(each) for called in node.calls.graphs for each in called.nodes)
    if not _is_float(node) or float_result(node.op).kind in _WITHOUT_TERMS:
        return 0
    if node.op in WRITES:
        return _terms_of_remembering(node)
    if is_hybrid(node):
        return 0
    if node.op in ("ADD", "SUB", "MUL", "STABLEHLO_ADD", "STABLEHLO_MULTIPLY"):
        return 2
    if node.op in _CHANNEL_AXES:
        weights = node.inputs[1]
        assert weights is not None
        return math.prod(weights.shape) // max(1, weights.shape[_CHANNEL_AXES[node.op]]) + 1
    if node.op in ("AVERAGE_POOL_2D", "L2_POOL_2D"):
        return int(node.options["filter_height"] * node.options["filter_width"]) + 1
    if node.is_custom and float_result(node.op).kind == SUM:  # an average of averages over a volume
        return 2 + math.prod(int(pool_3d_of(node)[f"filter_{axis}"]) for axis in "dhw")
    if node.op in ("MEAN", "SUM", "CUMSUM", "BATCH_MATMUL", "REDUCE_PROD"):
        source = node.inputs[0]
        assert source is not None
        summed = math.prod(source.shape) // max(1, math.prod(node.outputs[0].shape))
        return summed + max(source.shape, default=1)
    if node.op == "ADD_N":
        return len(node.inputs)
    if node.op == "SEGMENT_SUM":
        return node.inputs[0].shape[0] if node.inputs[0] else 0
    if node.op == "SCATTER_ND":
        return math.prod(node.inputs[0].shape[:-1]) if node.inputs[0] else 0
    if node.op in ("RESIZE_BILINEAR", "DEQUANTIZE"):
        return 16 if node.op == "RESIZE_BILINEAR" else 1  # four products of two differences
    if node.op in ("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION"):
        return float_result(node.op).roundings + max(node.outputs[0].shape, default=1)
    return float_result(node.op).roundings


def _terms_of_remembering(node: Node) -> int:
    """Return the terms of a stateful op: an LSTM's or RNN's error grows with each step."""
    shapes = [each.shape for each in node.inputs if each is not None and each.data is not None]
    if node.op == "SVDF":
        (filters, depth), (_, memory) = shapes[:2]
        units = node.outputs[0].shape[-1]
        return (0 if is_hybrid(node) else depth) + filters // units * memory + 1
    is_tanh = node.options.get("fused_activation_function") == "TANH"
    if node.op.endswith("RNN") and is_hybrid(node) and not is_tanh:
        return 0  # integer sums, scaled in TFLite's order
    source = node.inputs[0]
    assert source is not None
    terms = source.shape[-1] + node.outputs[0].shape[-1] + float_result(node.op).roundings
    # Steps are either rows or the dimension set by time_major: use the larger.
    return int(terms * max(source.shape[:-1] if len(source.shape) > 2 else (1,)) ** 2)

# SPDX-License-Identifier: Apache-2.0
"""What outputs have to be: the installed runtime's reference kernels, and how far floats may lie.

Where the reference kernels lack an op, TFLite's built-in ones without a delegate stand in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Node, write_model
from tflite_opencl.common.build import Array
from tflite_opencl.common.runtime import Runtime
from tflite_opencl.common.values import Arrays

Bounds = list[NDArray[np.float64] | None]

# Ops whose float result is a sum of products, which the same op gives of absolute values.
_SUMS = {
    "ADD", "SUB", "AVERAGE_POOL_2D", "BATCH_MATMUL", "CONV_2D", "CUMSUM", "DEPTHWISE_CONV_2D",
    "DEQUANTIZE", "FULLY_CONNECTED", "MEAN", "SUM", "TRANSPOSE_CONV", "L2_POOL_2D", "MUL",
    "RESIZE_BILINEAR",
}  # fmt: skip
# Ops that give the values they are given.
_MOVES = {
    "BATCH_TO_SPACE_ND", "BROADCAST_TO", "CAST", "CONCATENATION", "DEPTH_TO_SPACE", "EXPAND_DIMS",
    "FILL", "GATHER", "GATHER_ND", "MAX_POOL_2D", "MIRROR_PAD", "PACK", "PAD", "PADV2", "RESHAPE",
    "RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "SELECT", "SELECT_V2", "SLICE", "SPACE_TO_BATCH_ND",
    "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK",
    "RELU", "RELU6", "MAXIMUM", "MINIMUM", "ABS", "NEG", "REDUCE_MAX", "REDUCE_MIN",
}  # fmt: skip
# Ops whose terms are not larger than their result, and how many roundings they are made of.
_FUNCTIONS = {
    "COS": 8, "DIV": 1, "ELU": 4, "EXP": 8, "FLOOR_MOD": 1, "GELU": 8, "HARD_SWISH": 4,
    "L2_NORMALIZATION": 8, "LEAKY_RELU": 1, "LOG": 8, "LOGISTIC": 8, "LOG_SOFTMAX": 16, "POW": 32,
    "PRELU": 1, "REDUCE_PROD": 64, "RSQRT": 4, "SIN": 8, "SOFTMAX": 32, "SQRT": 1, "SQUARE": 1,
    "SQUARED_DIFFERENCE": 2, "TANH": 8,
}  # fmt: skip
# Functions that subtract numbers of this size on the way to a smaller result.
_INNER_SIZE = {"ELU": 1.0, "LOG": 1.0, "SIN": 1.0, "COS": 1.0, "TANH": 0.0, "GELU": 1.0}


class NoOracle(Exception):
    """TFLite itself does not take or run the model; the text is its message."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """A model on TFLite's own kernels."""

    cpu_kernels: str  # "reference" or "builtin"
    outputs: list[Arrays]  # of each input set
    bounds: list[Bounds]  # of each input set; None: exact


def interpreter(
    runtime: Runtime, model: bytes | str, cpu_kernels: str, delegates: Sequence[object] = ()
) -> Any:
    """Return an allocated interpreter on one thread; raises RuntimeError or ValueError."""
    made = runtime.interpreter(model, 1, cpu_kernels, delegates)
    made.allocate_tensors()
    return made


def invoke(made: Any, inputs: Sequence[Array]) -> Arrays:
    """Return all outputs for these inputs."""
    for detail, values in zip(made.get_input_details(), inputs, strict=True):
        made.set_tensor(detail["index"], values)
    made.invoke()
    return [np.array(made.get_tensor(detail["index"])) for detail in made.get_output_details()]


def oracle(runtime: Runtime, graph: Graph, model: bytes | str, sets: Sequence[Arrays]) -> Oracle:
    """Return what the outputs of these input sets have to be.

    Raises: NoOracle: neither the reference kernels nor the built-in ones run the model.
    """
    why = ""
    for kernels in ("builtin",) if reference_is_wrong(graph) else ("reference", "builtin"):
        try:
            made = interpreter(runtime, model, kernels)
            outputs = [invoke(made, inputs) for inputs in sets]
        except (RuntimeError, ValueError) as error:
            why = why or " ".join(str(error).split())
            continue
        bounds = [
            float_bounds(runtime, graph, kernels, inputs, results)
            for inputs, results in zip(sets, outputs, strict=True)
        ]
        return Oracle(kernels, outputs, bounds)
    raise NoOracle(why)


def reference_is_wrong(graph: Graph) -> bool:
    """Whether TFLite's reference kernels compute an op of the graph wrongly."""
    # NOTE: the reference kernels' signed sums are wrong: [-76, -1] for [180, -108].
    return any(
        node.op == "SUM" and node.outputs[0].dtype in ("int8", "int16") for node in graph.nodes
    )


def float_bounds(
    runtime: Runtime, graph: Graph, kernels: str, inputs: Arrays, outputs: Arrays
) -> Bounds:
    """Return how far each float output may lie from the oracle's.

    2 units in the last place of the sum of the terms' absolute values, times the square root of
    their number. The absolute values are summed by the same model of absolute constants.
    """
    if all(tensor.dtype != "float32" for tensor in graph.outputs):
        return [None] * len(outputs)
    terms = sum(terms_of(node) for node in graph.nodes)
    magnitudes: Arrays | None = None
    if terms and all(node.op in _SUMS | _MOVES for node in graph.nodes):
        try:
            made = interpreter(runtime, write_model(_absolute(graph)), kernels)
            resizes = any(node.op == "RESIZE_BILINEAR" for node in graph.nodes)
            magnitudes = invoke(made, [_near(_abs(v)) if resizes else _abs(v) for v in inputs])
        except (RuntimeError, ValueError):
            magnitudes = None
    bounds: Bounds = []
    tiny = float(np.finfo(np.float32).tiny)
    for number, expected in enumerate(outputs):
        if expected.dtype != np.float32:
            bounds.append(None)
            continue
        if not terms:
            bounds.append(np.zeros(expected.shape))
            continue
        sizes = _finite(np.abs(expected.astype(np.float64)))
        if magnitudes is not None:
            sizes = np.maximum(sizes, _finite(magnitudes[number].astype(np.float64)))
        elif len(graph.nodes) > 1:
            inner = _before_functions(runtime, graph, kernels, inputs)
            sizes = np.full(expected.shape, max(sizes.max(initial=0), inner))
        else:
            sizes = sizes + _inner(graph, inputs, sizes)
        places = np.spacing(np.minimum(sizes, 3e38).astype(np.float32)).astype(np.float64)
        bound = 2 * np.sqrt(terms) * places + terms * tiny
        if any(node.op == "LOGISTIC" for node in graph.nodes):
            # Below -9 the reference takes exp(x) for exp(x) / (1 + exp(x)).
            bound = bound + np.where(sizes < np.exp(-8.9), sizes**2, 0)
        bounds.append(bound)
    return bounds


def _before_functions(runtime: Runtime, graph: Graph, kernels: str, inputs: Arrays) -> float:
    """Return the greatest value that a network gives to a function: its error is the result's."""
    given = [
        tensor
        for node in graph.nodes
        if node.op in _FUNCTIONS
        for tensor in node.inputs
        if tensor is not None and tensor.data is None and tensor.dtype == "float32"
    ]
    feeds = tuple(tensor for tensor in dict.fromkeys(given) if tensor not in graph.inputs)
    if not feeds:
        return 0.0
    wide = write_model(dataclasses.replace(graph, outputs=feeds))
    try:
        values = invoke(interpreter(runtime, wide, kernels), inputs)
    except (RuntimeError, ValueError):
        return 0.0
    return max(float(_finite(np.abs(each).astype(np.float64)).max(initial=0)) for each in values)


def _inner(graph: Graph, inputs: Arrays, sizes: NDArray[np.float64]) -> NDArray[np.float64] | float:
    """Return the size of what is added and taken away again on the way to one function's result."""
    (node,) = graph.nodes
    op = node.op
    if op == "LOG_SOFTMAX":
        return np.asarray(_finite(np.abs(inputs[0]).astype(np.float64)).max(-1, keepdims=True) * 2)
    if op == "EXP":  # an error of the argument is multiplied by the result
        return sizes * np.abs(inputs[0].astype(np.float64))
    if op in ("GELU", "ELU", "HARD_SWISH"):
        return np.abs(inputs[0].astype(np.float64)).clip(max=1e30) + _INNER_SIZE.get(op, 0)
    if op == "SQUARED_DIFFERENCE":
        given = dict(zip(graph.inputs, inputs, strict=True))
        both = (given[t] if t.data is None else t.data for t in node.inputs if t is not None)
        left, right = (_finite(np.abs(values.astype(np.float64))) for values in both)
        return np.asarray((left + right) ** 2)
    if op == "FLOOR_MOD":
        return np.abs(inputs[0].astype(np.float64))
    return _INNER_SIZE.get(op, 0.0)


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.nan_to_num(values, nan=0, posinf=3e38, neginf=3e38)


def terms_of(node: Node) -> int:
    """Return how many terms the sum behind an element of the result has; 0: it is exact."""
    if node.outputs[0].dtype != "float32":
        return 0
    if node.op in _MOVES:
        return 0
    if node.op in ("ADD", "SUB", "MUL"):
        return 2
    if node.op in ("CONV_2D", "FULLY_CONNECTED", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"):
        weights = node.inputs[1]
        assert weights is not None
        axis = 3 if node.op == "DEPTHWISE_CONV_2D" else 0
        return int(np.prod(weights.shape) // max(1, weights.shape[axis])) + 1
    if node.op in ("AVERAGE_POOL_2D", "L2_POOL_2D"):
        return int(node.options["filter_height"] * node.options["filter_width"]) + 1
    if node.op in ("MEAN", "SUM", "CUMSUM", "BATCH_MATMUL", "REDUCE_PROD"):
        source = node.inputs[0]
        assert source is not None
        return int(np.prod(source.shape)) // max(1, int(np.prod(node.outputs[0].shape))) + int(
            max(source.shape, default=1)
        )
    if node.op == "RESIZE_BILINEAR":
        return 16  # four products of two weights, which are differences
    if node.op == "DEQUANTIZE":
        return 1
    if node.op in ("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION"):
        return _FUNCTIONS[node.op] + max(node.outputs[0].shape, default=1)
    return _FUNCTIONS.get(node.op, 0)


def _near(values: Array) -> Array:
    """Return each pixel's greatest neighbour: a weight of 0 may come out as a little more."""
    if values.ndim != 4 or values.dtype.kind != "f":
        return values
    wide = np.pad(values, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    height, width = values.shape[1:3]
    shifted = [wide[:, y : y + height, x : x + width] for y in range(3) for x in range(3)]
    return np.asarray(np.maximum.reduce(shifted))


def _abs(values: Array) -> Array:
    return np.asarray(np.abs(values)) if values.dtype.kind == "f" else values


def _absolute(graph: Graph) -> Graph:
    """Return the same model of absolute constants, without activations and differences."""
    replaced = {
        tensor: dataclasses.replace(tensor, data=_abs(tensor.data))
        if tensor.data is not None
        else tensor
        for tensor in graph.tensors
    }

    def changed(node: Node) -> Node:
        options: dict[str, Any] = dict(node.options)
        if "fused_activation_function" in options:
            options["fused_activation_function"] = "NONE"
        inputs = tuple(None if tensor is None else replaced[tensor] for tensor in node.inputs)
        outputs = tuple(replaced[tensor] for tensor in node.outputs)
        op, version = node.op, node.version
        if op == "SUB":
            op, version = "ADD", 1
            options.pop("pot_scale_int16", None)
        if op in ("NEG", "RELU6", "MINIMUM", "REDUCE_MIN"):
            op = {"NEG": "ABS", "RELU6": "RELU", "MINIMUM": "MAXIMUM"}.get(op, "REDUCE_MAX")
        return dataclasses.replace(
            node, op=op, version=version, inputs=inputs, outputs=outputs, options=options
        )

    return dataclasses.replace(
        graph,
        tensors=tuple(replaced.values()),
        nodes=tuple(map(changed, graph.nodes)),
        inputs=tuple(replaced[tensor] for tensor in graph.inputs),
        outputs=tuple(replaced[tensor] for tensor in graph.outputs),
    )

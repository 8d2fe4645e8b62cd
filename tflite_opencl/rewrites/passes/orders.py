# SPDX-License-Identifier: Apache-2.0
"""Nodes that compute the same in any order of dimensions, and the same node in another order.

An order is a TRANSPOSE's list: dimension i of what it makes is dimension order[i] of its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.editing import known_values, new_tensor

Order = tuple[int, ...]

# Functions of one element, or of elements that stand at one place.
_ELEMENT_WISE = (
    "ABS ADD CAST CEIL COS DEQUANTIZE DIV ELU EXP FLOOR HARD_SWISH LEAKY_RELU LOG LOGISTIC MAXIMUM"
    " MINIMUM MUL NEG POW QUANTIZE RELU RELU6 RELU_N1_TO_1 ROUND RSQRT SIN SQRT SQUARE"
    " SQUARED_DIFFERENCE SUB TANH"
)
# Op -> the first input that is not numbers to compute with.
_SIZES = {"PAD": 1, "PADV2": 1}
_ARITY = {"PAD": 2, "PADV2": 3}
# The op versions that brought types. Source: tflite/tools/versioning/op_version.cc
_TRANSPOSE_VERSIONS = {"int8": 2, "bool": 3, "int16": 4}


def order_of(graph: Graph, node: Node) -> Order | None:
    """Return a TRANSPOSE's order; None: it is no TRANSPOSE, or its order is not known."""
    arity = len(node.inputs), len(node.outputs)
    if node.op != "TRANSPOSE" or node.is_custom or arity != (2, 1):
        return None
    (source, order), result = node.inputs, node.outputs[0]
    values = known_values(graph, order)
    if source is None or values is None or values.dtype not in ("int32", "int64"):
        return None
    numbers = values.ravel().tolist()
    # Negative numbers count from the end.
    rank = len(source.shape)
    found = tuple(number + rank if number < 0 else number for number in numbers)
    if sorted(found) != list(range(rank)):
        return None
    return found if tuple(source.shape[i] for i in found) == result.shape else None


def inverse_of(order: Order) -> Order:
    """Return the order that undoes one."""
    return tuple(order.index(dimension) for dimension in range(len(order)))


def transpose(source: Tensor, result: Tensor, order: Order) -> Node:
    """Return a TRANSPOSE."""
    name = f"{result.name}/order"
    numbers = new_tensor(name, (len(order),), "int32", data=np.array(order, np.int32))
    version = _TRANSPOSE_VERSIONS.get(source.dtype, 1)
    return Node(-1, "TRANSPOSE", version, (source, numbers), (result,))


def before_order(tensor: Tensor, order: Order) -> Tensor:
    """Return a new computed tensor of which a TRANSPOSE of this order makes `tensor`."""
    back = inverse_of(order)
    made = new_tensor(
        f"{tensor.name}/before_transpose",
        [tensor.shape[i] for i in back],
        tensor.dtype,
        tensor.quantization,
    )
    signature = tensor.shape_signature
    return replace(made, shape_signature=tuple(signature[i] for i in back) if signature else ())


def computed_inputs(node: Node) -> list[Tensor]:
    """Return the inputs that hold numbers to compute with and are no constants."""
    inputs = node.inputs[: _SIZES.get(node.op)]
    return [tensor for tensor in inputs if tensor is not None and tensor.data is None]


def takes_any_order(graph: Graph, node: Node, rank: int) -> bool:
    """Whether `reordered` has the node in another order of this many dimensions."""
    if node.is_custom or len(node.outputs) != 1:
        return False
    if node.op not in (*_ELEMENT_WISE.split(), "CONCATENATION", *_SIZES):
        return False
    if len(node.inputs) != _ARITY.get(node.op, len(node.inputs)):
        return False
    if not -rank <= node.options.get("axis", 0) < rank:
        return False
    if any(tensor is None or tensor in graph.changeable for tensor in node.inputs):
        return False
    computed = [*computed_inputs(node), node.outputs[0]]
    constants = [t for t in node.inputs if t is not None and t.data is not None]
    if any(len(tensor.shape) != rank or tensor.is_variable for tensor in computed):
        return False
    if any(len(tensor.shape) > rank or tensor.is_sparse for tensor in constants):
        return False
    if any(t.quantization and len(t.quantization.scale) > 1 for t in (*computed, *constants)):
        return False
    if any(tensor.data.shape != tensor.shape for tensor in constants if tensor.data is not None):
        return False  # bytes of a type that numpy lacks
    sizes = node.inputs[1] if node.op in _SIZES else None
    if sizes is None:
        return True
    is_known = sizes.data is not None and sizes.dtype in ("int32", "int64")
    return is_known and sizes.shape == (rank, 2)


def reordered(node: Node, order: Order, tensors: Mapping[Tensor, Tensor]) -> Node:
    """Return the node that computes what a TRANSPOSE of `order` turns into the node's output.

    `tensors`: its computed inputs and its output -> the tensors before that TRANSPOSE.
    """
    numbers = node.inputs[: _SIZES.get(node.op)]
    inputs = [tensors[t] if t in tensors else _constant(t, order) for t in numbers if t is not None]
    options = dict(node.options)
    if node.op in _SIZES:
        amounts, *value = node.inputs[1:]
        assert amounts is not None
        rows = np.asarray(amounts.data)[list(inverse_of(order))]
        inputs.append(new_tensor(f"{amounts.name}/order", rows.shape, amounts.dtype, data=rows))
        inputs.extend(each for each in value if each is not None)
    elif node.op == "CONCATENATION":
        axis = options.get("axis", 0)
        options["axis"] = order[axis + len(order) if axis < 0 else axis]
    return replace(node, inputs=tuple(inputs), outputs=(tensors[node.outputs[0]],), options=options)


def _constant(tensor: Tensor, order: Order) -> Tensor:
    """Return a constant in the order before the TRANSPOSE; one number is the same in any order."""
    values = np.asarray(tensor.data)
    if values.size == 1:
        return tensor
    whole = values.reshape((1,) * (len(order) - values.ndim) + values.shape)
    moved = np.ascontiguousarray(whole.transpose(inverse_of(order)))
    name = f"{tensor.name}/order"
    return new_tensor(name, moved.shape, tensor.dtype, tensor.quantization, moved)

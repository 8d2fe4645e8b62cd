# SPDX-License-Identifier: Apache-2.0
"""The graphs of reported faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.conformance.cases._convolution import ConvCase, fully_connected
from tflite_opencl.conformance.cases._rows import UNIT, VERSIONS, one, step
from tflite_opencl.models.build import (
    Shape,
    constant,
    dtype_of,
    graph,
    integers,
    numbers,
    seeded,
    tensor,
    usual,
)

_PLAIN = {"fused_activation_function": "NONE"}


def binary(op: str, left: Shape, right: Shape, kind: str, is_constant: bool = False) -> Graph:
    """Return ADD or MUL of two shapes; `is_constant`: the second operand."""
    dtype = dtype_of(kind)
    second = usual(right, dtype)
    if is_constant:
        data = integers(seeded(right, kind), right, dtype) % 100
        second = replace(second, data=data)
    options, version = _PLAIN, VERSIONS.get(dtype, 1)
    return one(op, [usual(left, dtype), second], usual((1,), dtype, True), options, version)


def _step(op: str, inputs: Sequence[Tensor | None], *rest: object, like: str = "float32") -> Node:
    return step(op, inputs, [tensor((1,), like)], *rest)  # type: ignore[arg-type]


def masked(mask: Shape, kind: str) -> Graph:
    """Return softmax(q k^T scale + mask) v, with four heads."""
    q, k, v = (tensor((1, 4, 6, 8)) for _ in "qkv")
    logits = _step("BATCH_MATMUL", [q, k], {"adj_y": True})
    scaled = _step("MUL", [*logits.outputs, constant(np.float32(0.35))], _PLAIN)
    masked = _step("ADD", [*scaled.outputs, tensor(mask)], _PLAIN)
    shares = _step("SOFTMAX", masked.outputs, {"beta": 1.0})
    return graph([logits, scaled, masked, shares, _step("BATCH_MATMUL", [*shares.outputs, v])])


def rank_3(kind: str) -> Graph:
    """Return the attention of 4 heads as a batch, joined, projected and added to its input."""
    q, k, v, source = *(tensor((4, 6, 8)) for _ in "qkv"), tensor((1, 6, 32))
    rng = seeded("heads", kind)
    weights, bias = (
        constant(rng.standard_normal(shape).astype(np.float32)) for shape in ((32, 32), (32,))
    )
    nodes = [_step("BATCH_MATMUL", [q, k], {"adj_y": True})]
    nodes.append(_step("SOFTMAX", nodes[-1].outputs, {"beta": 1.0}))
    nodes.append(_step("BATCH_MATMUL", [*nodes[-1].outputs, v]))
    nodes.append(_step("TRANSPOSE", [*nodes[-1].outputs, numbers((1, 0, 2))]))
    nodes.append(_step("RESHAPE", [*nodes[-1].outputs, numbers((1, 6, 32))]))
    joined = {**_PLAIN, "keep_num_dims": True}
    nodes.append(_step("FULLY_CONNECTED", [*nodes[-1].outputs, weights, bias], joined))
    nodes.append(_step("ADD", [source, *nodes[-1].outputs], _PLAIN))
    return graph(nodes)


def sum_read_later(kind: str) -> Graph:
    """Return an ADD that is an output, and the SUM of its result."""
    left, right = (usual((1, 8, 6, 4), dtype_of(kind)) for _ in "ab")
    total, version = usual((1,), left.dtype, True), VERSIONS.get(left.dtype, 1)
    added = step("ADD", [left, right], [total], _PLAIN, version)
    summed = step("SUM", [*added.outputs, numbers((1, 2, 3))], [total], {"keep_dims": True},
                  VERSIONS.get(left.dtype, 1))  # fmt: skip
    return graph([added, summed], outputs=[*summed.outputs, *added.outputs])


def _conv(kind: str, source: Tensor | None = None, **keywords: object) -> Node:
    out = {"uint8": (0.03, 123), "int8": (0.03, -5)}.get(kind)
    size = source.shape[1:] if source else (8, 6, 4)
    made = ConvCase(size=size, out_c=4, out=out, **keywords)  # type: ignore[arg-type]
    return made.node(kind, source)


def _pool(source: Tensor) -> Node:
    options = {
        "padding": "SAME", "filter_height": 2, "filter_width": 2, "stride_h": 1, "stride_w": 1,
        **_PLAIN,
    }  # fmt: skip
    return step("MAX_POOL_2D", [source], [source], options, VERSIONS.get(source.dtype, 1))


def output_read_by(op: str, kind: str, is_deep: bool = False) -> Graph:
    """Return a convolution that is an output, and a node that reads it."""
    nodes = [_conv(kind)]
    if is_deep:
        nodes.append(_conv(kind, nodes[-1].outputs[0], fused="RELU"))
    outputs = [*nodes[-1].outputs]
    nodes.append(_pool(outputs[0]) if op == "MAX_POOL_2D" else _conv(kind, outputs[0]))
    return graph(nodes, outputs=[*outputs, *nodes[-1].outputs])


def pool_keeps_source(kind: str) -> Graph:
    """Return a MAX_POOL_2D and an ADD that reads the pool's source after it."""
    conv = _conv(kind, fused="RELU")
    pooled = _pool(*conv.outputs)
    again = step("ADD", [*conv.outputs, *pooled.outputs], conv.outputs, _PLAIN,
                 VERSIONS.get(pooled.outputs[0].dtype, 1))  # fmt: skip
    return graph([conv, pooled, again], outputs=[*pooled.outputs, *conv.outputs, *again.outputs])


def joined_with_itself(kind: str) -> Graph:
    """Return a CONCATENATION of a tensor with itself."""
    conv = _conv(kind)
    options, version = {"axis": 3, **_PLAIN}, VERSIONS.get(conv.outputs[0].dtype, 1)
    return graph([conv, step("CONCATENATION", [*conv.outputs] * 2, conv.outputs, options, version)])


def part_of_concatenation(kind: str) -> Graph:
    """Return a split whose second half goes through a bottleneck and is joined, too."""
    first = ConvCase(size=(8, 6, 4), out_c=8, out=(0.03, -5) if kind == "int8" else None)
    whole = first.node(kind, None)
    split = step("SPLIT", [numbers(3), *whole.outputs], [*whole.outputs] * 2, {"num_splits": 2})
    left, right = split.outputs
    inner = _conv(kind, right, fused="RELU")
    version = VERSIONS.get(right.dtype, 1)
    added = step("ADD", [right, *inner.outputs], [right], _PLAIN, version)
    parts = [left, right, *added.outputs]
    joined = step("CONCATENATION", parts, [right], {"axis": 3, **_PLAIN}, version)
    return graph([whole, split, inner, added, joined])


def summed(limits: tuple[float, float], kind: str) -> Graph:
    """Return the mean of squeeze and excite: a sum over height and width, then a scale."""
    summed = _step("SUM", [tensor((1, 56, 56, 8), limits=limits), numbers((1, 2))],
                   {"keep_dims": True})  # fmt: skip
    share = constant(np.float32(1 / 56**2))
    return graph([summed, _step("MUL", [*summed.outputs, share], _PLAIN)])


def normalised(kind: str) -> Graph:
    """Return a layer normalisation of values up to 800, in its parts."""
    source, axes = tensor((1, 6, 64), limits=(-800.0, 800.0)), numbers(2)
    mean = _step("MEAN", [source, axes], {"keep_dims": True})
    squares = _step("SQUARED_DIFFERENCE", [source, *mean.outputs])
    variance = _step("MEAN", [*squares.outputs, axes], {"keep_dims": True})
    positive = _step("ADD", [*variance.outputs, constant(np.float32(1e-5))], _PLAIN)
    spread = _step("RSQRT", positive.outputs)
    centred = _step("SUB", [source, *mean.outputs], _PLAIN)
    nodes = [mean, squares, variance, positive, spread, centred]
    return graph([*nodes, _step("MUL", [*centred.outputs, *spread.outputs], _PLAIN)])


def relu(kind: str) -> Graph:
    """Return a RELU of five values."""
    return one("RELU", [tensor((5,), kind, 0.1)], tensor((1,), kind, 0.1), {}, 2)


def residual(kind: str) -> Graph:
    """Return a hybrid FULLY_CONNECTED of rank 3 that is added to its input."""
    made = fully_connected(kind, (1, 6), 16, 16, keep_num_dims=True)
    (product,) = made.nodes
    source = made.inputs[0]
    return graph([product, _step("ADD", [source, *product.outputs], _PLAIN)], [source])


def positive_rows(batch: Shape, kind: str) -> Graph:
    """Return a FULLY_CONNECTED whose weights are positive, so that their sums are large."""
    made = fully_connected(kind, batch, 64, 12)
    (node,) = made.nodes
    weights = node.inputs[1]
    assert weights is not None
    assert weights.data is not None
    rows = np.abs(weights.data.astype(np.int16)).astype(np.int8)
    inputs = (node.inputs[0], replace(weights, data=rows), *node.inputs[2:])
    return graph([replace(node, inputs=inputs)])


def softmax(shape: Shape, kind: str) -> Graph:
    """Return a SOFTMAX."""
    out = tensor((1,), kind, *UNIT[kind])
    return one("SOFTMAX", [usual(shape, kind)], out, {"beta": 1.0}, VERSIONS.get(kind, 1))


def flattened(kind: str) -> Graph:
    """Return a RESHAPE of six channels to a row."""
    inputs = [usual((1, 19, 19, 6), kind), numbers((1, 2166))]
    return one("RESHAPE", inputs, usual((1,), kind), {"new_shape": (1, 2166)})


def reshaped(kind: str) -> Graph:
    """Return a convolution of one pixel whose result becomes a row."""
    conv = ConvCase(size=(1, 1, 16), out_c=10, kernel=(1, 1)).node(kind, None)
    options = {"new_shape": (1, 10)}
    return graph([conv, step("RESHAPE", [*conv.outputs, numbers((1, 10))], conv.outputs, options)])


def padded(shape: Shape, edges: Sequence[tuple[int, int]], kind: str) -> Graph:
    """Return a PAD by `edges`, before and after each axis."""
    inputs = [usual(shape, kind), numbers(edges)]
    return one("PAD", inputs, usual((1,), kind), {}, 2 if kind == "int8" else 1)


def depth_to_space(shape: Shape, kind: str) -> Graph:
    """Return a DEPTH_TO_SPACE by 4."""
    return one("DEPTH_TO_SPACE", [usual(shape, kind)], usual((1,), kind), {"block_size": 4})


def transposed(kind: str) -> Graph:
    """Return a TRANSPOSE between two convolutions."""
    conv = _conv(kind)
    turned = step("TRANSPOSE", [*conv.outputs, numbers((0, 2, 1, 3))], conv.outputs, {}, 2)
    return graph([conv, turned, _conv(kind, turned.outputs[0])])


def resized(kind: str) -> Graph:
    """Return a RESIZE_BILINEAR by two with half pixel centers."""
    source = usual((1, 5, 7, 12), kind)
    options = {"align_corners": False, "half_pixel_centers": True}
    inputs, version = [source, numbers((10, 14))], VERSIONS.get(kind, 1)
    return one("RESIZE_BILINEAR", inputs, source, options, version)

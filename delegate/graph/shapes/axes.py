# SPDX-License-Identifier: Apache-2.0
"""Shapes of ops that keep, join, split, repeat, reduce or permute dimensions.

Source: tflite/kernels/activations.cc, elementwise.cc, add.cc, comparisons.cc, select.cc,
concatenation.cc, pack.cc, unpack.cc, split.cc, split_v.cc, pad.cc, mirror_pad.cc, tile.cc,
broadcast_to.cc, fill.cc, one_hot.cc, shape.cc, rank.cc, range.cc, reshape.cc, squeeze.cc,
expand_dims.cc, transpose.cc, reduce.cc ResizeOutputTensor, rfft2d.cc, arg_min_max.cc, topk_v2.cc,
scatter_nd.cc
"""

from __future__ import annotations

import math

import numpy as np

from delegate.graph.ir import Node
from delegate.graph.shapes.rule import (
    Shape,
    axis_of,
    broadcast,
    integer,
    integers,
    output,
    outputs,
    pairs,
    replaced,
    shape,
)


@output(
    "ABS ATAN2 CAST CEIL COMPLEX_ABS COS CUMSUM DENSIFY DEQUANTIZE DYNAMIC_UPDATE_SLICE ELU EXP"
    " ADD_N FAKE_QUANT FLOOR GELU IMAG REAL"
    " HARD_SWISH L2_NORMALIZATION LEAKY_RELU LOCAL_RESPONSE_NORMALIZATION LOG LOGICAL_NOT LOGISTIC"
    " LOG_SOFTMAX MATRIX_SET_DIAG NEG PRELU QUANTIZE RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1"
    " REVERSE_SEQUENCE REVERSE_V2 ROUND RSQRT SIGN SIN SOFTMAX SQRT SQUARE TANH ZEROS_LIKE"
    " STABLEHLO_ADD STABLEHLO_AND STABLEHLO_MAXIMUM STABLEHLO_MINIMUM STABLEHLO_MULTIPLY"
    " STABLEHLO_SCATTER STABLEHLO_SHIFT_LEFT"
)
def _same(node: Node) -> Shape:
    return shape(node)


@output(
    "ADD BITWISE_XOR DIV EQUAL FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL"
    " LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM MUL NOT_EQUAL POW RIGHT_SHIFT SQUARED_DIFFERENCE SUB"
)
def _two(node: Node) -> Shape:
    return broadcast(shape(node, 0), shape(node, 1))


@output("SELECT SELECT_V2")
def _select(node: Node) -> Shape:
    condition, chosen, other = shapes = [shape(node, position) for position in range(3)]
    result = chosen
    if node.op == "SELECT_V2":
        result = broadcast(*shapes)
    elif chosen != other or condition not in (chosen, (), chosen[:1]):
        raise ValueError("SELECT does not broadcast")
    # ai-edge-litert does not resize an output recorded as a scalar if it gets one element.
    if node.outputs[0].shape == () and math.prod(result) == 1:
        raise ValueError("TFLite's runtimes differ")
    return result


@output("CONCATENATION")
def _concatenation(node: Node) -> Shape:
    shapes = [shape(node, position) for position in range(len(node.inputs))]
    axis = axis_of(node.options["axis"], len(shapes[0]))
    if len({replaced(each, axis, 0) for each in shapes}) > 1:
        raise ValueError("sizes that do not fit")
    return replaced(shapes[0], axis, sum(each[axis] for each in shapes))


def _with_one_more(sizes: Shape, axis: int, size: int) -> Shape:
    at = axis_of(axis, len(sizes) + 1)
    return (*sizes[:at], size, *sizes[at:])


@output("PACK")
def _pack(node: Node) -> Shape:
    (sizes,) = {shape(node, position) for position in range(len(node.inputs))}
    return _with_one_more(sizes, node.options["axis"], len(node.inputs))


@output("ONE_HOT")
def _one_hot(node: Node) -> Shape:
    return _with_one_more(shape(node), node.options["axis"], integer(node, 1))


@output("EXPAND_DIMS")
def _expand_dims(node: Node) -> Shape:
    return _with_one_more(shape(node), integer(node, 1), 1)


@outputs("UNPACK")
def _unpack(node: Node) -> list[Shape]:
    sizes = shape(node)
    axis = axis_of(node.options["axis"], len(sizes))
    if sizes[axis] != len(node.outputs):
        raise ValueError("another number of outputs")
    return [replaced(sizes, axis)] * len(node.outputs)


@output("ARG_MAX ARG_MIN")
def _arg_max(node: Node) -> Shape:
    sizes = shape(node)
    return replaced(sizes, axis_of(integer(node, 1), len(sizes)))


@outputs("SPLIT")
def _split(node: Node) -> list[Shape]:
    sizes, count = shape(node, 1), len(node.outputs)
    axis = axis_of(integer(node, 0), len(sizes))
    if node.options["num_splits"] != count or sizes[axis] % count:
        raise ValueError("parts of several sizes")
    return [replaced(sizes, axis, sizes[axis] // count)] * count


@outputs("SPLIT_V")
def _split_v(node: Node) -> list[Shape]:
    sizes, parts = shape(node), integers(node, 1)
    axis = axis_of(integer(node, 2), len(sizes))
    rest = sizes[axis] - sum(part for part in parts if part != -1)
    if parts.count(-1) == 1:
        parts[parts.index(-1)] = rest
    elif rest:
        raise ValueError("parts that do not add up")
    return [replaced(sizes, axis, part) for part in parts]


@output("MIRROR_PAD PAD PADV2")
def _pad(node: Node) -> list[int]:
    return [size + sum(pad) for size, pad in zip(shape(node), pairs(node, 1), strict=True)]


@output("STABLEHLO_PAD")
def _stablehlo_pad(node: Node) -> list[int]:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    rows = zip(shape(node), *(node.options[name] for name in names), strict=True)
    # An empty dimension has no interior padding.
    sizes = [low + size + max(size - 1, 0) * gap + high for size, low, high, gap in rows]
    return sizes if min(sizes) > 0 else [0] * len(sizes)


@output("TILE")
def _tile(node: Node) -> list[int]:
    return [size * times for size, times in zip(shape(node), integers(node, 1), strict=True)]


@output("BROADCAST_TO")
def _broadcast_to(node: Node) -> Shape:
    sizes = tuple(integers(node, 1))
    if broadcast(shape(node), sizes) != sizes:
        raise ValueError("it does not broadcast to that")
    return sizes


@output("FILL")
def _fill(node: Node) -> list[int]:
    return integers(node, 0)


@outputs("STABLEHLO_COMPOSITE")
def _composite(node: Node) -> list[Shape]:
    body = node.body
    shapes = [shape(node, position) for position in range(len(node.inputs))]
    if body is None or shapes != [tensor.shape for tensor in body.inputs]:
        raise ValueError("its decomposition has other shapes")
    return [tensor.shape for tensor in body.outputs]


@output("SEGMENT_SUM")
def _segment_sum(node: Node) -> Shape:
    return (integers(node, 1)[-1] + 1, *shape(node)[1:])


@output("SCATTER_ND")
def _scatter_nd(node: Node) -> list[int]:
    return integers(node, 2)


@output("SHAPE")
def _shape(node: Node) -> Shape:
    return (len(shape(node)),)


@output("RANK")
def _rank(node: Node) -> Shape:
    return ()


@output("RANGE")
def _range(node: Node) -> Shape:
    if node.outputs[0].dtype == "float32":
        start, limit, delta = (_float(node, position) for position in range(3))
        if (start > limit and delta > 0) or (start < limit and delta < 0):
            raise ValueError("no way to the limit")
        # In float32, as in TFLite.
        steps = (np.float32(limit) - np.float32(start)) / np.float32(delta)
        return (int(np.ceil(np.abs(steps))),)
    first, last, step = (integer(node, position) for position in range(3))
    if (first > last and step > 0) or (first < last and step < 0):
        raise ValueError("no way to the limit")
    return (len(range(first, last, step)),)


def _float(node: Node, position: int) -> float:
    given = node.inputs[position]
    if given is None or given.data is None or given.dtype != "float32" or given.data.size != 1:
        raise ValueError("no constant float")
    return float(given.data.item())


@output("RFFT2D")
def _rfft2d(node: Node) -> list[int]:
    height, width = integers(node, 1)
    return [*shape(node)[:-2], height, width // 2 + 1]


@output("RESHAPE")
def _reshape(node: Node) -> list[int]:
    sizes, given = _wanted(node), shape(node)
    if sizes.count(-1) == 1:
        rest = [size for size in sizes if size != -1]
        # Zero sizes on both sides determine nothing about the others.
        is_empty = 0 in given and 0 in rest
        whole, part = (
            math.prod(filter(None, each) if is_empty else each) for each in (given, rest)
        )
        sizes[sizes.index(-1)] = whole // part
    if math.prod(sizes) != math.prod(given):
        raise ValueError("another number of elements")
    return sizes


def _wanted(node: Node) -> list[int]:
    given = node.inputs[1] if len(node.inputs) == 2 else None
    if given is not None and given.data is None:
        raise ValueError("a computed shape")
    # TFLite uses the option if the input is not a vector of int32.
    if given is not None and given.dtype == "int32" and len(given.shape) == 1:
        return integers(node, 1)
    sizes = list(node.options["new_shape"])
    return [] if sizes == [0] else sizes  # old converters' scalar


@output("SQUEEZE")
def _squeeze(node: Node) -> list[int]:
    sizes = shape(node)
    dropped = {axis_of(axis, len(sizes)) for axis in node.options["squeeze_dims"]}
    if any(sizes[axis] != 1 for axis in dropped):
        raise ValueError("only a size of 1 is dropped")
    dropped = dropped or {axis for axis, size in enumerate(sizes) if size == 1}
    return [size for axis, size in enumerate(sizes) if axis not in dropped]


@output("TRANSPOSE")
def _transpose(node: Node) -> list[int]:
    sizes, order = shape(node), integers(node, 1)
    if len(order) != len(sizes):
        raise ValueError("an axis is left out")
    return [sizes[axis_of(axis, len(sizes))] for axis in order]


@output("MEAN REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD SUM")
def _reduce(node: Node) -> list[int]:
    sizes = shape(node)
    # For a scalar TFLite ignores the axes.
    axes = {axis_of(axis, len(sizes)) for axis in integers(node, 1)} if sizes else set()
    if node.options.get("keep_dims"):
        return [1 if axis in axes else size for axis, size in enumerate(sizes)]
    return [size for axis, size in enumerate(sizes) if axis not in axes]


@outputs("TOPK_V2")
def _topk_v2(node: Node) -> list[Shape]:
    return [(*shape(node)[:-1], integer(node, 1))] * 2

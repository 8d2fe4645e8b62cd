# SPDX-License-Identifier: Apache-2.0
"""Functions of one tensor or of two, and reductions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from delegate.inspect import Quantization, Tensor
from tests.attacks.fuzz.drawing import QUANT, Pen, Skip, numbers_of, scale_of
from tflite_opencl.conformance.cases.detections import post_process, suppression
from tflite_opencl.conformance.cases.stablehlo import reduced_windows
from tflite_opencl.models.build import FUSED, constant, graph, node, numbers, stored_as, tensor

_SAME = (
    "ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "GELU", "HARD_SWISH", "L2_NORMALIZATION",
    "LEAKY_RELU", "LOG", "LOGICAL_NOT", "LOGISTIC", "LOG_SOFTMAX", "NEG", "RELU", "RELU6",
    "RELU_0_TO_1", "RELU_N1_TO_1", "ROUND", "RSQRT", "SIGN", "SIN", "SOFTMAX", "SQRT",
    "SQUARE", "TANH",
)  # fmt: skip
_PAIRS = (
    "ADD", "ADD", "SUB", "MUL", "MUL", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "DIV",
    "FLOOR_DIV", "FLOOR_MOD", "POW", "LOGICAL_AND", "LOGICAL_OR",
)  # fmt: skip
_COMPARES = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
_REDUCES = (
    "MEAN", "MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL"
)  # fmt: skip


def same(pen: Pen) -> None:
    """A function of each element, or of each row."""
    op, x = pen.one_of(_SAME), pen.source()
    options: dict[str, Any] = {
        "SOFTMAX": {"beta": pen.one_of((1.0, 1.0, 0.5, 2.0, 0.1, 10.0))},
        "LEAKY_RELU": {"alpha": pen.one_of((0.0, 0.1, 0.3, 1.0, 1.7, -0.5))},
        "GELU": {"approximate": pen.may(0.5)},
    }.get(op, {})
    pen.add(op, [x], options)


def frequencies(pen: Pen) -> None:
    """RFFT2D, and a conversion of its results to floats."""
    x = pen.source(pen.one_of((2, 3, 4)), "float32")
    lengths = [1 << max(0, size.bit_length() - pen.one_of((0, 1))) for size in x.shape[-2:]]
    lengths = [1 if pen.may(0.3) else lengths[0], max(2, lengths[1])]
    (result,) = pen.add("RFFT2D", [x, numbers(lengths)], dtype="complex64")
    for op in pen.random.sample(("COMPLEX_ABS", "REAL", "IMAG"), pen.one_of((1, 1, 2))):
        pen.add(op, [result], dtype="float32")


def windows(pen: Pen) -> None:
    """STABLEHLO_REDUCE_WINDOW and REDUCE_WINDOW."""
    x = pen.source()
    rank = len(x.shape)
    rows = [[pen.one_of(each) for _ in x.shape] for each in ((1, 2, 3), (1, 1, 2), (1, 1, 2))]
    kind = x.dtype
    initial = pen.constant((), kind, ()) if pen.may(0.5) else constant(np.ones((), kind))
    if pen.may(0.3):
        how = pen.one_of(("ADD", "MUL", "MINIMUM", "MAXIMUM", "ALL", "ANY"))
        sizes = [numbers(row, "int64") for row in rows]
        pen.add(
            "REDUCE_WINDOW", [x, initial, *sizes], {"reduce_function": how}, given=numbers_of(x)
        )
        return
    body = pen.one_of(("ADD", "MUL", "MINIMUM", "MAXIMUM", "LOGICAL_AND", "LOGICAL_OR"))
    between = [pen.one_of((1, 1, 1, 2)) for _ in x.shape]
    padding = [pen.one_of((0, 0, 1, 2, -1)) for _ in range(2 * rank)]
    windows_ = rows[0], rows[1], between, rows[2], padding
    result = reduced_windows(x, initial, body, *map(tuple, windows_))
    if 0 in result.outputs[0].shape:
        raise Skip
    pen.join(result)


def pointwise(pen: Pen) -> None:
    """Nodes of one tensor and constants: batch norm, SiLU, and floats between 8 bits."""
    x = last = pen.source()
    inner: list[Tensor] = []
    if x.dtype in ("uint8", "int8") and pen.may(0.3):
        (last,) = pen.add("DEQUANTIZE", [x], dtype="float32")
        inner.append(last)
    for _ in range(pen.one_of((1, 2, 2, 3, 4))):
        if pen.may(0.4):
            op = pen.one_of(("RELU", "RELU6", "LEAKY_RELU", "LOGISTIC", "HARD_SWISH", "TANH"))
            (last,) = pen.add(op, [last], {"alpha": 0.3} if op == "LEAKY_RELU" else {})
        else:
            shape = pen.one_of(((), (1,), last.shape[-1:], last.shape[-1:]))
            others = [last, x if x.dtype == last.dtype else last]
            y = pen.one_of(others) if pen.may(0.4) else pen.constant(shape, last.dtype)
            (last,) = _combined(pen, pen.one_of(("ADD", "SUB", "MUL", "MUL")), last, y)
        inner.append(last)
    if last.dtype == "float32" and x.dtype != "float32":
        pen.add("QUANTIZE", [last], dtype=x.dtype, about=scale_of(x))
        pen.hide(last)
    for each in inner[:-1]:
        pen.hide(each)


def prelu(pen: Pen) -> None:
    x = pen.source(4)
    alpha = pen.one_of((x.shape[1:], (1, 1, x.shape[3]), (1, 1, 1)))
    pen.add("PRELU", [x, pen.constant(alpha, x.dtype)])


def pair(pen: Pen) -> None:
    op, x = pen.one_of(_PAIRS), pen.source()
    shape = pen.narrowed(x.shape)
    if op in ("DIV", "FLOOR_DIV", "FLOOR_MOD", "POW"):
        least = 1 if op != "POW" else 2
        data = pen.arrays.integers(least, 4 if op == "POW" else 100, shape)
        y = pen.constant(shape, x.dtype, data=data)
    else:
        y = pen.operand(shape, x.dtype, numbers_of(x) if pen.may(0.5) else None)
    _combined(pen, op, x, y)


def _combined(pen: Pen, op: str, x: Tensor, y: Tensor) -> list[Tensor]:
    options: dict[str, Any] = {}
    if op in ("ADD", "SUB", "MUL", "DIV"):
        options["fused_activation_function"] = pen.one_of(FUSED)
    if op in ("ADD", "SUB"):
        options["pot_scale_int16"] = False
    about = None
    if x.dtype in QUANT and op not in ("MAXIMUM", "MINIMUM"):
        left, right = scale_of(x), scale_of(y)
        values = 30.0 if x.dtype != "int16" else 8000.0
        about = {"ADD": left + right, "SUB": left + right, "DIV": left / right}.get(
            op, left * right * values
        )
    operands = [y, x] if pen.may(0.3) and y.data is None else [x, y]
    return pen.add(op, operands, options, about=about)


def several(pen: Pen) -> None:
    """ADD_N, SEGMENT_SUM, ZEROS_LIKE, BITWISE_XOR, RIGHT_SHIFT."""
    x = pen.source(dtype=pen.one_of(("float32", "int32")))
    op = pen.one_of(("ADD_N", "SEGMENT_SUM", "ZEROS_LIKE", "BITWISE_XOR", "RIGHT_SHIFT"))
    inputs = [x]
    if op == "ADD_N":
        inputs += [pen.operand(x.shape, x.dtype) for _ in range(pen.one_of((1, 2)))]
    elif op == "SEGMENT_SUM":
        steps = pen.arrays.integers(0, 2, x.shape[0])
        steps[0] = 0
        inputs.append(numbers(np.cumsum(steps)))
    elif op != "ZEROS_LIKE":
        inputs.append(pen.operand(pen.narrowed(x.shape), x.dtype))
    pen.add(op, inputs)


def plain(pen: Pen) -> None:
    """STABLEHLO_*, which does not broadcast."""
    x = pen.source()
    op = pen.one_of(("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM", "AND", "SHIFT_LEFT"))
    y = pen.operand(x.shape, x.dtype, numbers_of(x))
    if op == "SHIFT_LEFT":
        shifts = pen.arrays.integers(0, 31, x.shape, endpoint=True)
        y = pen.constant(x.shape, x.dtype, numbers_of(x), shifts)
    pen.add(f"STABLEHLO_{op}", [x, y])


def angle(pen: Pen) -> None:
    x = pen.source(dtype="float32")
    pen.add("ATAN2", pen.one_of(((x, pen.operand(x.shape, "float32")), (x, x))))


def compare(pen: Pen) -> None:
    x = pen.source()
    given = numbers_of(x) if pen.may(0.5) else None
    y = pen.operand(pen.narrowed(x.shape), x.dtype, given)
    pen.add(pen.one_of(_COMPARES), [x, y], dtype="bool")


def select(pen: Pen) -> None:
    x = pen.source()
    y = pen.operand(pen.narrowed(x.shape), x.dtype, numbers_of(x))
    condition = pen.operand(pen.narrowed(x.shape), "bool")
    pen.add(
        pen.one_of(("SELECT", "SELECT_V2")), [condition, *pen.one_of(((x, y), (y, x)))],
        dtype=x.dtype,
    )  # fmt: skip


def reduce(pen: Pen) -> None:
    x = pen.source()
    axes = pen.random.sample(range(len(x.shape)), pen.random.randint(1, len(x.shape)))
    if len(x.shape) == 4 and pen.may(0.4):
        axes = [1, 2]
    op, about = pen.one_of(_REDUCES), None
    if x.dtype in QUANT and op in ("MEAN", "SUM"):
        count = math.prod(x.shape[axis] for axis in axes)
        about = scale_of(x) * (1 if op == "MEAN" else math.sqrt(count))
    places = [axis - len(x.shape) for axis in axes] if pen.may(0.3) else axes
    pen.add(op, [x, numbers(places)], {"keep_dims": pen.may(0.5)}, about=about)


def along_an_axis(pen: Pen) -> None:
    op, x = pen.one_of(("ARG_MAX", "ARG_MIN", "CUMSUM", "REVERSE_V2")), pen.source()
    axis = pen.random.randrange(len(x.shape)) - (len(x.shape) if pen.may(0.3) else 0)
    kind = pen.one_of(("int32", "int64"))
    if op.startswith("ARG"):
        pen.add(op, [x, numbers(axis)], {"output_type": kind}, dtype=kind)
    elif op == "CUMSUM":
        pen.add(op, [x, numbers(axis)], {"exclusive": pen.may(0.5), "reverse": pen.may(0.5)})
    else:
        pen.add(op, [x, numbers([axis])])


def top(pen: Pen) -> None:
    """TOPK_V2, whose indices a GATHER may read."""
    x = pen.source()
    count = pen.random.randint(1, x.shape[-1])
    shape = (*x.shape[:-1], count)
    outputs = [tensor(shape, x.dtype, *numbers_of(x)), tensor(shape, "int32")]
    pen.join(node("TOPK_V2", [x, numbers(count)], outputs))


def embedding(pen: Pen) -> None:
    """EMBEDDING_LOOKUP or GATHER with indices of an ARG_MAX, or with constant ones."""
    width, count = pen.random.randint(1, 40), pen.random.randint(1, 20)
    scales = 10 ** pen.arrays.uniform(-3, -1, count if pen.may(0.5) else 1)
    data = pen.arrays.integers(-128, 127, (count, width), endpoint=True)
    table = constant(data.astype(np.int8), scales)
    stored = pen.one_of(("int8", "int8", "int4", "int4", "int2"))
    table = stored_as(table, stored)
    if pen.may(0.3):
        x = pen.operand((count, width), "float32")
        known = numbers(pen.arrays.integers(0, count, 5))
        pen.add("EMBEDDING_LOOKUP", [known, x], dtype="float32")
        return
    rows = pen.random.randint(1, 9)
    x = pen.input((rows, count), pen.one_of(("int8", "float32")))
    # as the delegate can prove
    limits = np.zeros(rows, np.int64), np.full(rows, count - 1, np.int64)
    places = replace(tensor((rows,), "int32"), ranges=limits)
    pen.join(node("ARG_MAX", [x, numbers(1)], [places], {"output_type": "int32"}))
    if stored == "int4" and pen.may(0.5):
        table = replace(table, quantization=Quantization((0.1,), (2,)))
        result = replace(table, shape=(rows, width), data=None)
        pen.join(node("GATHER", [table, places], [result]))
        if pen.may(0.3):
            flat = replace(result, shape=(rows * width,))
            pen.join(node("RESHAPE", [result, numbers(flat.shape)], [flat]))
            result = flat
        pen.add(pen.one_of(("DEQUANTIZE", "CAST")), [result], dtype="float32")
        return
    pen.add("EMBEDDING_LOOKUP", [places, table], dtype="float32")


def composite(pen: Pen) -> None:
    """STABLEHLO_COMPOSITE, decomposed into a maximum with a transposed operand."""
    x = pen.source()
    given, turned, larger = (tensor(x.shape, x.dtype, *numbers_of(x)) for _ in range(3))
    nodes = [
        node("REVERSE_V2", [given, numbers([0])], [turned]),
        node("MAXIMUM", [given, turned], [larger]),
    ]
    options = {"name": "odml.test", "composite_attributes": b"\0\0\1"}
    result = node("STABLEHLO_COMPOSITE", [x], [replace(larger)], options)
    pen.join(replace(result, body=graph(nodes, [given])))


def boxes(pen: Pen) -> None:
    """Non-maximum suppression of new inputs: the order of ties depends on TFLite's C++ library."""
    count, most = pen.random.randint(1, 90), pen.random.randint(1, 9)
    overlap = pen.one_of((0.2, 0.5, 0.9, 1.0))
    kind, sigma = pen.one_of(("float32", "uint8")), pen.one_of((None, None, 0.0, 0.5))
    columns = {"classes": pen.random.randint(1, 5), "has_background": pen.may(0.5)}
    result = pen.one_of(
        (
            post_process(count, most=most, dtype=kind, overlap=overlap, **columns),
            post_process(count, most=most, overlap=overlap, is_regular=True, **columns),
            suppression(count, most, overlap, sigma=sigma),
        )
    )
    pen.join(result.nodes[0])


def requantize(pen: Pen) -> None:
    """QUANTIZE or DEQUANTIZE."""
    x = pen.source()
    if pen.may(0.3):
        pen.add("DEQUANTIZE", [x], dtype="float32")
    else:
        pen.add("QUANTIZE", [x], dtype=pen.one_of(QUANT), about=scale_of(x))


# Frequencies.
OFTEN = (
    (6, pair), (8, same), (2, pointwise), (1, prelu), (3, reduce),
    (3, requantize), (1, select), (1, compare), (1, angle), (1, plain), (2, along_an_axis),
    (1, top), (1, composite), (1, embedding), (1, boxes), (1, frequencies), (1, windows),
    (1, several),
)  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""Float chains of transformers, which passes fuse."""

from __future__ import annotations

import numpy as np

from delegate.inspect import Tensor
from tests.attacks.fuzz.drawing import Pen, Skip
from tflite_opencl.models.build import as_int4, in_blocks, numbers

_PLAIN = {"fused_activation_function": "NONE"}


def _add(
    pen: Pen, op: str, inputs: list[Tensor], options: dict[str, object] | None = None
) -> Tensor:
    if pen.may(0.3) and op in ("MUL", "ADD"):
        inputs = inputs[::-1]
    (result,) = pen.add(op, inputs, dict(_PLAIN) if options is None else options)
    return result


def norm(pen: Pen) -> None:
    """RMS norm of rows."""
    x = pen.source(dtype="float32")
    square = _add(pen, "MUL", [x, x])
    mean = _add(pen, "MEAN", [square, numbers([len(x.shape) - 1])], {"keep_dims": True})
    epsilon = pen.constant((), "float32", data=np.float32(pen.one_of((1e-5, 1e-6, 0.1))))
    total = _add(pen, "ADD", [mean, epsilon])
    root = _add(pen, "RSQRT", [total], {})
    by_root = _add(pen, "MUL", [x, root])
    _add(pen, "MUL", [by_root, pen.constant(x.shape[-1:], "float32")])
    for inner in (square, mean, total, root, by_root):
        pen.hide(inner)


def layer_norm(pen: Pen) -> None:
    """Layer norm of rows."""
    x = pen.source(dtype="float32")
    axis = numbers([len(x.shape) - 1])
    mean = _add(pen, "MEAN", [x, axis], {"keep_dims": True})
    square = _add(pen, "SQUARED_DIFFERENCE", [x, mean], {})
    variance = _add(pen, "MEAN", [square, axis], {"keep_dims": True})
    epsilon = pen.constant((), "float32", data=np.float32(pen.one_of((1e-3, 1e-2, 0.1))))
    raised = _add(pen, "ADD", [variance, epsilon])
    root = _add(pen, "RSQRT", [raised], {})
    scale = _add(pen, "MUL", [root, pen.constant(x.shape[-1:], "float32")])
    by_mean = _add(pen, "MUL", [mean, scale])
    moved = _add(pen, "SUB", [pen.constant(x.shape[-1:], "float32"), by_mean])
    by_scale = _add(pen, "MUL", [x, scale])
    _add(pen, "ADD", [by_scale, moved])
    for inner in (mean, square, variance, raised, root, scale, by_mean, moved, by_scale):
        pen.hide(inner)


def layer_norm_of_vectors(pen: Pen) -> None:
    """Layer norm of rows without a scale, whose MEANs drop the dimensions of one element."""
    x = pen.source(dtype="float32")
    column = (*x.shape[:-1], 1)
    axes, back = numbers([k for k, n in enumerate(column) if n == 1]), numbers(column)
    mean = _add(pen, "MEAN", [x, axes], {"keep_dims": False})
    mean_column = _add(pen, "RESHAPE", [mean, back], {})
    square = _add(pen, "SQUARED_DIFFERENCE", [x, mean_column], {})
    variance = _add(pen, "MEAN", [square, axes], {"keep_dims": False})
    epsilon = pen.constant((), "float32", data=np.float32(pen.one_of((1e-3, 1e-2, 0.1))))
    raised = _add(pen, "ADD", [variance, epsilon])
    root = _add(pen, "RSQRT", [raised], {})
    by_mean = _add(pen, "MUL", [root, mean])
    less = _add(pen, "SUB", [pen.constant((), "float32", data=np.float32(0)), by_mean])
    root_column, moved = (_add(pen, "RESHAPE", [each, back], {}) for each in (root, less))
    by_scale = _add(pen, "MUL", [x, root_column])
    _add(pen, "ADD", [by_scale, moved])
    for inner in (mean, mean_column, square, variance, raised, root, by_mean, less, root_column,
                  moved, by_scale):  # fmt: skip
        pen.hide(inner)


def share(pen: Pen) -> None:
    """Floats times the logistic function of themselves, or of others."""
    x = pen.source(dtype="float32")
    logistic = _add(pen, "LOGISTIC", [x], {})
    _add(pen, "MUL", [x if pen.may(0.5) else pen.operand(x.shape, "float32"), logistic])
    pen.hide(logistic)


def scaled(pen: Pen) -> None:
    """Rows, optionally with a residual, scaled and shifted by column."""
    x = pen.source(dtype="float32")
    inner = [_add(pen, "ADD", [x, pen.operand(x.shape, "float32")])] if pen.may(0.6) else []
    last = inner[-1] if inner else x
    inner.append(_add(pen, "MUL", [last, pen.constant(x.shape[-1:], "float32")]))
    _add(pen, "ADD", [inner[-1], pen.constant(x.shape[-1:], "float32")])
    for each in inner:
        pen.hide(each)


def rope(pen: Pen) -> None:
    """Rotary embedding over halves of rows."""
    rank = pen.one_of((2, 3, 3, 4))
    shape = (*pen.shape(rank)[:-1], 2 * pen.one_of((1, 2, 4, 7, 8, 16)))
    x = pen.input(shape, "float32")
    half = (*shape[:-1], shape[-1] // 2)
    angles = half[pen.random.randint(0, rank - 1) :]
    cos, sin = (pen.operand(angles, "float32") for _ in range(2))
    one, two = (
        _add(pen, "SLICE", [x, numbers([0] * (rank - 1) + [at]), numbers(half)], {})
        for at in (0, half[-1])
    )
    products = [
        _add(pen, "MUL", [*pair]) for pair in ((one, cos), (two, sin), (two, cos), (one, sin))
    ]
    less = _add(pen, "SUB", products[:2])
    more = _add(pen, "ADD", products[2:])
    _add(pen, "CONCATENATION", [less, more], {"axis": rank - 1, **_PLAIN})
    for inner in (one, two, *products, less, more):
        pen.hide(inner)


def gate(pen: Pen) -> None:
    """SwiGLU's gate."""
    x = pen.source(dtype="float32")
    share = _add(pen, "LOGISTIC", [x], {})
    silu = _add(pen, "MUL", [x, share])
    _add(pen, "MUL", [silu, pen.operand(x.shape, "float32")])
    pen.hide(share)
    pen.hide(silu)


def attention(pen: Pen) -> None:
    """Attention, with or without a mask."""
    outer = pen.one_of(((1,), (2,), (3,), (1, 2), (2, 3)))
    rows, places = pen.one_of((1, 1, 3, 9, 19)), pen.one_of((1, 4, 7, 12, 33, 64))
    head = pen.one_of((1, 4, 8, 14, 16, 32, 64))
    queries = pen.input((*outer, rows, head), "float32")
    keys, values = (pen.operand((*outer, places, head), "float32") for _ in range(2))
    scores = _add(pen, "BATCH_MATMUL", [queries, keys], {"adj_x": False, "adj_y": True})
    inner = [scores]
    if pen.may(0.7):
        number = pen.constant((), "float32", data=np.float32(head**-0.5))
        inner.append(_add(pen, "MUL", [inner[-1], number]))
    if pen.may(0.7):
        counts = pen.arrays.integers(0, places, (pen.one_of((1, rows)), 1), endpoint=True)
        hidden = pen.one_of((-1e30, -1e9, -np.inf, float(np.finfo(np.float32).min)))
        mask = np.where(np.arange(places) < np.maximum(counts, 1), 0, hidden)
        shown = pen.constant(mask.shape, "float32", data=mask)
        inner.append(_add(pen, "ADD", [inner[-1], shown]))
    inner.append(_add(pen, "SOFTMAX", [inner[-1]], {"beta": 1.0}))
    _add(pen, "BATCH_MATMUL", [inner[-1], values], {"adj_x": False, "adj_y": False})
    for each in inner:
        pen.hide(each)


def shifts(pen: Pen) -> None:
    """Blockwise int4 weights, and a second product with the blocks' shifts."""
    if pen.length > 1:
        raise Skip  # the reference kernel, the oracle of longer graphs, ignores the scales
    size, blocks = pen.one_of(((32, 1), (32, 2), (32, 5), (64, 2), (8, 4), (10, 4)))
    rows, count = pen.one_of((1, 1, 2, 3, 7, 40)), pen.one_of((4, 7, 16, 17, 33, 40))
    x, sums = (pen.input((rows, width), "float32") for width in (size * blocks, blocks))
    data = pen.arrays.integers(-128, 127, (count, size * blocks), endpoint=True)
    values = as_int4(pen.constant(data.shape, "int8", (1.0, 0), data))
    weights = in_blocks(values, pen.arrays.uniform(1e-3, 0.1, (count, blocks)))
    options = {**_PLAIN, "keep_num_dims": True}
    hybrid = {**options, "asymmetric_quantize_inputs": True}
    one = _add(pen, "FULLY_CONNECTED", [x, weights], hybrid)
    two = _add(pen, "FULLY_CONNECTED", [sums, pen.constant((count, blocks), "float32")], options)
    _add(pen, "ADD", [one, two])
    pen.hide(one)
    pen.hide(two)


OFTEN = (
    (1, norm), (1, layer_norm), (1, layer_norm_of_vectors), (1, rope), (1, gate), (1, share),
    (1, attention), (1, shifts), (1, scaled),
)  # fmt: skip

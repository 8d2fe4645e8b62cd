# SPDX-License-Identifier: Apache-2.0
"""Sums of products, and nodes that passes fuse with them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from delegate.inspect import Quantization, Tensor
from tests.attacks.fuzz.drawing import CHANNELS, QUANT, Pen, Skip, numbers_of, scale_of
from tflite_opencl.models.build import FUSED, as_int4, in_blocks, numbers, stored_as

_MOST_STEPS = 10_000_000  # most multiplications of a node: TFLite's reference kernels are slow


def _weights(
    pen: Pen, x: Tensor, shape: tuple[int, ...], axis: int, may_have_zero: bool = True
) -> tuple[list[Any], float]:
    """Return weights, a bias, and the approximate scale of the sums.

    `may_have_zero`: whether TFLite accepts int8 weights with a zero point.
    """
    count = shape[axis]
    terms = math.prod(shape) // count
    if x.dtype not in QUANT:
        bias = pen.constant((count,), x.dtype) if pen.may(0.8) else None
        return [pen.constant(shape, x.dtype), bias], 1.0
    scale = math.exp(pen.random.uniform(math.log(1e-4), math.log(0.1)))
    if x.dtype == "uint8":
        weights = pen.constant(shape, "uint8", (scale, pen.numbers("uint8")[1]))  # type: ignore[misc]
        scales = np.array([scale])
    else:
        widest = pen.may(0.6)
        spread = (-12, 3) if pen.is_hard else (-3, 1)
        scales = scale * np.exp(pen.arrays.uniform(*spread, count if widest else 1))
        data = pen.arrays.integers(-127, 127, shape, endpoint=True)
        has_zero = may_have_zero and pen.may(0.15)
        zero = pen.numbers("int8")[1] if has_zero else 0  # type: ignore[misc]
        weights = dataclasses.replace(
            pen.constant(shape, "int8", (scale, 0), data),
            quantization=_numbers_of_channels(scales, axis, zero),
        )
    largest = int(127 * (255 if x.dtype != "int16" else 30000) * math.sqrt(terms))
    wide = "int64" if x.dtype == "int16" else "int32"
    own = scale_of(x)
    bias = dataclasses.replace(
        pen.constant((count,), wide, (), pen.arrays.integers(-largest, largest, count)),
        quantization=_numbers_of_channels(scales * own, 0),
    )
    about = own * scale * math.sqrt(terms) * 60
    return [weights, bias if x.dtype == "int16" or pen.may(0.85) else None], about


def _hybrid_weights(pen: Pen, shape: tuple[int, ...], axis: int) -> list[Any]:
    """Return hybrid weights of 8 bits or fewer, per tensor or per channel, and a bias."""
    scales = 10 ** pen.arrays.uniform(-3, -1, shape[axis] if pen.may(0.5) else 1)
    data = pen.arrays.integers(-127, 127, shape, endpoint=True)
    weights = dataclasses.replace(
        pen.constant(shape, "int8", (1.0, 0), data), quantization=_numbers_of_channels(scales, axis)
    )
    stored = stored_as(weights, pen.one_of(("int8",) * 6 + ("int4", "int2")))
    if len(shape) == 2 and shape[0] > 3 and shape[1] > 31 and pen.may(0.3):
        size = pen.one_of([each for each in (2, 8, 20, 32, 64) if shape[1] % each == 0] or [1])
        blocks = pen.arrays.uniform(1e-3, 0.1, (shape[0], shape[1] // size))
        stored = in_blocks(as_int4(weights), blocks)
    return [stored, pen.constant((shape[axis],), "float32") if pen.may(0.8) else None]


def _numbers_of_channels(scales: Any, axis: int, zero: int = 0) -> Quantization:
    """Return the per-channel quantisation of these scales along an axis."""
    rounded = tuple(float(np.float32(each)) for each in scales)
    return Quantization(rounded, (zero,) * len(rounded), axis)


def _places(pen: Pen) -> dict[str, Any]:
    """Return the options of a sliding window."""
    stride = pen.one_of((1, 1, 2, 3))
    return {
        "padding": pen.one_of(("SAME", "VALID")),
        "stride_h": stride,
        "stride_w": pen.one_of((1, 2, 3)) if pen.may(0.2) else stride,
        "fused_activation_function": pen.one_of(("NONE", *FUSED)),
    }


def _window(pen: Pen) -> tuple[int, int]:
    if pen.may(0.5):
        return (pen.one_of((1, 3)),) * 2
    return pen.one_of((1, 2, 3, 4, 5, 7)), pen.one_of((1, 2, 3, 4, 5, 7))


def conv_2d(pen: Pen, x: Tensor | None = None, options: dict[str, Any] | None = None) -> Tensor:
    """CONV_2D or DEPTHWISE_CONV_2D."""
    x = x or pen.source(4)
    channels, window = x.shape[3], _window(pen)
    dilations = {f"dilation_{axis}_factor": pen.one_of((1, 1, 1, 2, 3)) for axis in "hw"}
    options = _places(pen) | dilations | (options or {})
    if pen.may(0.45):
        options["depth_multiplier"] = pen.one_of((1, 1, 1, 1, 2, 3, 4, 8))
        shape, axis = (1, *window, channels * options["depth_multiplier"]), 3
    else:
        groups = 2 if channels % 2 == 0 and pen.may(0.08) else 1
        shape, axis = (pen.one_of(CHANNELS) * groups, *window, channels // groups), 0
    if math.prod(x.shape[:3]) * math.prod(shape) > _MOST_STEPS:
        raise Skip
    if x.dtype == "float32" and pen.may(0.4):
        weights, about = _hybrid_weights(pen, shape, axis), None
    else:
        weights, about = _weights(pen, x, shape, axis, may_have_zero=axis == 3)
    op = "DEPTHWISE_CONV_2D" if axis else "CONV_2D"
    inputs = [x, *(each for each in weights if each is not None)]
    return pen.add(op, inputs, options, about=about)[0]


def transpose_conv(pen: Pen) -> None:
    x = pen.source(4)
    n, h, w, c = x.shape
    window, padding = _window(pen), pen.one_of(("SAME", "VALID"))
    strides = pen.one_of((1, 2, 2, 3, 4)), pen.one_of((1, 2, 2, 3, 4))
    reach = [
        0 if padding == "SAME" else max(0, side - stride)
        for side, stride in zip(window, strides, strict=True)
    ]
    count = pen.one_of(CHANNELS)
    if math.prod(x.shape) * math.prod(window) * count > _MOST_STEPS:
        raise Skip
    if x.dtype == "float32" and pen.may(0.4):
        (weights, bias), about = _hybrid_weights(pen, (count, *window, c), 0), None
    else:
        (weights, bias), about = _weights(pen, x, (count, *window, c), 0)
    size = numbers((n, h * strides[0] + reach[0], w * strides[1] + reach[1], count))
    options = {"padding": padding, "stride_h": strides[0], "stride_w": strides[1]}
    activation = {"fused_activation_function": pen.one_of(("NONE", "NONE", "RELU", "RELU6"))}
    pen.add(
        "TRANSPOSE_CONV", [size, weights, x, *([] if bias is None else [bias])],
        options | activation, dtype=x.dtype, about=about,
    )  # fmt: skip


def conv_3d(pen: Pen) -> None:
    """CONV_3D or CONV_3D_TRANSPOSE."""
    x = pen.source(5, "float32")
    kernel = [pen.one_of((1, 2, 3)) for _ in "dhw"]
    strides = [pen.one_of((1, 1, 2, min(3, side))) for side in kernel]
    channels = x.shape[4], pen.one_of(CHANNELS[:14])
    if math.prod(x.shape) * math.prod(kernel) * channels[1] > _MOST_STEPS // 4:
        raise Skip
    options: dict[str, Any] = {"padding": pen.one_of(("SAME", "VALID"))}
    options["fused_activation_function"] = pen.one_of(("NONE", *FUSED))
    for axis, stride in zip("dhw", strides, strict=True):
        options |= {f"stride_{axis}": stride, f"dilation_{axis}_factor": 1}
    bias = [pen.constant((channels[1],), "float32")] if pen.may(0.7) else []
    if pen.may(0.5):
        weights = pen.constant((*kernel, *channels), "float32")
        pen.add("CONV_3D", [x, weights, *bias], options)
        return
    axes = zip(x.shape[1:4], kernel, strides, strict=True)
    is_same = options["padding"] == "SAME"
    wide = [n * s if is_same else (n - 1) * s + k for n, k, s in axes]
    weights = pen.constant((*kernel, *channels[::-1]), "float32")
    shape = numbers((x.shape[0], *wide, channels[1]))
    pen.add("CONV_3D_TRANSPOSE", [shape, weights, x, *bias], options, dtype="float32")


def fully_connected(pen: Pen) -> None:
    x = pen.source()
    is_flat = len(x.shape) > 2 and pen.may(0.3)
    width = math.prod(x.shape[1:] if is_flat else x.shape[-1:])
    count = pen.one_of((*CHANNELS, 100, 257))
    if count * math.prod(x.shape) > _MOST_STEPS or count * width > 400_000:
        raise Skip
    options = {"fused_activation_function": pen.one_of(FUSED)}
    if x.dtype == "float32" and pen.may(0.5):
        weights, about = _hybrid_weights(pen, (count, width), 0), None
        options["asymmetric_quantize_inputs"] = pen.may(0.6)
    elif x.dtype != "int16" and pen.may(0.3):  # a matrix that is not constant, or may not be
        weights = [pen.operand((count, width), x.dtype)]
        about = _about_product(x, weights[0], width)
    else:
        weights, about = _weights(pen, x, (count, width), 0)
    if weights[0].blocks is not None:  # TFLite ignores an activation
        options["fused_activation_function"] = "NONE"
    options["keep_num_dims"] = not is_flat and pen.may(0.4)
    pen.add("FULLY_CONNECTED", [x, *weights], options, about=about)


def batch_matmul(pen: Pen) -> None:
    x = pen.source(pen.one_of((2, 3, 4)))
    *batch, rows, inner = x.shape
    is_turned, other_turned = pen.may(0.25), pen.may(0.3)
    rows, inner = (inner, rows) if is_turned else (rows, inner)
    columns = pen.one_of(CHANNELS[:18])
    if math.prod(batch) * rows * inner * columns > _MOST_STEPS:
        raise Skip
    shape = (*pen.narrowed(tuple(batch)), *((columns, inner) if other_turned else (inner, columns)))
    options = {"adj_x": is_turned, "adj_y": other_turned}
    if x.dtype == "float32" and pen.may(0.3):
        data = pen.arrays.integers(-128, 127, shape, endpoint=True)
        y = pen.constant(shape, "int8", (0.02, 0), data)
        pen.add("BATCH_MATMUL", [x, y], options | {"asymmetric_quantize_inputs": pen.may(0.5)})
        return
    y = pen.operand(shape, x.dtype)
    pen.add("BATCH_MATMUL", [x, y], options, about=_about_product(x, y, inner))


def _about_product(x: Tensor, y: Tensor, terms: int) -> float | None:
    """Return a scale for sums of some products; None for floats."""
    if x.dtype not in QUANT:
        return None
    return scale_of(x) * scale_of(y) * math.sqrt(terms) * (60 if x.dtype != "int16" else 9000)


def pool(pen: Pen, x: Tensor | None = None) -> None:
    x = x or pen.source(4)
    h, w = (pen.one_of((1, 2, 3, 5, size)) for size in x.shape[1:3])
    op = pen.one_of(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"))
    pen.add(op, [x], _places(pen) | {"filter_height": h, "filter_width": w})


def padded(pen: Pen) -> None:
    """PAD, and a node that reads it."""
    x = pen.source(4)
    rows = [[0, 0], *([pen.random.randint(0, 3) for _ in "ab"] for _ in "hw"), [0, 0]]
    (y,) = pen.add("PAD", [x, numbers(rows)], given=numbers_of(x))
    pen.hide(y)
    if pen.may(0.2):
        pool(pen, y)
    else:
        conv_2d(pen, y, {"padding": "VALID"})


def residual(pen: Pen) -> None:
    """A convolution, and the sum of its output and another tensor."""
    y = conv_2d(pen)
    pen.hide(y)
    other = pen.operand(y.shape, y.dtype)
    about = scale_of(y) + scale_of(other)
    operands = [y, other] if pen.may(0.5) else [other, y]
    options = {"fused_activation_function": pen.one_of(FUSED), "pot_scale_int16": False}
    pen.add("ADD", operands, options, about=about)


# Frequencies.
OFTEN = (
    (6, conv_2d), (3, fully_connected), (2, transpose_conv), (3, pool), (1, conv_3d),
    (2, batch_matmul), (3, padded), (3, residual),
)  # fmt: skip

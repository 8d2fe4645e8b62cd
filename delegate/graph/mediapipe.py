# SPDX-License-Identifier: Apache-2.0
"""MediaPipe's custom ops, whose options are TFLite's own C structures.

Convolution2DTransposeBias is a builtin op of TFLite under another name. MaxPoolingWithArgmax2D also
returns where in its window each maximum was, and MaxUnpooling2D scatters values back there.
Source: mediapipe/util/tflite/operations/transpose_conv_bias.cc, max_pool_argmax.cc,
max_unpooling.cc, tflite/core/c/builtin_op_data.h TfLiteTransposeConvParams, TfLitePoolParams
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from delegate.graph.ir import Node, Tensor
from delegate.graph.pool_3d import POOLS_3D

TRANSPOSE_CONV_BIAS = "Convolution2DTransposeBias"
MAX_POOLING, MAX_UNPOOLING = "MaxPoolingWithArgmax2D", "MaxUnpooling2D"
# Ops that TFLite's Python packages have no kernel for.
LACKING = frozenset({TRANSPOSE_CONV_BIAS, MAX_POOLING, MAX_UNPOOLING, *POOLS_3D})
_PADDINGS = {1: "SAME", 2: "VALID"}
_WINDOW = struct.Struct("<3i")  # padding, the strides along x and y; the rest is not read
_POOL = struct.Struct("<6i")  # the same, the window's width and height, and the activation
_ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6")


def is_lacking(node: Node) -> bool:
    """Whether TFLite's Python packages lack a kernel for a node that the delegate supports."""
    return node.is_custom and node.op in LACKING


def transposed_shape(node: Node) -> tuple[int, int, int, int]:
    """Return the output shape of a TRANSPOSE_CONV_BIAS.

    Raises:
        ValueError: invalid options, or inputs of another rank.
    """
    padding, *strides = _window(node.options)
    source, weights = node.inputs[:2]
    if source is None or weights is None or not len(source.shape) == len(weights.shape) == 4:
        raise ValueError("a picture and OHWI weights are needed")
    (batch, *sizes, _), (channels, *taps, _) = source.shape, weights.shape
    high, wide = (
        stride * (size - 1)
        + tap
        - (max(0, tap - (size - 1) % stride - 1) if padding == "SAME" else 0)
        for size, tap, stride in zip(sizes, taps, reversed(strides), strict=True)
    )
    if max(high, wide) >= 2**31:
        raise ValueError(f"an output of {high}x{wide}: beyond 32 bits")
    return batch, high, wide, channels


def as_transpose_conv(node: Node) -> Node:
    """Return the TRANSPOSE_CONV that is equivalent to a TRANSPOSE_CONV_BIAS.

    Raises:
        ValueError: invalid options, or inputs of another number or rank.
    """
    padding, stride_w, stride_h = _window(node.options)
    if len(node.inputs) != 3:
        raise ValueError(f"{len(node.inputs)} inputs: 3 are expected")
    source, weights, bias = node.inputs
    sizes = np.array(transposed_shape(node), np.int32)
    shape = Tensor(-1, "shape", (4,), "int32", data=sizes)
    options = {
        "padding": padding,
        "stride_w": stride_w,
        "stride_h": stride_h,
        "fused_activation_function": "NONE",
    }
    return replace(
        node,
        op="TRANSPOSE_CONV",
        version=3,
        inputs=(shape, weights, source, bias),
        options=options,
        is_custom=False,
    )


def transpose_conv_bias_options(padding: str, stride_w: int, stride_h: int) -> dict[str, Any]:
    """Return the options of a TRANSPOSE_CONV_BIAS."""
    (number,) = (number for number, name in _PADDINGS.items() if name == padding)
    return {"custom_options": _WINDOW.pack(number, stride_w, stride_h)}


def pooling_of(node: Node) -> dict[str, Any]:
    """Return the options of a MAX_POOLING or MAX_UNPOOLING as those of TFLite's pools.

    Raises:
        ValueError: missing or invalid options.
    """
    padding, stride_w, stride_h = _window(node.options)
    content = node.options["custom_options"]
    if len(content) < _POOL.size:
        raise ValueError("no options")
    width, height, activation = _POOL.unpack_from(content)[3:]
    if min(width, height) < 1 or not 0 <= activation < len(_ACTIVATIONS):
        raise ValueError(f"window {height}x{width}, activation {activation}: no pool")
    return {
        "padding": padding,
        "stride_w": stride_w,
        "stride_h": stride_h,
        "filter_width": width,
        "filter_height": height,
        "fused_activation_function": _ACTIVATIONS[activation],
    }


def pooling_options(
    padding: str, strides: tuple[int, int], window: tuple[int, int], activation: str = "NONE"
) -> dict[str, Any]:
    """Return the options of a MAX_POOLING or MAX_UNPOOLING; `strides`, `window`: rows, columns."""
    (number,) = (number for number, name in _PADDINGS.items() if name == padding)
    numbers = number, *reversed(strides), *reversed(window), _ACTIVATIONS.index(activation)
    return {"custom_options": _POOL.pack(*numbers) + bytes(16)}  # what a run of TFLite's computes


def _window(options: Mapping[str, Any]) -> tuple[str, int, int]:
    """Return the padding and the strides along x and y.

    Raises:
        ValueError: missing or invalid options.
    """
    content = options.get("custom_options")
    if not isinstance(content, bytes) or len(content) < _WINDOW.size:
        raise ValueError("no options")
    padding, stride_w, stride_h = _WINDOW.unpack_from(content)
    if padding not in _PADDINGS or min(stride_w, stride_h) < 1:
        raise ValueError(f"padding {padding}, strides {stride_w} and {stride_h}: no window")
    return _PADDINGS[padding], stride_w, stride_h

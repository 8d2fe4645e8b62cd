# SPDX-License-Identifier: Apache-2.0
"""MediaPipe's MaxPoolingWithArgmax2D and MaxUnpooling2D, for which TFLite has no kernels."""

from __future__ import annotations

import math
from typing import Any

from delegate.errors import Unsupported
from delegate.graph.float_results import SELECTS
from delegate.graph.ir import Node, Tensor
from delegate.graph.mediapipe import pooling_of
from delegate.launch import Alternative, Params
from delegate.ops._checks.activations import float_bounds
from delegate.ops._checks.node import elements_of, inputs_of, require_same_shape, require_shape
from delegate.ops._checks.windows import window
from delegate.ops._launches.tiles import launch_over, most_rounds, one_each, over_elements
from delegate.ops._registry import lowers
from delegate.target import Target

_MOST_PIXELS = most_rounds(1, 10_000)  # of a window: a loop round each
_FILE = "max_pooling"


@lowers("MaxPoolingWithArgmax2D", floats=SELECTS, is_custom=True)
def lower_max_pooling(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the maximum of each window, and its position there: the row-major index plus 0.1.

    Shapes:
        input (n, h, w, c) -> output and positions (n, oh, ow, c)
    Raises:
        Unsupported: types other than float32, invalid options, too large a window.
    Source: mediapipe/util/tflite/operations/max_pool_argmax.cc
    """
    (source,), _ = inputs_of(node.inputs, 1)
    if len(node.outputs) != 2:
        raise Unsupported(f"{len(node.outputs)} outputs: 2 are expected")
    result, positions = node.outputs
    _require_floats(source, result, positions)
    options = _options(node)
    height, width = options["filter_height"], options["filter_width"]
    area = window(source, result, height, width, options)
    if height * width > _MOST_PIXELS:
        raise Unsupported(f"a window of {height * width} pixels: at most {_MOST_PIXELS}")
    require_shape(result, (*result.shape[:3], source.shape[3]))
    require_same_shape(result, positions)
    params: Params = {
        "input": source,
        "output": result,
        "places_output": positions,
        **area.params(),
        "depth": source.shape[3],
        **float_bounds(options["fused_activation_function"]),
        "elements": elements_of(result),
    }
    launch = launch_over(_FILE, f"{_FILE}_float", one_each(math.prod(result.shape)), params)
    return (Alternative("plain", (launch,)),)


@lowers("MaxUnpooling2D", floats=SELECTS, is_custom=True)
def lower_max_unpooling(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Write each value at its position in its window, and zeros elsewhere; skip invalid positions.

    Shapes:
        input and positions (n, h, w, c) -> output (n, h * rows, w * columns, c)
    Raises:
        Unsupported: types other than float32, invalid options, windows that overlap or leave gaps.
    Source: mediapipe/util/tflite/operations/max_unpooling.cc
    """
    (source, positions), _ = inputs_of(node.inputs, 2)
    if len(node.outputs) != 1:
        raise Unsupported(f"{len(node.outputs)} outputs: 1 is expected")
    (result,) = node.outputs
    _require_floats(source, positions, result)
    options = _options(node)
    height, width = options["filter_height"], options["filter_width"]
    if (options["stride_h"], options["stride_w"]) != (height, width):
        raise Unsupported(
            f"window {height}x{width}, stride {options['stride_h']}x{options['stride_w']}: "
            "the stride must equal the window"
        )
    require_same_shape(source, positions)
    if len(source.shape) != 4:
        raise Unsupported(f"rank {len(source.shape)}: only 4 (NHWC)")
    batch, rows, columns, depth = source.shape
    require_shape(result, (batch, rows * height, columns * width, depth))
    params: Params = {
        "input": source,
        "places": positions,
        "output": result,
        "in_w": columns,
        "kernel_h": height,
        "kernel_w": width,
        "depth": depth,
    }
    kernel = f"{_FILE}_undone_float"
    launch = over_elements(_FILE, kernel, elements_of(result), target, params)
    return (Alternative("plain", (launch,)),)


def _options(node: Node) -> dict[str, Any]:
    try:
        return pooling_of(node)
    except ValueError as error:
        raise Unsupported(str(error)) from None


def _require_floats(*tensors: Tensor) -> None:
    for tensor in tensors:
        if tensor.dtype != "float32":
            raise Unsupported(f"{tensor.dtype}: only float32")

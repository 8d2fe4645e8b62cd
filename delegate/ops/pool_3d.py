# SPDX-License-Identifier: Apache-2.0
"""The custom ops MaxPool3D and AveragePool3D: vectors of channels, and plain."""

from __future__ import annotations

import math
from typing import Any

from delegate.errors import Unsupported
from delegate.graph.float_results import SELECTS, Growth, sums
from delegate.graph.ir import Node
from delegate.graph.pool_3d import MAX_POOL_3D, pool_3d_of
from delegate.launch import Alternative, Defines, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import bounds_of
from delegate.ops._checks.node import require_shape, require_types, shape_text, tensors_of
from delegate.ops._checks.windows import AXES_3D, window_3d
from delegate.ops._launches.tiles import by_work, lanes_of, launch_over, most_rounds, vectors_of
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

# In-bounds pixels of a window: up to three loop rounds each. Sums of so many fit 32 bits, too.
_MOST_PIXELS = most_rounds(3, 1_000)
_FILE = "pool_3d"


@lowers("MaxPool3D", floats=SELECTS, is_custom=True)
@lowers("AveragePool3D", "AvgPool3D", floats=sums(Growth.STEADY), is_custom=True)
def lower_pool_3d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Reduce every window of an NDHWC tensor over its in-bounds pixels.

    Shapes:
        input (n, d, h, w, c) -> output (n, od, oh, ow, c)
    Raises:
        Unsupported: types other than int8, int16 and float32, input and output quantisation that
            differ, invalid options, too large a window.
    Source: tflite/kernels/pooling3d.cc
    """
    source, result = tensors_of(node, 1)
    require_types(source, result, ("int8", "int16", "float32"))
    is_float = source.dtype == "float32"
    types = quantized.QUANT
    if not is_float and quantized.per_tensor(source, types) != quantized.per_tensor(result, types):
        raise Unsupported("the scale or zero point changes: TFLite's kernel would not rescale")
    if len(source.shape) != 5:
        raise Unsupported(f"shape {shape_text(source)}: rank 5 (NDHWC) is needed")
    options = _options(node)
    window = window_3d(source, [options[f"filter_{axis}"] for axis in AXES_3D], options)
    channels = source.shape[4]
    sizes = (window[f"out_{axis}"] for axis in AXES_3D)
    require_shape(result, (source.shape[0], *sizes, channels))
    pixels = math.prod(min(window[f"kernel_{a}"], window[f"in_{a}"]) for a in AXES_3D)
    if pixels > _MOST_PIXELS:
        raise Unsupported(f"a window of {pixels} pixels: at most {_MOST_PIXELS} are implemented")
    fields: Params = {
        "input": source,
        "output": result,
        **window,
        "channels": channels,
        **bounds_of(result, "NONE"),
    }
    kernel = f"{_FILE}_{'float' if is_float else 'quant8'}"

    def alternative(lanes: int, name: str) -> Alternative:
        blocks = ceil_div(channels, lanes)
        items = math.prod(result.shape) // channels * blocks
        defines: Defines = {
            "TAKES_MAX": int(node.op == MAX_POOL_3D),
            **({} if is_float else {"ELEM": ELEM[source.dtype]}),
            **vectors_of(channels, lanes, target),
        }
        params = fields | {"channel_blocks": blocks, "items": items}
        tiling = by_work(items, pixels, target, max(1, _MOST_PIXELS // pixels))
        return Alternative(name, (launch_over(_FILE, kernel, tiling, params, defines),))

    lanes = lanes_of(channels, target, 16 if is_float else 8)
    vectors = [alternative(lanes, f"vector {lanes}")] if lanes else []
    return (*vectors, alternative(1, "plain"))


def _options(node: Node) -> dict[str, Any]:
    try:
        return pool_3d_of(node)
    except ValueError as error:
        raise Unsupported(f"custom options: {error}") from None

# SPDX-License-Identifier: Apache-2.0
"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D: plain, and over vectors of channels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Defines, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import activation_of, bounds_of
from delegate.ops._checks.node import integer, tensors_of
from delegate.ops._checks.windows import Window, window
from delegate.ops._launches.tiles import (
    by_work,
    lanes_of,
    launch_over,
    most_rounds,
    one_each,
    vectors_of,
)
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

# Of a window in bounds: a round each. The window's sums fit 32 bits, too.
_MOST_PIXELS = most_rounds(1, 10_000)


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """A checked pooling as its kernels see it."""

    source: Tensor
    result: Tensor
    area: Window
    clamp: dict[str, int]
    defines: Defines

    @property
    def pixels(self) -> int:
        """The most pixels of a window in bounds."""
        area = self.area
        return min(area.kernel_h, area.in_h) * min(area.kernel_w, area.in_w)

    @property
    def family(self) -> str:
        """The types, as kernels' names have them."""
        return "float" if self.source.dtype == "float32" else "quant8"

    def params(self) -> Params:
        """The fields every kernel reads."""
        return {
            "input": self.source,
            "output": self.result,
            **self.area.params(),
            "depth": self.source.shape[3],
            **self.clamp,
        }


@lowers("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def lower_pool_2d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Reduce every window of an NHWC tensor over its in-bounds pixels.

    Shapes:
        input (n, h, w, c) -> output (n, oh, ow, c)
    Raises:
        Unsupported: other types than uint8, int8, int16 and float32, of L2_POOL_2D than float32;
            quantisation that differs across the op; too large a window.
    Source: tflite/kernels/internal/reference/pooling.h, integer_ops/pooling.h
    """
    return alternatives(decode(node), target)


def decode(node: Node) -> Pool:
    """Return what a node pools, checked.

    Raises:
        Unsupported: see `lower_pool_2d`.
    """
    source, result = tensors_of(node, 1)
    if source.dtype != result.dtype:
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: they must be equal")
    is_float = source.dtype == "float32"
    types = quantized.QUANT
    if node.op == "L2_POOL_2D" and not is_float:
        raise Unsupported(f"{source.dtype}: only float32 is implemented")
    if not is_float and quantized.per_tensor(source, types) != quantized.per_tensor(result, types):
        raise Unsupported("the scale or zero point changes: TFLite's kernel would not rescale")
    options = node.options
    kernel_h, kernel_w = integer(options, "filter_height", 0), integer(options, "filter_width", 0)
    area = window(source, result, kernel_h, kernel_w, options)
    pixels = min(kernel_h, area.in_h) * min(kernel_w, area.in_w)
    if pixels > _MOST_PIXELS:
        raise Unsupported(f"a window of {pixels} pixels: at most {_MOST_PIXELS} are implemented")
    if result.shape[3] != source.shape[3]:
        raise Unsupported(
            f"{source.shape[3]} channels in, {result.shape[3]} out: they must be equal"
        )
    defines: Defines = {"TAKES_MAX": int(node.op == "MAX_POOL_2D")}
    clamp = bounds_of(result, activation_of(node))
    if is_float:
        defines["IS_L2"] = int(node.op == "L2_POOL_2D")
    else:
        defines["ELEM"] = ELEM[source.dtype]
    return Pool(source, result, area, clamp, defines)


def alternatives(pool: Pool, target: Target) -> tuple[Alternative, ...]:
    """Return the launch over vectors of channels, if they fill one, then the plain one."""
    elements, depth = math.prod(pool.result.shape), pool.source.shape[3]
    plain = launch_over(
        "pool_2d",
        f"pool_2d_{pool.family}",
        one_each(elements),
        pool.params() | {"elements": elements},
        pool.defines,
    )
    is_narrow = pool.family != "float" and not pool.defines["TAKES_MAX"]
    lanes = lanes_of(depth, target, 8 if is_narrow else 16)
    if lanes == 0:
        return (Alternative("plain", (plain,)),)
    channel_blocks = ceil_div(depth, lanes)
    items = elements // depth * channel_blocks
    vector = launch_over(
        "pool_2d",
        f"pool_2d_vector_{pool.family}",
        by_work(items, pool.pixels, target, _MOST_PIXELS // pool.pixels),
        pool.params() | {"items": items, "channel_blocks": channel_blocks},
        pool.defines | vectors_of(depth, lanes, target),
    )
    return (Alternative(f"vector {lanes}", (vector,)), Alternative("plain", (plain,)))

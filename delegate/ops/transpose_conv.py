# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV: plain for every type, and over vectors of channels for 8 bits and floats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import float_bounds, quantized_bounds
from delegate.ops._checks.node import inputs_of, output_of, require_constant
from delegate.ops._checks.shapes import shape_text
from delegate.ops._checks.windows import Window, window
from delegate.ops._convolution.float_constants import (
    float_bias,
    packed,
    require_float_weights,
    zeros,
)
from delegate.ops._convolution.records import channel_rows, require_quant8_weights
from delegate.ops._launches.tiles import by_share, lanes_of
from delegate.ops._launches.types import ELEM
from delegate.ops._launches.wide_sums import require_16x8, wide_sums
from delegate.ops._registry import lowers
from delegate.target import Target

TILE_W = 4  # output pixels a work-item, a stride apart

Params = dict[str, int | Tensor | Constant]


@lowers("TRANSPOSE_CONV")
def lower_transpose_conv(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Spread an NHWC tensor by constant OHWI weights to a constant size.

    Shapes:
        output shape (4,), weights (o, kh, kw, i), input (n, h, w, i), bias (o,)
        -> output (n, oh, ow, o)
    Raises:
        Unsupported: a computed shape or weights, shapes that do not fit, other types.
    Source: tflite/kernels/transpose_conv.cc, internal/reference/transpose_conv.h,
    integer_ops/transpose_conv.h
    """
    (shape, weights, source), (bias,) = inputs_of(node.inputs, 3, 1)
    result = output_of(node.outputs)
    if source.dtype == result.dtype == "float32":
        require_float_weights(weights)
        return _floats(_spread(node, shape, weights, source, result), bias, target)
    if source.dtype == result.dtype == "int16":
        require_16x8(source, weights, result)
        return _quant16(_spread(node, shape, weights, source, result), bias, target)
    require_quant8_weights(source, weights, result)
    return _quant8(_spread(node, shape, weights, source, result), bias, target)


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """A node as its kernels see it; `area` is the convolution from the output to the input."""

    source: Tensor
    weights: Tensor
    values: NDArray[np.generic]  # (out_c, taps, in_c) as stored
    result: Tensor
    area: Window
    activation: object

    @property
    def out_c(self) -> int:
        """Output channels."""
        return self.weights.shape[0]

    @property
    def in_c(self) -> int:
        """Input channels."""
        return self.weights.shape[3]

    def params(self) -> Params:
        """The fields every kernel reads; sizes of the input and the output as the node has them."""
        area = self.area
        return {
            "input": self.source,
            "output": self.result,
            **area.params(),
            "in_h": area.out_h,
            "in_w": area.out_w,
            "out_h": area.in_h,
            "out_w": area.in_w,
            "in_c": self.in_c,
            "out_c": self.out_c,
        }

    def plain(self, family: str, params: Params, defines: dict[str, int | str]) -> Alternative:
        """Return the launch of one work-item an output element."""
        elements = self.source.shape[0] * self.area.in_h * self.area.in_w * self.out_c
        launch = Launch(
            "transpose_conv",
            f"transpose_conv_{family}",
            tiles=-(-elements // 64),
            group_items=64,
            params=self.params()
            | {"weights": Constant(self.values.nbytes, lambda: self.values)}
            | params
            | {"elements": elements, "tile_items": 64},
            reads=(self.source,),
            writes=(self.result,),
            defines=defines,
        )
        return Alternative("plain", (launch,))

    def vector(
        self,
        family: str,
        lanes: int,
        params: Params,
        defines: dict[str, int | str],
        target: Target,
    ) -> Alternative:
        """Return the launch of LANES channels x TILE_W pixels a work-item."""
        area = self.area
        phases = min(area.stride_w, area.in_w)
        tile_w = TILE_W if area.in_w // area.stride_w >= TILE_W else 1
        columns = -(-area.in_w // area.stride_w)
        row_blocks = -(-columns // tile_w)
        pixel_blocks = self.source.shape[0] * area.in_h * phases * row_blocks
        blocks = -(-self.out_c // lanes)
        tile_items = by_share(blocks * pixel_blocks, target, most=pixel_blocks).tile_items
        block_tiles = -(-pixel_blocks // tile_items)
        launch = Launch(
            "transpose_conv",
            f"transpose_conv_vector_{family}",
            tiles=block_tiles * blocks,
            group_items=target.group_items,
            params=self.params()
            | params
            | {
                "phases": phases,
                "row_blocks": row_blocks,
                "pixel_blocks": pixel_blocks,
                "block_tiles": block_tiles,
                "tile_items": tile_items,
            },
            reads=(self.source,),
            writes=(self.result,),
            defines=defines | {"LANES": lanes, "TILE_W": tile_w},
        )
        return Alternative(f"vector {lanes}x{tile_w}", (launch,))


def _spread(node: Node, shape: Tensor, weights: Tensor, source: Tensor, result: Tensor) -> Spread:
    if shape.dtype != "int32" or shape.shape != (4,):
        raise Unsupported(f"output shape {shape.dtype} of {shape.shape}: int32 of (4,) is needed")
    wanted = tuple(np.asarray(require_constant(shape, "output shapes")).tolist())
    if len(weights.shape) != 4 or 0 in weights.shape:
        raise Unsupported(f"weights {shape_text(weights)}: rank 4 (OHWI) is needed")
    out_c, kernel_h, kernel_w, in_c = weights.shape
    if result.shape != wanted or len(source.shape) != 4:
        raise Unsupported(
            f"shapes {shape_text(source)} -> {shape_text(result)}: "
            f"{'x'.join(map(str, wanted))} of an NHWC tensor is computed"
        )
    if source.shape[3] != in_c or result.shape[3] != out_c:
        raise Unsupported(
            f"{source.shape[3]} input and {result.shape[3]} output channels: "
            f"the weights have {in_c} and {out_c}"
        )
    options = {
        name: value for name, value in node.options.items() if not name.startswith("dilation")
    }
    area = window(result, source, kernel_h, kernel_w, options)
    values = require_constant(weights, "weights").reshape(out_c, -1, in_c)
    activation = node.options.get("fused_activation_function", "NONE")
    return Spread(source, weights, values, result, area, activation)


def _quant8(spread: Spread, bias: Tensor | None, target: Target) -> tuple[Alternative, ...]:
    source, weights, result = spread.source, spread.weights, spread.result
    (_, input_zero), (_, output_zero) = quantized.per_tensor(source), quantized.per_tensor(result)
    weight_zero = quantized.weight_scales(weights, 0)[1]
    values = quantized.int32_bias(bias, spread.out_c)
    low, high = quantized_bounds(result, spread.activation)
    scaling = quantized.convolution_multipliers(
        source, weights, result, 0, per_channel=source.dtype == "int8"
    )
    common: Params = {
        "channels": channel_rows(lambda: values, scaling),
        "input_zero": input_zero,
        "output_zero": output_zero,
        "output_min": low,
        "output_max": high,
    }
    elem: dict[str, int | str] = {"ELEM": ELEM[source.dtype]}
    plain = spread.plain("quant8", common | {"weight_zero": weight_zero}, elem)
    lanes = lanes_of(spread.out_c, target)
    if not lanes:
        return (plain,)
    in_c, pairs = spread.in_c, -(-spread.in_c // 2)
    taps = spread.values.shape[1]
    blocks = -(-spread.out_c // lanes)

    def pack() -> NDArray[np.int16]:
        # The last block starts so that it ends with the last channel, as in the kernel.
        starts = np.minimum(np.arange(blocks) * lanes, spread.out_c - lanes)
        rows = (starts[:, None] + np.arange(lanes)).ravel()
        padded = np.zeros((blocks * lanes, taps, 2 * pairs), np.int16)
        padded[:, :, :in_c] = spread.values[rows].astype(np.int16) - weight_zero
        return np.ascontiguousarray(
            padded.reshape(blocks, lanes, taps, pairs, 2).transpose(0, 2, 3, 1, 4)
        )

    zeros = Constant(2 * pairs, lambda: np.full(2 * pairs, input_zero, source.dtype))
    params = common | {
        "weights": Constant(4 * blocks * lanes * taps * pairs, pack),
        "zeros": zeros,
        "pairs": pairs,
    }
    return (spread.vector("quant8", lanes, params, elem, target), plain)


def _quant16(spread: Spread, bias: Tensor | None, target: Target) -> tuple[Alternative, ...]:
    sums = wide_sums(spread.source, spread.weights, bias, spread.result, 0, target.rules)
    low, high = quantized_bounds(spread.result, spread.activation, quantized.QUANT)
    params: Params = {"channels": sums.rows(), "output_min": low, "output_max": high}
    return (spread.plain("quant16", params, {"ROUNDING": sums.rounding}),)


def _floats(spread: Spread, bias: Tensor | None, target: Target) -> tuple[Alternative, ...]:
    common: Params = {
        "channels": float_bias(bias, spread.out_c),
        **float_bounds(spread.activation),
    }
    plain = spread.plain("float", common, {})
    lanes = lanes_of(spread.out_c, target)
    if not lanes:
        return (plain,)
    values = cast(NDArray[np.float32], spread.values)
    size = -(-spread.out_c // lanes) * lanes * values.shape[1] * spread.in_c
    params = common | {
        "weights": Constant(4 * size, lambda: packed(values, lanes)),
        "zeros": zeros(spread.in_c),
    }
    return (spread.vector("float", lanes, params, {}, target), plain)

# SPDX-License-Identifier: Apache-2.0
"""Hybrid ops: products of float rows, quantised at run time, with int8 weights.

A separate launch quantises the rows to int8, with a scale and a zero point each. Sums of products
are integers, so results match TFLite if rows are quantised equally and the few float operations
come in the same order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.graph.packed import BITS, unpacked
from delegate.launch import Alternative, Constant, Defines, Launch, Params, temporary
from delegate.ops._checks import quantized
from delegate.ops._checks.node import require_constant
from delegate.ops._convolution.packing import as_stored, int16_pairs
from delegate.ops._convolution.records import Convolution
from delegate.ops._launches.tiles import by_share, lanes_of, launch_of, launch_over, one_each
from delegate.ops._numbers import ceil_div
from delegate.target import Rules, Target

TILE_W = 4  # rows per work-item, which share loaded weights
_OUT = {"int8": "char", "uint8": "uchar", "int16": "short", "float32": "float"}  # of values
_LANE_BYTES = 64  # rows are padded to whole vectors, which kernels may load
_INT4_OFFSET = 8  # added to int4 weights to make them unsigned
# Longer rows are quantised in parts, by several work-groups: the parts' size and maximum number.
_LONG_ROW, _PART, _MOST_PARTS = 16_384, 8_192, 1_024


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Float rows quantised to int8, and the launches that quantise them."""

    launches: tuple[Launch, ...]
    values: Tensor  # (rows, pitch), padded with the zero point
    scales: Tensor  # (rows,) of float32
    zeros: Tensor  # (rows,) of int32
    sums: Tensor | None = None  # (rows, blocks) of int32: 8 times the sums of blocks, on request

    @property
    def fields(self) -> Params:
        """The fields that kernels read."""
        return {
            "input": self.values,
            "row_scales": self.scales,
            "row_zeros": self.zeros,
            "pitch": self.values.shape[1],
            **({} if self.sums is None else {"block_sums": self.sums}),
        }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Product(Convolution):
    """A product of `batch` float rows with int8 weights.

    A row of a convolution is a whole image.
    """

    family: ClassVar[str] = "hybrid"
    is_asymmetric: bool  # whether a row has a zero point
    is_channel_first: bool = False  # the channel's scale is applied before the row's
    is_offset_in_floats: bool = False  # the zero point's part is subtracted in floats
    rounds_once: bool = False  # scaling and bias addition are fused
    scales: NDArray[np.float32]  # (out_c,)
    bias: NDArray[np.float32]  # (out_c,)
    clamp: dict[str, int]  # fields: the bits of floats
    clamp_defines: Defines = field(default_factory=dict)

    def widened(self) -> NDArray[np.int16]:
        """Return the weights as int16."""
        return self.weights.astype(np.int16)

    @property
    def defines(self) -> Defines:
        """The macros of hybrid.clh that are not 0."""
        macros = {
            "CHANNEL_FIRST": int(self.is_channel_first),
            "OFFSET_IN_FLOATS": int(self.is_offset_in_floats),
            "ROUNDS_ONCE": int(self.rounds_once),
        }
        return {name: value for name, value in macros.items() if value} | {**self.clamp_defines}

    def channels(self) -> Constant:
        """Return three rows of 32 bits: each channel's sum of weights, scale, and bias."""

        layer = self.layer

        def pack() -> NDArray[np.int32]:
            sums = layer.weights.sum((1, 2), dtype=np.int32)
            return np.stack([sums, layer.scales.view(np.int32), layer.bias.view(np.int32)])

        return Constant(12 * self.out_c, pack)

    def params(self) -> Params:
        """Return the fields that all kernels of a convolution read, without the rows' scales."""
        layer = self.layer
        scales = Constant(8 * self.out_c, lambda: np.stack([layer.scales, layer.bias]))
        return {**Convolution.params(self), **self.clamp, "channels": scales}


def quantised_rows(product: Product, target: Target, dtype: str = "int8") -> Rows:
    """Return the quantised rows of a product's input, stored as `dtype`."""
    sizes = (product.batch, product.in_c, pitch_of(product.in_c))
    return quantised(product.source, sizes, product.is_asymmetric, target, dtype)


def pitch_of(depth: int) -> int:
    """Return the padded length of a row: whole vectors, which kernels load."""
    return ceil_div(depth, _LANE_BYTES) * _LANE_BYTES


def quantised(
    source: Tensor,
    sizes: tuple[int, int, int],
    is_asymmetric: bool,
    target: Target,
    dtype: str = "int8",
    is_centred: bool = False,
    block_size: int = 0,
) -> Rows:
    """Return float rows quantised to int8, stored as `dtype`; as uint8 they are offset by 128.

    `sizes`: number of rows, their length, and their padded length; `is_centred`: the zero point is
    subtracted, for int16 and float32; `block_size`: of sums of contiguous values, 0: none.

    Source: tensorflow/lite/kernels/internal/reference/portable_tensor_utils.cc,
    optimized/neon_tensor_utils.cc; the runtime is probed for which one it uses.
    """
    rows, depth, pitch = sizes
    values = temporary("quantised rows", (rows, pitch), dtype)
    scales = temporary("scales of rows", (rows,), "float32")
    zeros = temporary("zero points of rows", (rows,), "int32")
    is_cpu = target.group_items == 1
    lanes = (lanes_of(depth, target) if is_cpu else 0) or 1
    group_defines: Defines = {"LANES": lanes, "ALONE": int(is_cpu)}
    if not is_cpu:
        group_defines["SCRATCH_INTS"] = 2 * target.group_items
    defines: Defines = group_defines | {
        "OUT": _OUT[dtype],
        "IS_ASYMMETRIC": int(is_asymmetric),
        "SHIFT": "zero" if is_centred else -128 if dtype == "uint8" else 0,
        "ROUNDS_BY_ADDING": int(target.rules.rows_round_by_adding),
        "IN_DOUBLES": int(target.rules.rows_in_doubles),
        "NAN_IS_LOWEST": int(target.rules.processor == "x86_64"),
    }
    results: Params = {"output": values, "scale_output": scales, "zero_output": zeros}
    params: Params = {"input": source, "depth": depth}
    sums = temporary("sums of blocks", (rows, depth // block_size), "int32") if block_size else None
    if sums is not None:
        results |= {"block_sums_output": sums, "block_size": block_size}
        defines = {**defines, "SUMS": _INT4_OFFSET}
    file, group = "quantize_row", target.group_items
    if depth <= _LONG_ROW:
        params |= {"pitch": pitch, **results}
        row_launch = launch_of(file, f"{file}_float", rows, group, params, defines)
        return Rows((row_launch,), values, scales, zeros, sums)
    unit = math.lcm(_LANE_BYTES, block_size or 1)
    part = ceil_div(max(_PART, ceil_div(depth, _MOST_PARTS)), unit) * unit
    parts = ceil_div(depth, part)
    ranges = temporary("ranges of parts", (rows, parts, 2), "float32")
    params |= {"part": part, "parts": parts}
    range_params = params | {"output": ranges}
    scan = launch_of(file, f"{file}_range_float", rows * parts, group, range_params, defines)
    params |= {"pitch": pitch, "ranges": ranges, **results}
    write = launch_of(file, f"{file}_part_float", rows * parts, group, params, defines)
    return Rows((scan, write), values, scales, zeros, sums)


def by_rows(product: Product, rows: Rows) -> Params:
    """Return the fields that all kernels of a product read."""
    return {
        **rows.fields,
        "output": product.result,
        "in_c": product.in_c,
        "out_c": product.out_c,
        **product.clamp,
        "channels": product.channels(),
    }


def blocks_of(product: Product, tile_w: int, block: int) -> dict[str, int]:
    """Return the fields of kernels over blocks of `tile_w` rows x `block` channels."""
    row_blocks = ceil_div(product.batch, tile_w)
    return {
        "rows": product.batch,
        "row_blocks": row_blocks,
        "items": row_blocks * ceil_div(product.out_c, block),
    }


def alternatives(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return the portable alternatives, the fallback last."""
    rows = quantised_rows(product, target)
    base = by_rows(product, rows)
    file, elements = "fully_connected", product.batch * product.out_c
    fields: Params = {"weights": as_stored(product.weights), "elements": elements}
    launch = launch_over(file, f"{file}_hybrid", one_each(elements), base | fields, product.defines)
    fallback = Alternative("plain", (*rows.launches, launch))
    lanes = lanes_of(product.out_c, target)
    if not lanes:
        return (fallback,)
    tile_w = TILE_W if product.batch >= TILE_W else 1
    blocks = blocks_of(product, tile_w, lanes)
    pairs = int16_pairs(product, product.layer.widened, lanes)
    fields = {"weights": pairs, "pairs": ceil_div(product.in_c, 2), **blocks}
    tiling = by_share(blocks["items"], target)
    defines = {**product.defines, "LANES": lanes, "TILE_W": tile_w}
    vector = launch_over(file, f"{file}_vector_hybrid", tiling, base | fields, defines)
    return Alternative(f"vector {lanes}x{tile_w}", (*rows.launches, vector)), fallback


def is_hybrid(node: Node) -> bool:
    """Whether a node has float32 activations and int8, int4 or int2 weights."""
    types = [tensor.dtype for tensor in (*node.inputs[:2], *node.outputs) if tensor is not None]
    return types in [["float32", kind, "float32"] for kind in ("int8", *BITS)]


def require_known(rules: Rules) -> None:
    """Check that the calling TFLite's way of quantising rows is known.

    Raises:
        Unsupported: unknown. On aarch64 tflite-runtime computes scales as products with 1 / 127.
    """
    processor = rules.processor
    if processor != "x86_64" and (processor, rules.runtime) != ("aarch64", "ai-edge-litert"):
        raise Unsupported(
            f"hybrid: how {rules.runtime} quantises rows of floats on {processor} is not known"
        )


def weight_values(weights: Tensor) -> NDArray[np.int8]:
    """Return a hybrid op's weights as int8.

    Raises:
        Unsupported: they are not constant, or their size does not match their shape.
    """
    data = require_constant(weights, "weights")
    if weights.dtype not in BITS:
        return data.astype(np.int8, copy=False)
    try:
        return unpacked(data, weights.shape, weights.dtype)
    except ValueError as error:
        raise Unsupported(str(error)) from None


def weight_scales(weights: Tensor, channel_axis: int) -> NDArray[np.float32]:
    """Return a scale for each channel of a hybrid op's weights.

    Raises:
        Unsupported: mismatched scales, a zero point other than 0.
    """
    if weights.blocks is not None:
        raise Unsupported("weights in blocks: only of FULLY_CONNECTED")
    # int4 and int2 have per-channel scales like int8
    as_int8 = weights if weights.dtype == "int8" else replace(weights, dtype="int8")
    scales, zero_point = quantized.weight_scales(as_int8, channel_axis)
    if zero_point:
        raise Unsupported(f"{weights.dtype} weights with zero point {zero_point}: it must be 0")
    return np.array(scales, np.float32)


def require_correct_signs(values: NDArray[np.generic], rules: Rules) -> None:
    """Check that the calling TFLite multiplies these weights correctly.

    Raises:
        Unsupported: a weight of -128, whose sign is flipped in NEON code translated to x86, which
            is also the code that rounds by adding a half.
    """
    if rules.rows_round_by_adding and int(values.min()) == -128:
        raise Unsupported("a weight of -128: this TFLite flips its sign where an input is negative")


def require_correct_sums(values: NDArray[np.int8], is_asymmetric: bool, rules: Rules) -> None:
    """Check that the calling TFLite computes these weights' sums correctly, for zero points.

    Shapes:
        values (out_c, terms)
    Raises:
        Unsupported: sums that overflow 16 bits in that translated code, which adds pairs of 16
            neighbours.
    """
    if not is_asymmetric or not rules.rows_round_by_adding:
        return
    whole = values.shape[1] // 16 * 16
    if whole <= 2**11:  # an eighth of so many bytes cannot overflow 16 bits
        return
    lanes = values[:, :whole].reshape(len(values), -1, 8, 2).sum((1, 3), dtype=np.int64)
    if lanes.size and not -(2**15) <= int(lanes.min()) <= int(lanes.max()) < 2**15:
        raise Unsupported(
            "sums of a row's weights: this TFLite adds them in 16 bits, which these overflow"
        )

# SPDX-License-Identifier: Apache-2.0
"""Products of float rows, quantised at run time, with blockwise int4 weights.

Each block of a row of weights has a scale, so each block's sum is converted to float. These are
added block by block, in TFLite's order, and results are bit-identical.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._checks.node import require_constant, shape_text
from delegate.ops._convolution import hybrid
from delegate.ops._convolution.packing import as_stored
from delegate.ops._launches.tiles import by_share, lanes_of, launch_over, one_each
from delegate.ops._numbers import ceil_div
from delegate.ops._numbers.order import in_blocks_of
from delegate.target import Rules, Target

# For fewer, TFLite uses other kernels, which ignore block scales.
_LEAST_DEPTH, _LEAST_ROWS = 32, 4


@dataclass(frozen=True, slots=True, eq=False)
class BlockProduct:
    """A product of `batch` float rows with blockwise int4 weights; block sizes are even."""

    source: Tensor
    result: Tensor
    batch: int
    pairs: NDArray[np.uint8]  # (out_c, blocks, pairs of weights) as stored, the low nibble first
    scales: NDArray[np.float16]  # (out_c, blocks)
    bias: NDArray[np.float32]  # (out_c,)
    rounds_once: bool = False  # whether products and the following additions are fused
    # For weights with a shift per block: sums of the rows' blocks, and shifts (out_c, blocks)
    shifts: tuple[Tensor, NDArray[np.float32]] | None = None

    @property
    def out_c(self) -> int:
        """Rows of weights."""
        return len(self.pairs)

    @property
    def in_c(self) -> int:
        """Values of a row."""
        return int(2 * self.pairs[0].size)

    @property
    def defines(self) -> Defines:
        """The macros for shifts, and for rounding once."""
        once: Defines = {"ROUNDS_ONCE": 1} if self.rounds_once else {}
        return {"HAS_SHIFTS": int(self.shifts is not None), **once}

    def channels(self) -> Constant:
        """Return each channel's offset, then its bias: two rows of floats."""
        pairs, scales, bias, dtype = self.pairs, self.scales, self.bias, np.float32
        if self.rounds_once:
            dtype = np.float64  # exact for a product, and for its sum with a float except near ties
        return Constant(8 * self.out_c, lambda: np.stack([_offsets(pairs, scales, dtype), bias]))

    def has_shifts_as(self, dtype: str) -> bool:
        """Whether there are shifts, all representable in this type."""
        if self.shifts is None or dtype == "float32":
            return self.shifts is not None
        _, values = self.shifts
        if dtype == "float16" and _are_normal_fp16(values):
            return True
        return bool((values.astype(dtype).astype(np.float32) == values).all())

    def more(self, lanes: int, dtype: str = "float32") -> Params:
        """Return the fields of shifts, interleaved by `lanes` channels, if there are any.

        `dtype`: their type in memory.

        Shapes:
            shifts (channel blocks, blocks, lanes); the last channel block ends with the last
            channel
        """
        if self.shifts is None:
            return {}
        sums, values = self.shifts
        channels = in_blocks_of(lanes, len(values))

        def pack() -> NDArray[np.generic]:
            return np.ascontiguousarray(values.astype(dtype)[channels].transpose(0, 2, 1))

        size = np.dtype(dtype).itemsize * channels.size * values.shape[1]
        return {"sums": sums, "shifts": Constant(size, pack)}


def _are_normal_fp16(values: NDArray[np.float32]) -> bool:
    """Whether all are zeros or normal fp16 numbers.

    Faster than NumPy's conversions to and from float16, which are not vectorised.
    """
    bits = np.ascontiguousarray(values).view(np.uint32)
    exponents = bits & np.uint32(0x7F800000)
    is_normal = (exponents >= np.uint32(113 << 23)) & (exponents <= np.uint32(142 << 23))
    is_zero = (bits & np.uint32(0x7FFFFFFF)) == 0
    return not (bits & np.uint32(0x1FFF)).any() and bool((is_normal | is_zero).all())


def _offsets(
    pairs: NDArray[np.uint8], scales: NDArray[np.float16], dtype: type[np.floating[Any]]
) -> NDArray[np.float32]:
    """Return the factor of the rows' zero points: each channel's sum of weights, in TFLite's order.

    `dtype`: of products before the addition.
    """
    unsigned = pairs ^ 0x88  # each weight offset by 8
    pair_sums = (unsigned & 15) + (unsigned >> 4)
    # As a matrix product: np.sum takes four times as long for such short rows.
    count = pairs.shape[2]
    sums = pair_sums.astype(np.float32) @ np.ones(count, np.float32) - np.float32(16 * count)
    offsets = np.zeros(len(pairs), np.float32)
    for factors, block_sums in zip(scales.astype(dtype).T, sums.T, strict=True):
        offsets = (offsets + factors * block_sums).astype(np.float32)
    return offsets


def pairs_of(weights: Tensor, scales: NDArray[np.float16]) -> NDArray[np.uint8]:
    """Return int4 weights by block, two per byte as in the file.

    Raises:
        Unsupported: they are not constant, or their size does not match their shape.
    """
    data = require_constant(weights, "weights")
    if 2 * data.size != math.prod(weights.shape):
        given = f"{data.size} bytes for int4 {shape_text(weights)}"
        raise Unsupported(f"{given}: one for two values is needed")
    pairs: NDArray[np.uint8] = data.view(np.uint8).reshape(*scales.shape, -1)
    return pairs


def by_eights(pairs: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return int4 weights offset by 8: of each eight, four in the low nibbles and four in the high.

    Shapes:
        (..., pairs) as in the file -> the same shape
    """
    words = np.ascontiguousarray(pairs).view("<u4") ^ np.uint32(0x88888888)  # eight weights each
    low, high = _expand_nibbles(words & np.uint32(0xFFFF)), _expand_nibbles(words >> np.uint32(16))
    interleaved: NDArray[np.uint8] = (low | (high << np.uint32(4))).view(np.uint8)
    return interleaved


def _expand_nibbles(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Expand the four nibbles in a word's low half to bytes."""
    spread = (words | (words << np.uint32(8))) & np.uint32(0x00FF00FF)
    expanded: NDArray[np.uint32] = (spread | (spread << np.uint32(4))) & np.uint32(0x0F0F0F0F)
    return expanded


def block_scales(weights: Tensor, rules: Rules) -> NDArray[np.float16]:
    """Return the scales of blockwise int4 weights that this TFLite supports.

    Shapes:
        -> (rows, blocks)
    Raises:
        Unsupported: weights, blocks or scales that TFLite's kernels do not support.
    Source: tflite/kernels/fully_connected.cc of ai-edge-litert, and comparisons of its outputs
    """
    assert weights.blocks is not None
    scales, size = weights.blocks.scales, weights.blocks.size
    if weights.dtype != "int4":
        raise Unsupported(f"{weights.dtype} weights in blocks: only int4")
    if not rules.knows_blocks:
        raise Unsupported("int4 weights in blocks: this TFLite does not know them")
    rows, depth = weights.shape
    if rows < _LEAST_ROWS or depth < _LEAST_DEPTH:
        raise Unsupported(
            f"weights {shape_text(weights)} in blocks: TFLite takes no scales of fewer than "
            f"{_LEAST_ROWS} rows of {_LEAST_DEPTH}"
        )
    if depth % size or size % 2:
        raise Unsupported(f"rows of {depth} in blocks of {size}: whole blocks of pairs are needed")
    if scales.dtype != np.float16 or scales.shape != (rows, depth // size):
        raise Unsupported(
            f"scales of blocks {scales.dtype.name} of {scales.shape}: float16 of "
            f"{(rows, depth // size)} is needed"
        )
    exponents = np.ascontiguousarray(scales).view(np.uint16) & np.uint16(0x7C00)
    if (exponents == 0x7C00).any():
        raise Unsupported("a scale of a block is not finite")
    return scales


def alternatives(product: BlockProduct, target: Target) -> tuple[Alternative, ...]:
    """Return the portable alternatives, the fallback last."""
    depth, out_c, scales = product.in_c, product.out_c, product.scales
    sizes = (product.batch, depth, hybrid.pitch_of(depth))
    rows = hybrid.quantised(product.source, sizes, True, target)
    common: Params = {
        **rows.fields,
        "output": product.result,
        "out_c": out_c,
        "blocks": scales.shape[1],
        "block_pairs": product.pairs.shape[2],
        "channels": product.channels(),
    }
    file, elements = "fully_connected", product.batch * out_c
    fields: Params = {
        "weights": as_stored(product.pairs),
        "scales": Constant(4 * scales.size, lambda: scales.astype(np.float32)),
        "elements": elements,
    }
    params = common | fields | product.more(1)
    tiling = one_each(elements)
    launch = launch_over(file, f"{file}_blocks_hybrid", tiling, params, product.defines)
    fallback = Alternative("plain", (*rows.launches, launch))
    lanes = lanes_of(out_c, target)
    if not lanes:
        return (fallback,)
    tile_w = hybrid.TILE_W if product.batch >= hybrid.TILE_W else 1
    row_blocks = ceil_div(product.batch, tile_w)
    items = row_blocks * ceil_div(out_c, lanes)
    fields = {**_interleaved(product, lanes), "rows": product.batch, "row_blocks": row_blocks}
    vector = launch_over(
        file,
        f"{file}_vector_blocks_hybrid",
        by_share(items, target),
        common | fields | product.more(lanes) | {"items": items},
        product.defines | {"LANES": lanes, "TILE_W": tile_w},
    )
    return Alternative(f"vector {lanes}x{tile_w}", (*rows.launches, vector)), fallback


def _interleaved(product: BlockProduct, lanes: int) -> Params:
    """Return weights and scales, interleaved by `lanes` channels.

    Shapes:
        weights (channel blocks, blocks, pairs, lanes), scales (channel blocks, blocks, lanes); the
        last channel block ends with the last channel
    """
    channels, pairs, stored = in_blocks_of(lanes, product.out_c), product.pairs, product.scales

    def weights() -> NDArray[np.uint8]:
        return np.ascontiguousarray(pairs[channels].transpose(0, 2, 3, 1))

    def scales() -> NDArray[np.float32]:
        return np.ascontiguousarray(stored[channels].transpose(0, 2, 1), np.float32)

    return {
        "weights": Constant(channels.size * pairs[0].size, weights),
        "scales": Constant(4 * channels.size * stored.shape[1], scales),
    }

# SPDX-License-Identifier: Apache-2.0
"""Products of float rows, which are quantised at each run, with int4 weights in blocks.

Each block of a row of weights has a scale, so each block's sum becomes a float of its own. They are
added in TFLite's order, block after block, and results equal its own to the last bit.
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

# With fewer TFLite's kernels take other ways, which know no blocks.
_LEAST_DEPTH, _LEAST_ROWS = 32, 4


@dataclass(frozen=True, slots=True, eq=False)
class BlockProduct:
    """A product of `batch` float rows with int4 weights in blocks, each an even number of them."""

    source: Tensor
    result: Tensor
    batch: int
    pairs: NDArray[np.uint8]  # (out_c, blocks, pairs of weights) as stored, the first one low
    scales: NDArray[np.float16]  # (out_c, blocks)
    bias: NDArray[np.float32]  # (out_c,)
    rounds_once: bool = (
        False  # the products of scales and of zero points with what they are added to
    )
    # Of weights with a shift for each block: sums of the blocks of rows, and (out_c, blocks)
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
        """The macros of kernels that add shifts, and that round once."""
        once: Defines = {"ROUNDS_ONCE": 1} if self.rounds_once else {}
        return {"HAS_SHIFTS": int(self.shifts is not None), **once}

    def channels(self) -> Constant:
        """Each channel's offset, then its bias: two rows of floats."""
        pairs, scales, bias, dtype = self.pairs, self.scales, self.bias, np.float32
        if self.rounds_once:
            dtype = np.float64  # which holds a product, and its sum with a float but for a tie
        return Constant(8 * self.out_c, lambda: np.stack([_offsets(pairs, scales, dtype), bias]))

    def has_shifts_as(self, dtype: str) -> bool:
        """Whether there are shifts, each of which is a number of this type, too."""
        if self.shifts is None or dtype == "float32":
            return self.shifts is not None
        _, values = self.shifts
        if dtype == "float16" and _are_plain_halves(values):
            return True
        return bool((values.astype(dtype).astype(np.float32) == values).all())

    def more(self, lanes: int, dtype: str = "float32") -> Params:
        """Return the fields of shifts, `lanes` channels side by side, if there are any.

        `dtype`: which they have in memory.

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


def _are_plain_halves(values: NDArray[np.float32]) -> bool:
    """Whether each is a float16, too: no infinity, and none of those below its least normal one.

    NumPy converts to and from float16 number by number.
    """
    bits = np.ascontiguousarray(values).view(np.uint32)
    exponents = bits & np.uint32(0x7F800000)
    is_half = (exponents >= np.uint32(113 << 23)) & (exponents <= np.uint32(142 << 23))
    is_zero = (bits & np.uint32(0x7FFFFFFF)) == 0
    return not (bits & np.uint32(0x1FFF)).any() and bool((is_half | is_zero).all())


def _offsets(
    pairs: NDArray[np.uint8], scales: NDArray[np.float16], dtype: type[np.floating[Any]]
) -> NDArray[np.float32]:
    """Return what a row's zero point is multiplied by: its weights' sum, added as results are.

    `dtype`: of products, which are rounded before they are added.
    """
    moved = pairs ^ 0x88  # each weight 8 more
    both = (moved & 15) + (moved >> 4)
    # As a product of matrices: a sum of so short rows would take four times as long.
    count = pairs.shape[2]
    sums = both.astype(np.float32) @ np.ones(count, np.float32) - np.float32(16 * count)
    found = np.zeros(len(pairs), np.float32)
    for factors, of_block in zip(scales.astype(dtype).T, sums.T, strict=True):
        found = (found + factors * of_block).astype(np.float32)
    return found


def pairs_of(weights: Tensor, scales: NDArray[np.float16]) -> NDArray[np.uint8]:
    """Return int4 weights by their blocks, two in a byte as the file has them.

    Raises:
        Unsupported: they are computed, or their bytes are not as many as their shape wants.
    """
    data = require_constant(weights, "weights")
    if 2 * data.size != math.prod(weights.shape):
        raise Unsupported(f"{data.size} bytes for int4 {shape_text(weights)}")
    pairs: NDArray[np.uint8] = data.view(np.uint8).reshape(*scales.shape, -1)
    return pairs


def by_eights(pairs: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return int4 weights, 8 more: of each eight neighbours four low in a byte, and four high.

    Shapes:
        (..., pairs), as the file has them -> the same
    """
    words = np.ascontiguousarray(pairs).view("<u4") ^ np.uint32(0x88888888)  # eight neighbours
    low, high = _one_a_byte(words & np.uint32(0xFFFF)), _one_a_byte(words >> np.uint32(16))
    side_by_side: NDArray[np.uint8] = (low | (high << np.uint32(4))).view(np.uint8)
    return side_by_side


def _one_a_byte(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Give each of the four numbers in a word's low half a byte of it."""
    apart = (words | (words << np.uint32(8))) & np.uint32(0x00FF00FF)
    found: NDArray[np.uint32] = (apart | (apart << np.uint32(4))) & np.uint32(0x0F0F0F0F)
    return found


def block_scales(weights: Tensor, rules: Rules) -> NDArray[np.float16]:
    """Return the scales of int4 weights in blocks, which this TFLite multiplies rightly.

    Shapes:
        -> (rows, blocks)
    Raises:
        Unsupported: weights, blocks or scales that TFLite's kernels do not know.
    Source: tflite/kernels/fully_connected.cc of ai-edge-litert, whose outputs were compared
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
    """Return the portable ways to multiply, the plain one last."""
    depth, out_c, scales = product.in_c, product.out_c, product.scales
    sizes = (product.batch, depth, hybrid.pitch_of(depth))
    rows = hybrid.quantised(product.source, sizes, True, target)
    both: Params = {
        **rows.fields,
        "output": product.result,
        "out_c": out_c,
        "blocks": scales.shape[1],
        "block_pairs": product.pairs.shape[2],
        "channels": product.channels(),
    }
    file, elements = "fully_connected", product.batch * out_c
    own: Params = {
        "weights": as_stored(product.pairs),
        "scales": Constant(4 * scales.size, lambda: scales.astype(np.float32)),
        "elements": elements,
    }
    params = both | own | product.more(1)
    tiling = one_each(elements)
    launch = launch_over(file, f"{file}_blocks_hybrid", tiling, params, product.defines)
    fallback = Alternative("plain", (*rows.launches, launch))
    lanes = lanes_of(out_c, target)
    if not lanes:
        return (fallback,)
    tile_w = hybrid.TILE_W if product.batch >= hybrid.TILE_W else 1
    row_blocks = ceil_div(product.batch, tile_w)
    items = row_blocks * ceil_div(out_c, lanes)
    own = {**_side_by_side(product, lanes), "rows": product.batch, "row_blocks": row_blocks}
    vector = launch_over(
        file,
        f"{file}_vector_blocks_hybrid",
        by_share(items, target),
        both | own | product.more(lanes) | {"items": items},
        product.defines | {"LANES": lanes, "TILE_W": tile_w},
    )
    return Alternative(f"vector {lanes}x{tile_w}", (*rows.launches, vector)), fallback


def _side_by_side(product: BlockProduct, lanes: int) -> Params:
    """Return weights and scales as `lanes` neighbouring channels are read at once.

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

# SPDX-License-Identifier: Apache-2.0
"""8-bit CONV_2D on SIMT devices: GPUs, and CPUs that emulate them.

The kernels process four terms of a sum per word.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from delegate.isa import DOTS, Feature
from delegate.launch import Alternative, Constant, Defines, Launch, Params
from delegate.ops._convolution.packing import alike_rows, fixed_rows, zeros_row
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._convolution.simt.bytes_by_four import (
    byte_extractions,
    exact_terms,
    may_use_floats,
    word_defines,
)
from delegate.ops._launches.tiles import launch_of
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_STAGED_INTS = 7168  # of local memory, of which OpenCL guarantees 32 KiB
# Rows of (registers, pixels, vectors of four channels): the largest block of conv_2d_float4.cl
# whose sums fit so many registers with the compilers for Adreno, Mali and V3D. _LEAN_BLOCKS:
# without windows, second sums and residual. _ONCE_BLOCKS: with a single rounding.
_Blocks = tuple[tuple[int, int, int], ...]
_BLOCKS: _Blocks = ((96, 4, 2), (96, 4, 1), (96, 1, 2), (40, 2, 1), (0, 1, 1))
_LEAN_BLOCKS: _Blocks = ((96, 4, 2), (96, 4, 1), (96, 1, 2), (40, 4, 1), (40, 2, 1), (0, 1, 1))
_ONCE_BLOCKS: _Blocks = ((96, 4, 2), (96, 4, 1), (96, 1, 2), (0, 1, 1))
_LEAN_FLOAT_BLOCKS: _Blocks = (*_LEAN_BLOCKS[:-1], (0, 2, 1), (0, 1, 1))
_VALUES_OF_TWO_WORDS = 40  # registers for processing two words at once
# Float weights take four times the memory, but need no unpacking: for layers of up to 4 MiB whose
# weights are shared by enough pixels.
_FLOATS_PIXELS, _FLOATS_WEIGHTS = 32, 1 << 20
# Axis order of weights in memory, from (group, item, vector, channel, tap, word, term).
_BY_TERM, _BY_CHANNEL = (0, 4, 5, 1, 2, 6, 3), (0, 4, 5, 1, 2, 3, 6)


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the variants for this target, the fastest expected first."""
    if target.group_items == 1 or conv.out_c < 4:
        return ()
    tile_w = 4 if conv.pixels >= 4 else 1
    vectors = 2 if conv.out_c >= 8 else 1
    variants = [
        Alternative(
            f"{dot.name} {tile_w}x{4 * vectors}", (_dot(conv, target, dot, tile_w, vectors),)
        )
        for dot in DOTS
        if dot.name in target.isa
    ][:1]
    if target.device_type == "cpu":
        variants += _staged(conv, target)
    is_shared = conv.pixels >= _FLOATS_PIXELS and conv.weights.size <= _FLOATS_WEIGHTS
    has_floats_options = byte_extractions(target) if is_shared else (False,)
    return (*variants, *(_float4(conv, target, has_floats=each) for each in has_floats_options))


def _register_block(
    conv: Quant8Convolution, target: Target, is_lean: bool, has_floats: bool
) -> tuple[int, int]:
    """Return the largest block (pixels, vectors of channels) whose sums fit in registers."""
    blocks = _LEAN_FLOAT_BLOCKS if has_floats else _LEAN_BLOCKS
    if not is_lean:
        blocks = _ONCE_BLOCKS if conv.single_rounding else _BLOCKS
    return next(
        (tile_w, vectors)
        for values, tile_w, vectors in blocks
        if target.keeps(values) and tile_w <= conv.pixels and 4 * vectors <= conv.out_c
    )


def _staged(conv: Quant8Convolution, target: Target) -> list[Alternative]:
    taps, is_matrix = conv.taps, conv.is_matrix
    words = ceil_div(conv.in_c, 4)
    ints_a_pixel = taps * (words if is_matrix else words + 1)
    fitting = [w for w in (16, 8, 4) if w <= conv.pixels and w * ints_a_pixel <= _STAGED_INTS]
    if not fitting:
        return []
    tile_w, vectors = fitting[0], 2 if conv.out_c > 32 else 1
    blocks, pixel_tiles = _blocks(conv, vectors), ceil_div(conv.pixels, tile_w)
    # Many channels share the pixels in local memory, but each core gets some groups.
    groups = ceil_div(blocks, 64 if pixel_tiles >= 8 * target.compute_units else 32)
    tile_items = ceil_div(blocks, groups)
    launch = launch_of(
        "conv_2d_staged",
        "conv_2d_staged_quant8",
        pixel_tiles * groups,
        tile_items,
        conv.params()
        | {
            "weights": _as_stored(conv, vectors, groups, tile_items),
            "channels": fixed_rows(conv.layer.folded_bias, conv.scaling),
            "input_zero": conv.input_zero,
            "weight_zero": conv.weight_zero,
            "pixels": conv.pixels,
            "channel_groups": groups,
            "tile_items": tile_items,
            "words": words,
            "steps": taps * words,
        },
        word_defines(conv)
        | {
            "TILE_W": tile_w,
            "VECTORS": vectors,
            "IS_MATRIX": int(is_matrix),
            "HAS_WEIGHT_ZERO": int(conv.source.dtype == "uint8" or conv.weight_zero != 0),
            "SCRATCH_INTS": _STAGED_INTS,
        },
    )
    return [Alternative(f"staged {tile_w}x{4 * vectors}", (launch,))]


def _float4(conv: Quant8Convolution, target: Target, has_floats: bool) -> Alternative:
    has_many, is_matrix = target.keeps(_VALUES_OF_TWO_WORDS), conv.is_matrix
    # A single integer rounding takes many registers, even more with a float branch.
    uses_floats = may_use_floats(target) and (has_many or not conv.single_rounding)
    terms, words = exact_terms(conv, is_unsigned=has_floats), ceil_div(conv.in_c, 4)
    has_chunks = terms < conv.weights[0].size
    is_short = is_matrix and not has_chunks and not conv.single_rounding
    is_lean = is_short and (conv.residual is None or (has_floats and not has_many))
    tile_w, vectors = _register_block(conv, target, is_lean, has_floats)
    # With byte weights a residual takes the registers that more words need.
    most_words = 4 if has_many and is_short and (has_floats or conv.residual is None) else 2
    if not (has_many or (is_lean and has_floats)):
        most_words = 1
    fitting = (n for n in (4, 2) if n <= most_words and conv.in_c % (4 * n) == 0)
    load_words = next(fitting, 1)
    chunk_words = terms // (4 * load_words) * load_words
    blocks = _blocks(conv, vectors)
    input_offset = 128 if has_floats and conv.source.dtype == "int8" else 0

    layer = conv.layer

    def bias() -> NDArray[np.int64]:
        corrected: NDArray[np.int64] = layer.folded_bias() - input_offset * layer.weight_sums()
        return corrected

    launch = _by_blocks(
        conv,
        target,
        "conv_2d_float4",
        {
            "weights": _as_floats(conv, vectors, blocks)
            if has_floats
            else _as_stored(conv, vectors, blocks, 1),
            "channels": alike_rows(conv, bias, uses_floats, 4 * vectors),
            "weight_zero": conv.weight_zero,
            "chunk_words": min(words, chunk_words) if has_chunks else words,
        },
        word_defines(conv, uses_floats)
        | {
            "TILE_W": tile_w,
            "VECTORS": vectors,
            "LOAD_WORDS": load_words,
            "IS_MATRIX": int(is_matrix),
            "HAS_FLOATS": int(has_floats),
            "HAS_CHUNKS": int(has_chunks),
        },
    )
    return Alternative(f"{'floats' if has_floats else 'float4'} {tile_w}x{4 * vectors}", (launch,))


def _dot(
    conv: Quant8Convolution, target: Target, dot: Feature, tile_w: int, vectors: int
) -> Launch:
    uses_floats = may_use_floats(target)
    zero = conv.weight_zero
    is_int8 = conv.source.dtype == "int8"
    fits = int(conv.weights.min()) - zero >= -128 and int(conv.weights.max()) - zero <= 127
    weight_offset = zero if fits else 0 if is_int8 else 128  # weights minus this fit int8
    input_offset = 0 if is_int8 == dot.takes_int8 else 128 if dot.takes_int8 else -128

    layer = conv.layer

    def bias() -> NDArray[np.int64]:
        # The kernel sums (input - input_offset) * (weight - weight_offset). It corrects for
        # `weight_offset` by the sum of each window's inputs. The correction for `input_offset` is
        # the same for all windows.
        zero_sums: NDArray[np.int64] = (input_offset - layer.input_zero) * layer.weight_sums()
        return layer.bias + zero_sums

    def signed() -> NDArray[np.generic]:
        return (layer.weights.astype(np.int16) - weight_offset).astype(np.int8)

    return _by_blocks(
        conv,
        target,
        "conv_2d_dot",
        {
            "weights": _packed(conv, signed, 0, vectors, _blocks(conv, vectors), 1, _BY_CHANNEL),
            "channels": alike_rows(conv, bias, uses_floats, 4 * vectors),
            "difference": weight_offset - zero,
            "last_ones": 0x01010101 >> (8 * (-conv.in_c % 4)),
        },
        word_defines(conv, uses_floats)
        | {
            dot.macro: int(dot.takes_int8),
            "TILE_W": tile_w,
            "VECTORS": vectors,
            "HAS_PIXEL_SUMS": int(not fits),
        },
    )


def _by_blocks(
    conv: Quant8Convolution,
    target: Target,
    file: str,
    params: Params,
    defines: Defines,
) -> Launch:
    """Return a launch with TILE_W pixels x VECTORS x 4 channels per work-item."""
    pixel_blocks = ceil_div(conv.pixels, int(defines["TILE_W"]))
    items = pixel_blocks * _blocks(conv, int(defines["VECTORS"]))
    return launch_of(
        file,
        f"{file}_quant8",
        ceil_div(items, target.group_items),
        target.group_items,
        conv.params()
        | {
            "zeros": zeros_row(conv.in_c, conv.input_zero, conv.source.dtype),
            "pixels": conv.pixels,
            "pixel_blocks": pixel_blocks,
            "items": items,
            "tile_items": target.group_items,
            "words": ceil_div(conv.in_c, 4),
        }
        | params,
        defines,
    )


def _blocks(conv: Quant8Convolution, vectors: int) -> int:
    return ceil_div(conv.out_c, 4 * vectors)


def _as_stored(conv: Quant8Convolution, vectors: int, groups: int, items: int) -> Constant:
    layer = conv.layer
    return _packed(conv, lambda: layer.weights, conv.weight_zero, vectors, groups, items, _BY_TERM)


def _as_floats(conv: Quant8Convolution, vectors: int, groups: int) -> Constant:
    """Return float weights minus their zero point, divided by 256 to the power of the term."""
    values = _packed(conv, conv.layer.centred, 0, vectors, groups, 1, _BY_TERM)
    scale = np.float32(256) ** -np.arange(4, dtype=np.float32)
    return Constant(
        4 * values.size_bytes, lambda: values.pack().astype(np.float32) * scale[:, None]
    )


def _packed(
    conv: Quant8Convolution,
    values: Callable[[], NDArray[np.generic]],
    padding: int,
    vectors: int,
    groups: int,
    items: int,
    order: tuple[int, ...],
) -> Constant:
    """Return weights in words of four channels or of four terms.

    Shapes:
        (groups, taps, words, items, vectors, term, channel), or channel, term
    """
    out_c, taps, in_c = conv.weights.shape
    words = ceil_div(in_c, 4)

    def pack() -> NDArray[np.generic]:
        # The last block ends with the last channel, as in the kernel; excess blocks repeat it.
        starts = np.minimum(np.arange(groups * items) * 4 * vectors, out_c - 4 * vectors)
        rows = values()[starts[:, None] + np.arange(4 * vectors)]
        padded = np.full((*rows.shape[:3], 4 * words), padding, rows.dtype)
        padded[..., :in_c] = rows
        split = padded.reshape(groups, items, vectors, 4, taps, words, 4)
        return np.ascontiguousarray(split.transpose(order))

    return Constant(groups * items * 4 * vectors * taps * 4 * words, pack)

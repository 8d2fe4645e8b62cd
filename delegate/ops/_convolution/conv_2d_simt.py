# SPDX-License-Identifier: Apache-2.0
"""Convolutions for devices that run work-items side by side: GPUs, and CPUs that imitate them.

Lowers no node itself. The kernels take four terms of a sum in a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._convolution.bytes_by_four import (
    exact_terms,
    may_use_floats,
    scaling_rows,
    word_defines,
)
from delegate.ops._convolution.records import Convolution, channel_rows, zeros_row
from delegate.target import Target

_STAGED_INTS = 7168  # of local memory, of which OpenCL's devices have 32 KiB
# What is proven -> kernels/dot.clh's macro for it, and whether it takes inputs as int8.
_DOTS = {
    "dot": ("DOT_KHR", True),
    "arm_dot": ("DOT_ARM", True),
    "qcom_dot": ("DOT_QCOM", False),
    "emulated_dot": ("DOT_EMULATED", True),
    "emulated_mixed_dot": ("DOT_EMULATED", False),
}
# Axes of weights as kernels read them, from (group, item, vector, channel, tap, word, term).
_BY_TERM, _BY_CHANNEL = (0, 4, 5, 1, 2, 6, 3), (0, 4, 5, 1, 2, 3, 6)


def alternatives(conv: Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the variants for this target, the fastest expected first."""
    out_c = len(conv.bias)
    if target.group_items == 1 or out_c < 4:
        return ()
    tile_w = 4 if conv.pixels >= 4 else 1
    vectors = 2 if out_c >= 8 else 1
    size = f"{tile_w}x{4 * vectors}"
    found = [
        Alternative(f"{isa} {size}", (_dot(conv, target, isa, tile_w, vectors),))
        for isa in _DOTS
        if isa in target.isa
    ][:1]
    if target.device_type == "cpu":
        found += _staged(conv, target)
    found.append(Alternative(f"float4 {size}", (_float4(conv, target, tile_w, vectors),)))
    return tuple(found)


def _staged(conv: Convolution, target: Target) -> list[Alternative]:
    out_c, taps, in_c = conv.weights.shape
    area = conv.area
    is_matrix = (taps, area.stride_h, area.stride_w, area.pad_top, area.pad_left) == (1, 1, 1, 0, 0)
    words = -(-in_c // 4)
    ints_a_pixel = taps * (words if is_matrix else words + 1)
    fitting = [w for w in (16, 8, 4) if w <= conv.pixels and w * ints_a_pixel <= _STAGED_INTS]
    if not fitting:
        return []
    tile_w, vectors = fitting[0], 2 if out_c > 32 else 1
    blocks, pixel_tiles = -(-out_c // (4 * vectors)), -(-conv.pixels // tile_w)
    # Many channels share the pixels put into local memory, but each core has some groups.
    groups = -(-blocks // (64 if pixel_tiles >= 8 * target.compute_units else 32))
    tile_items = -(-blocks // groups)
    launch = Launch(
        "conv_2d_staged",
        "conv_2d_staged_quant8",
        tiles=pixel_tiles * groups,
        group_items=tile_items,
        params=conv.params()
        | {
            "weights": _as_stored(conv, vectors, groups, tile_items),
            "channels": channel_rows(conv.folded_bias, conv.scaling),
            "input_zero": conv.input_zero,
            "weight_zero": conv.weight_zero,
            "pixels": conv.pixels,
            "channel_groups": groups,
            "tile_items": tile_items,
            "words": words,
            "steps": taps * words,
        },
        reads=conv.reads,
        writes=conv.writes,
        defines=word_defines(conv)
        | {
            "TILE_W": tile_w,
            "VECTORS": vectors,
            "IS_MATRIX": int(is_matrix),
            "SCRATCH_INTS": _STAGED_INTS,
        },
    )
    return [Alternative(f"staged {tile_w}x{4 * vectors}", (launch,))]


def _float4(conv: Convolution, target: Target, tile_w: int, vectors: int) -> Launch:
    uses_floats = may_use_floats(target)
    terms, words = exact_terms(conv), -(-conv.weights.shape[2] // 4)
    has_chunks = terms < conv.weights[0].size
    return _by_blocks(
        conv,
        target,
        "conv_2d_float4",
        {
            "weights": _as_stored(conv, vectors, _blocks(conv, vectors), 1),
            "channels": scaling_rows(conv, conv.folded_bias, uses_floats),
            "weight_zero": conv.weight_zero,
            "chunk_words": min(words, terms // 4) if has_chunks else words,
        },
        word_defines(conv, uses_floats)
        | {"TILE_W": tile_w, "VECTORS": vectors, "HAS_CHUNKS": int(has_chunks)},
    )


def _dot(conv: Convolution, target: Target, isa: str, tile_w: int, vectors: int) -> Launch:
    macro, takes_int8 = _DOTS[isa]
    uses_floats = may_use_floats(target)
    zero = conv.weight_zero
    fits = int(conv.weights.min()) - zero >= -128 and int(conv.weights.max()) - zero <= 127
    taken = zero if fits else 128
    is_int8 = conv.source.dtype == "int8"
    moved = 0 if is_int8 == takes_int8 else 128 if takes_int8 else -128

    def bias() -> NDArray[np.int64]:
        # The kernel's sums are of (input - moved) * (weight - taken), and it adds what the second
        # difference makes; the first one's is a constant.
        zero_sums: NDArray[np.int64] = (moved - conv.input_zero) * conv.centred().sum((1, 2))
        return conv.bias + zero_sums

    def signed() -> NDArray[np.generic]:
        return (conv.weights.astype(np.int16) - taken).astype(np.int8)

    return _by_blocks(
        conv,
        target,
        "conv_2d_dot",
        {
            "weights": _packed(conv, signed, 0, vectors, _blocks(conv, vectors), 1, _BY_CHANNEL),
            "channels": scaling_rows(conv, bias, uses_floats),
            "difference": taken - zero,
            "last_ones": 0x01010101 >> (8 * (-conv.weights.shape[2] % 4)),
        },
        word_defines(conv, uses_floats)
        | {
            macro: int(takes_int8),
            "TILE_W": tile_w,
            "VECTORS": vectors,
            "HAS_PIXEL_SUMS": int(not fits),
        },
    )


def _by_blocks(
    conv: Convolution,
    target: Target,
    file: str,
    params: Mapping[str, int | Tensor | Constant],
    defines: Mapping[str, int | str],
) -> Launch:
    """Return a launch whose work-items have TILE_W pixels x VECTORS x 4 channels each."""
    in_c = conv.weights.shape[2]
    pixel_blocks = -(-conv.pixels // int(defines["TILE_W"]))
    items = pixel_blocks * _blocks(conv, int(defines["VECTORS"]))
    return Launch(
        file,
        f"{file}_quant8",
        tiles=-(-items // target.group_items),
        group_items=target.group_items,
        params=conv.params()
        | {
            "zeros": zeros_row(in_c, conv.input_zero, conv.source.dtype),
            "pixels": conv.pixels,
            "pixel_blocks": pixel_blocks,
            "items": items,
            "tile_items": target.group_items,
            "words": -(-in_c // 4),
        }
        | dict(params),
        reads=conv.reads,
        writes=conv.writes,
        defines=defines,
    )


def _blocks(conv: Convolution, vectors: int) -> int:
    return -(-len(conv.bias) // (4 * vectors))


def _as_stored(conv: Convolution, vectors: int, groups: int, items: int) -> Constant:
    return _packed(conv, lambda: conv.weights, conv.weight_zero, vectors, groups, items, _BY_TERM)


def _packed(
    conv: Convolution,
    values: Callable[[], NDArray[np.generic]],
    padding: int,
    vectors: int,
    groups: int,
    items: int,
    order: tuple[int, ...],
) -> Constant:
    """Words of weights, of four channels or of four terms each.

    Shapes:
        (groups, taps, words, items, vectors, term, channel), or channel, term
    """
    out_c, taps, in_c = conv.weights.shape
    words = -(-in_c // 4)

    def pack() -> NDArray[np.generic]:
        # The last block ends with the last channel, as in the kernel; one too many repeats it.
        starts = np.minimum(np.arange(groups * items) * 4 * vectors, out_c - 4 * vectors)
        rows = values()[starts[:, None] + np.arange(4 * vectors)]
        padded = np.full((*rows.shape[:3], 4 * words), padding, rows.dtype)
        padded[..., :in_c] = rows
        split = padded.reshape(groups, items, vectors, 4, taps, words, 4)
        return np.ascontiguousarray(split.transpose(order))

    return Constant(groups * items * 4 * vectors * taps * 4 * words, pack)

# SPDX-License-Identifier: Apache-2.0
"""Convolutions by x86 instructions proven on the device. Lowers no node itself.

The kernels are conv_2d_vnni.cl and conv_2d_avx2.cl, which share conv_2d_x86.clh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks import quantized
from delegate.ops._convolution.records import Convolution
from delegate.ops._numbers import fixed_point
from delegate.ops._numbers.float_requantize import float_form
from delegate.ops._numbers.int8_pairs import most_extras, part
from delegate.target import Target

PANEL_BYTES = 1 << 17  # where a block's windows are put side by side
_FIXED = 3  # the form of vectors with channels without a float form, as in the kernels
_TILE_WORK = 1 << 20  # least multiply-adds of a tile: some microseconds

Params = dict[str, int | Tensor | Constant]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a kind of inner product asks for."""

    isa: str
    lanes: int  # ints a vector
    values: int  # that one multiplies at a time: 4 bytes are a step
    sizes: tuple[tuple[int, int], ...]  # pixels x vectors of a block
    few_pixels: tuple[int, int]  # for fewer than those
    suffix: str = ""  # of its name


# A block's sums, weights and inputs fit the registers. VNNI's 32 leave room for the compiler to
# move, as 14 x 2 is slower. One vector is for channels that would leave half of a block empty.
VNNI = Kind("vnni", 16, 4, ((7, 2), (14, 1)), (1, 4))
AVX2_PAIRS = Kind("avx2", 8, 4, ((6, 2),), (1, 4), " pairs")
AVX2 = Kind("avx2", 8, 2, ((6, 2),), (1, 4))
KINDS = (VNNI, AVX2_PAIRS, AVX2)


def alternatives(conv: Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the variants this target was proven to run, the fastest expected first."""
    if target.group_items != 1:
        return ()
    found = []
    for kind in KINDS:
        if kind.isa not in target.isa:
            continue
        for tile_w, vectors in _sizes(conv, kind):
            launch = _launch(conv, target, kind, tile_w, vectors)
            if launch is not None:
                name = f"{kind.isa} {tile_w}x{vectors * kind.lanes}{kind.suffix}"
                found.append(Alternative(name, (launch,)))
    return tuple(found)


def _sizes(conv: Convolution, kind: Kind) -> list[tuple[int, int]]:
    """Return the blocks to try, the one that wastes least first."""
    out_c: int = conv.weights.shape[0]
    fitting = [size for size in kind.sizes if size[0] <= conv.pixels] or [kind.few_pixels]

    def work(size: tuple[int, int]) -> float:
        tile_w, vectors = size
        pixels = -(-conv.pixels // tile_w) * tile_w
        # An input is loaded once for all vectors.
        return pixels * -(-out_c // (vectors * kind.lanes)) * (vectors + 0.2)

    ordered = sorted(fitting, key=work)
    # What is as good may be faster, what is not is not worth the time to build it.
    return [size for size in ordered if work(size) < 1.05 * work(ordered[0])]


def _launch(
    conv: Convolution, target: Target, kind: Kind, tile_w: int, vectors: int
) -> Launch | None:
    _, taps, in_c = conv.weights.shape
    area = conv.area
    is_matrix = (area.kernel_h, area.kernel_w, area.stride_h, area.stride_w) == (1, 1, 1, 1)
    is_signed = conv.source.dtype == "int8"
    is_dense = area.dilation_w == 1
    rows = area.kernel_h if is_dense else 1
    row_values = taps // rows * in_c
    row_steps = -(-row_values // kind.values)
    # An odd number of cache lines, so that rows do not fall on the same few of a cache's sets.
    panel_pitch = (-(-4 * rows * row_steps // 64) | 1) * 64
    uses_panel = not is_matrix or kind is AVX2 or (kind is AVX2_PAIRS and is_signed)
    if uses_panel and tile_w * panel_pitch + 64 > PANEL_BYTES:
        return None
    weights = {VNNI: _vnni_weights, AVX2_PAIRS: _pairs_weights, AVX2: _avx2_weights}[kind]
    packed = weights(conv, vectors, rows, row_steps)
    if packed is None:
        return None
    groups = _groups(conv, tile_w, vectors * kind.lanes, target)
    zero = quantized.per_tensor(conv.result)[1]
    # Where negative results are clamped away, the others are centred about int8's 0.
    centre = zero - (0 if is_signed else 128) if conv.clamp[0] >= zero else None
    fill = in_c + 64
    defines: dict[str, int | str] = {
        "IS_SIGNED": int(is_signed),
        "TILE_W": tile_w,
        "VECTORS": vectors,
    }
    if kind is not VNNI:
        defines["WEIGHT_BITS"] = 32 // kind.values
    return Launch(
        f"conv_2d_{kind.isa}",
        f"conv_2d_{kind.isa}_quant8",
        tiles=groups["pixel_groups"] * groups["channel_groups"],
        group_items=1,
        params=conv.params()
        | packed
        | groups
        | {
            "channels": _channels(conv, kind, vectors, centre),
            "zeros": Constant(fill, lambda: np.full(fill, conv.input_zero, conv.source.dtype)),
            "pixels": conv.pixels,
            "is_matrix": int(is_matrix),
            "is_dense": int(is_dense),
            "rows": rows,
            "row_bytes": row_values,
            "row_steps": row_steps,
            "panel_pitch": panel_pitch,
            "is_centred": int(centre is not None),
            "centre": centre or 0,
            "rounds_once": int(conv.single_rounding),
        },
        reads=conv.reads,
        writes=conv.writes,
        defines=defines | conv.defines | {"PANEL_BYTES": PANEL_BYTES},
    )


def _groups(conv: Convolution, tile_w: int, channels: int, target: Target) -> dict[str, int]:
    """Return how many blocks of pixels and of channels there are, and how many groups of each.

    A tile is a group of either, and reads its pixels' windows and its channels' weights.
    """
    out_c, taps, in_c = map(int, conv.weights.shape)
    window = taps * in_c
    pixel_blocks, channel_blocks = -(-conv.pixels // tile_w), -(-out_c // channels)
    # A result takes some time, too, and so does a weight's way from memory.
    work = conv.pixels * out_c * (window + 24) + 10 * conv.weights.size
    units = target.compute_units
    wanted = max(1, min(8 * units, work // _TILE_WORK))
    if wanted > 1:
        wanted = -(-wanted // units) * units

    def groups(pixel_groups: int) -> tuple[int, int]:
        return pixel_groups, min(channel_blocks, -(-wanted // pixel_groups))

    def cost(pixel_groups: int) -> tuple[int, int]:
        """How many tiles are missing, so that units that are late lose little; then how long the
        unit with most to do takes, in multiply-adds: 4 while it reads a byte.
        """
        _, channel_groups = groups(pixel_groups)
        tiles = pixel_groups * channel_groups
        pixels = -(-pixel_blocks // pixel_groups) * tile_w
        results = -(-channel_blocks // channel_groups) * channels
        each = pixels * results * (window + 24) + 4 * (pixels + results) * window
        return max(0, wanted - tiles), -(-tiles // units) * each

    pixel_groups, channel_groups = groups(min(range(1, min(pixel_blocks, wanted) + 1), key=cost))
    return {
        "pixel_blocks": pixel_blocks,
        "pixel_groups": pixel_groups,
        "channel_blocks": channel_blocks,
        "channel_groups": channel_groups,
    }


def _blocked(values: NDArray[Any], lanes: int, vectors: int) -> NDArray[Any]:
    """Pad channels, the first axis, to whole blocks, in the order of the vectors' lanes.

    Packing takes 4 lanes of each vector in turn, so these are neighbouring channels.

    Shapes:
        (channels, ...) -> (blocks, vectors, lanes, ...)
    """
    block = vectors * lanes
    blocks = -(-values.shape[0] // block)
    padded = np.zeros((blocks * block, *values.shape[1:]), values.dtype)
    padded[: values.shape[0]] = values
    quads = padded.reshape(blocks, lanes // 4, vectors, 4, *values.shape[1:])
    ordered: NDArray[Any] = quads.swapaxes(1, 2).reshape(blocks, vectors, lanes, *values.shape[1:])
    return ordered


def _in_steps(values: NDArray[Any], kind: Kind, rows: int, row_steps: int) -> NDArray[Any]:
    """Fill a window's rows up to whole steps.

    Shapes:
        (channels, ...) -> (channels, rows * row_steps, kind.values)
    """
    channels = len(values)
    filled = np.zeros((channels, rows, kind.values * row_steps), values.dtype)
    by_row = values.reshape(channels, rows, -1)
    filled[:, :, : by_row.shape[2]] = by_row
    return filled.reshape(channels, rows * row_steps, kind.values)


def _by_steps(values: NDArray[Any], kind: Kind, vectors: int) -> NDArray[Any]:
    """(channels, steps, kind.values) -> (blocks, steps, lanes of all vectors, kind.values)."""
    blocked = _blocked(values, kind.lanes, vectors)
    lanes = blocked.reshape(len(blocked), -1, *blocked.shape[3:])
    return np.ascontiguousarray(lanes.swapaxes(1, 2))


def _vnni_weights(conv: Convolution, vectors: int, rows: int, row_steps: int) -> Params | None:
    """Return int8 weights, and what corrects them; None where they do not fit.

    Shapes:
        weights (blocks, steps, vectors, lanes, 4): a step's 4 of each channel side by side
    """
    low, high = int(conv.weights.min()), int(conv.weights.max())
    if low - conv.weight_zero >= -128 and high - conv.weight_zero <= 127:
        taken = conv.weight_zero
    elif conv.source.dtype == "uint8":
        taken = 128  # the kernel corrects the difference by each window's sum
    else:
        return None
    correction = conv.weight_zero - taken

    def pack() -> NDArray[np.int32]:
        values = (conv.weights.astype(np.int16) - taken).astype(np.int8)
        quads = _in_steps(values, VNNI, rows, row_steps).view(np.int32)
        return _by_steps(quads, VNNI, vectors)

    blocks = -(-conv.weights.shape[0] // (vectors * VNNI.lanes))
    return {
        "weights": Constant(4 * blocks * rows * row_steps * vectors * VNNI.lanes, pack),
        "ramp": Constant(128, lambda: np.repeat(np.array([correction, 0], np.int8), 64)),
        "is_corrected": int(correction != 0),
    }


def _avx2_weights(conv: Convolution, vectors: int, rows: int, row_steps: int) -> Params:
    """Return centred weights as int16.

    Shapes:
        weights (blocks, steps, vectors, lanes, 2)
    """

    def pack() -> NDArray[np.int32]:
        pairs = _in_steps(_centred(conv), AVX2, rows, row_steps).view(np.int32)
        return _by_steps(pairs, AVX2, vectors)

    blocks = -(-conv.weights.shape[0] // (vectors * AVX2.lanes))
    return {"weights": Constant(4 * blocks * rows * row_steps * vectors * AVX2.lanes, pack)}


def _centred(conv: Convolution) -> NDArray[np.int16]:
    centred: NDArray[np.int16] = conv.weights.astype(np.int16) - np.int16(conv.weight_zero)
    return centred


def _pairs_weights(conv: Convolution, vectors: int, rows: int, row_steps: int) -> Params | None:
    """Return centred weights, parted so that 16-bit sums of them cannot overflow.

    One constant has the steps in groups, the extra steps, then ints: each block's group and where
    its extra steps begin, where the last one's end, and which step of which row each adds to.
    """

    def weights() -> NDArray[np.int16]:
        return _by_steps(
            _in_steps(_centred(conv), AVX2_PAIRS, rows, row_steps), AVX2_PAIRS, vectors
        )

    values = weights()
    blocks, steps, lanes, _ = values.shape
    most = most_extras(values)
    if most is None:
        return None
    extra_at = 4 * blocks * steps * lanes
    table_at = extra_at + 4 * most * lanes
    steps_at = table_at + 8 * (blocks + 1)
    size = steps_at + 8 * most

    def pack() -> NDArray[np.uint8]:
        parted = part(weights(), rows)
        packed = np.zeros(size, np.uint8)
        table = np.zeros((blocks + 1, 2), np.int32)
        table[:-1, 0], table[:, 1] = parted.group, parted.first
        for at, values in (
            (0, parted.grouped),
            (extra_at, parted.extra),
            (table_at, table),
            (steps_at, np.stack([parted.step, parted.step // row_steps], 1).astype(np.int32)),
        ):
            data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            packed[at : at + data.size] = data
        return packed

    return {
        "weights": Constant(size, pack),
        "extra_at": extra_at,
        "table_at": table_at,
        "steps_at": steps_at,
    }


def _channels(conv: Convolution, kind: Kind, vectors: int, centre: int | None) -> Constant:
    """(blocks, 7 * vectors + 1, lanes): see ROWS_A_BLOCK in conv_2d_x86.clh."""

    lanes = kind.lanes

    def pack() -> NDArray[np.int32]:
        centred = _centred(conv).reshape(len(conv.weights), -1)
        total = centred.sum(1, dtype=np.int64)
        positive = np.maximum(centred, 0).sum(1, dtype=np.int64)
        limits = np.iinfo(conv.source.dtype)
        low, high = (int(limit) - conv.input_zero for limit in (limits.min, limits.max))
        form = float_form(
            conv.scaling,
            quantized.per_tensor(conv.result)[1],
            conv.clamp,
            centre=centre,
            sums=(
                conv.bias + positive * low + (total - positive) * high,
                conv.bias + positive * high + (total - positive) * low,
            ),
            exceptions=2,
            single_rounding=conv.single_rounding,
        )
        # All but int16 products take inputs as uint8.
        least = 0 if kind is AVX2 else int(limits.min)
        bias = conv.bias - (conv.input_zero - least) * total
        corrections = (form.correction != 0).sum(0)
        forms = _blocked(np.where(form.exact, corrections, _FIXED), lanes, vectors).max(2)
        floats = [bias + form.added, form.factor, form.offset]
        for exception, correction in zip(form.exception, form.correction, strict=True):
            floats += [exception, correction]
        rows = np.zeros((len(forms), 7 * vectors + 1, lanes), np.int32)
        for row, values in enumerate(floats):
            fixed = (bias, *conv.scaling)[row] if row < 3 else values
            rows[:, row * vectors : (row + 1) * vectors] = np.where(
                (forms == _FIXED)[:, :, None],
                _blocked(_int32(fixed), lanes, vectors),
                _blocked(_int32(values), lanes, vectors),
            )
        rows[:, -1, :vectors] = forms
        rows[:, -1, vectors] = forms.max(1)
        return rows

    blocks = -(-conv.weights.shape[0] // (vectors * lanes))
    return Constant(4 * blocks * (7 * vectors + 1) * lanes, pack)


def _int32(values: NDArray[Any]) -> NDArray[np.int32]:
    bits = values.view(np.int32) if values.dtype == np.float32 else fixed_point.wrap_int32(values)
    return bits.astype(np.int32)

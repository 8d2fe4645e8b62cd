# SPDX-License-Identifier: Apache-2.0
"""Moves of values, and resizes of pictures."""

from __future__ import annotations

import math

import numpy as np

from tests.attacks.fuzz.drawing import Pen, numbers_of
from tflite_opencl.conformance.cases.stablehlo import scattered
from tflite_opencl.models.build import node, numbers, tensor


def resize(pen: Pen) -> None:
    x = pen.source(4)
    sizes = [
        pen.one_of((size, 2 * size, 3 * size, max(1, size // 2), pen.random.randint(1, 20)))
        for size in x.shape[1:3]
    ]
    named = pen.one_of(("", "align_corners", "half_pixel_centers"))
    options = {name: name == named for name in ("align_corners", "half_pixel_centers")}
    op = pen.one_of(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"))
    pen.add(op, [x, numbers(sizes)], options)


def pad(pen: Pen) -> None:
    op, x = pen.one_of(("PAD", "PAD", "PADV2", "MIRROR_PAD")), pen.source()
    mode = pen.one_of(("REFLECT", "SYMMETRIC"))
    most = [3 if op != "MIRROR_PAD" else min(3, size - (mode == "REFLECT")) for size in x.shape]
    is_any = [size > 0 and pen.may(0.6) for size in most]
    rows = [
        [pen.random.randint(0, size) if is_some else 0 for _ in "ab"]
        for size, is_some in zip(most, is_any, strict=True)
    ]
    amounts = [x, numbers(rows, pen.one_of(("int32", "int64")))]
    if op == "PADV2":
        amounts.append(pen.constant((), x.dtype, numbers_of(x)))
    pen.add(op, amounts, {"mode": mode} if op == "MIRROR_PAD" else {})


def join(pen: Pen) -> None:
    op, x = pen.one_of(("CONCATENATION", "PACK")), pen.source()
    axis, parts = pen.random.randint(0, len(x.shape) - (op != "PACK")), [x]
    for _ in range(pen.random.randint(0, 4)):
        is_rescaled = op != "PACK" and x.dtype == "uint8" and pen.may(0.3)
        shape = x.shape
        if op != "PACK" and pen.may(0.5):
            shape = (*x.shape[:axis], pen.one_of((1, 2, 3, 5, 8, 17)), *x.shape[axis + 1 :])
        parts.append(pen.operand(shape, x.dtype, None if is_rescaled else numbers_of(x)))
    pen.random.shuffle(parts)
    if op == "PACK":
        pen.add(op, parts, {"axis": axis, "values_count": len(parts)})
    else:
        pen.add(op, parts, {"axis": axis, "fused_activation_function": "NONE"})


def part(pen: Pen) -> None:
    op, x = pen.one_of(("SPLIT", "SPLIT_V", "UNPACK")), pen.source()
    axis = pen.random.randrange(len(x.shape))
    size = x.shape[axis]
    place = axis - (len(x.shape) if pen.may(0.3) else 0)
    if op == "SPLIT":
        count = pen.one_of([each for each in range(1, 9) if size % each == 0])
        pen.add(op, [numbers(place), x], {"num_splits": count}, dtype=x.dtype, count=count)
    elif op == "SPLIT_V":
        sizes = []
        while (left := size - sum(sizes)) and len(sizes) < 5:
            sizes.append(pen.random.randint(1, left) if len(sizes) < 4 else left)
        given = numbers(sizes), numbers(place)
        pen.add(op, [x, *given], {"num_splits": len(sizes)}, count=len(sizes))
    elif size <= 12:
        pen.add(op, [x], {"num": size, "axis": place}, count=size)


def reshape(pen: Pen) -> None:
    op, x = pen.one_of(("RESHAPE", "RESHAPE", "SQUEEZE", "EXPAND_DIMS")), pen.source()
    if op == "EXPAND_DIMS":
        pen.add(op, [x, numbers(pen.random.randint(-len(x.shape) - 1, len(x.shape)))])
        return
    if op == "SQUEEZE":
        ones = [axis for axis, size in enumerate(x.shape) if size == 1]
        taken = pen.random.sample(ones, pen.random.randint(0, len(ones)))
        pen.add(op, [x], {"squeeze_dims": taken})
        return
    left, sizes = math.prod(x.shape), []
    for _ in range(pen.random.randint(0, 3)):
        sizes.append(pen.one_of([each for each in range(1, min(left, 64) + 1) if left % each == 0]))
        left //= sizes[-1]
    sizes.append(left if pen.may(0.7) else -1)
    pen.add(op, [x, numbers(sizes)], {"new_shape": sizes})


def move(pen: Pen) -> None:
    op = pen.one_of(("TRANSPOSE", "SLICE", "GATHER", "GATHER_ND", "TILE", "BROADCAST_TO", "CAST"))
    x, kind = pen.source(), pen.one_of(("int32", "int64"))
    rank = len(x.shape)
    if op == "TRANSPOSE":
        pen.add(op, [x, numbers(pen.random.sample(range(rank), rank))])
    elif op == "SLICE":
        begin = [pen.random.randrange(size) for size in x.shape]
        size = [pen.random.randint(1, n - at) for n, at in zip(x.shape, begin, strict=True)]
        pen.add(op, [x, numbers(begin, kind), numbers(size, kind)])
    elif op == "GATHER":
        axis = pen.random.randrange(rank)
        shape = pen.one_of(((), (1,), (3,), (2, 3)))
        places = pen.arrays.integers(0, x.shape[axis], shape)
        pen.add(op, [x, numbers(places, kind)], {"axis": axis, "batch_dims": 0})
    elif op == "GATHER_ND":
        depth, shape = pen.random.randint(1, rank), pen.one_of(((1,), (4,), (2, 3)))
        places = [pen.arrays.integers(0, size, shape) for size in x.shape[:depth]]
        pen.add(op, [x, numbers(np.stack(places, -1), kind)])
    elif op == "TILE":
        pen.add(op, [x, numbers([pen.one_of((1, 1, 2, 3)) for _ in x.shape], kind)])
    elif op == "BROADCAST_TO":
        shape = [size if size > 1 else pen.one_of((1, 2, 5)) for size in x.shape]
        pen.add(op, [x, numbers([pen.one_of((1, 2)), *shape] if pen.may(0.3) else shape, kind)])
    else:
        dtype = pen.one_of(("int32", "float32", "int64", "uint8", "int8", "bool"))
        pen.add(op, [x], {"in_data_type": x.dtype, "out_data_type": dtype}, dtype=dtype)


def strided_slice(pen: Pen) -> None:
    x = pen.source()
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    masks, rows = dict.fromkeys(names, 0), []
    for axis, size in enumerate(x.shape):
        stride = pen.one_of((1, 1, 1, 2, 3, -1, -2))
        first, last = (pen.random.randint(-size - 2, size + 1) for _ in "ab")
        masks["begin_mask"] |= pen.may(0.4) << axis
        masks["end_mask"] |= pen.may(0.4) << axis
        if pen.may(0.08):
            place = pen.random.randrange(size)
            first, last, stride = place, place + 1, 1
            masks["shrink_axis_mask"] |= 1 << axis
        rows.append((first, last, stride))
    begin, end, strides = (numbers([row[place] for row in rows]) for place in range(3))
    pen.add("STRIDED_SLICE", [x, begin, end, strides], masks)


def block(pen: Pen) -> None:
    x = pen.source(4)
    n, h, w, _ = x.shape
    op = pen.one_of(("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"))
    if op.endswith("_ND"):
        sizes = [pen.one_of((1, 2, 3)) for _ in "hw"]
        if op == "SPACE_TO_BATCH_ND":
            before = [pen.random.randint(0, 2) for _ in "hw"]
            rows = [[a, -(n + a) % s] for n, a, s in zip((h, w), before, sizes, strict=True)]
        else:
            sizes = [1, 1] if n % math.prod(sizes) else sizes
            rows = [[pen.random.randint(0, 1), 0], [0, pen.random.randint(0, 1)]]
        pen.add(op, [x, numbers(sizes), numbers(rows)])
    else:
        pen.add(op, [x], {"block_size": pen.one_of((1, 2, 2, 3))})


def shuffle(pen: Pen) -> None:
    """ShuffleNet's concatenation, shuffle and split of channels."""
    x = pen.source(4)
    own = numbers_of(x)
    if pen.may(0.8):
        y = pen.operand(x.shape, x.dtype, own)
        options = {"axis": 3, "fused_activation_function": "NONE"}
        (x,) = pen.add("CONCATENATION", [x, y], options, given=own)
        pen.hide(x)
    *places, channels = x.shape
    groups = pen.one_of([each for each in (2, 2, 3, 4, channels) if channels % each == 0])
    wide, narrow = [*places, groups, channels // groups], list(x.shape)
    (apart,) = pen.add("RESHAPE", [x, numbers(wide)], {"new_shape": wide}, given=own)
    (turned,) = pen.add("TRANSPOSE", [apart, numbers((0, 1, 2, 4, 3))], given=own)
    (y,) = pen.add("RESHAPE", [turned, numbers(narrow)], {"new_shape": narrow}, given=own)
    pen.hide(apart)
    pen.hide(turned)
    if pen.may(0.6) and channels % 2 == 0:
        halves = {"num_splits": 2}
        pen.add("SPLIT", [numbers(3), y], halves, dtype=y.dtype, given=own, count=2)
        pen.hide(y)


def filled(pen: Pen) -> None:
    """FILL, or ONE_HOT with many indices beyond its depth."""
    value = pen.operand((), pen.dtype)
    own = numbers_of(value)
    if pen.may(0.4):
        shape = pen.shape(pen.one_of((1, 2, 3)))
        pen.add("FILL", [numbers(shape), value], dtype=pen.dtype, given=own)
        return
    x = pen.operand(pen.shape(pen.one_of((1, 2))), pen.one_of(("int32", "int64")))
    given = [x, numbers(pen.random.randint(1, 20)), value, pen.operand((), pen.dtype, own)]
    axis = pen.random.randint(-1, len(x.shape))
    pen.add("ONE_HOT", given, {"axis": axis}, dtype=pen.dtype, given=own)


def update(pen: Pen) -> None:
    """DYNAMIC_UPDATE_SLICE, also with starts beyond the end, which TFLite clamps."""
    x = pen.source()
    part = tuple(pen.random.randint(1, size) for size in x.shape)
    kind = pen.one_of(("int32", "int64"))
    places = [pen.random.randint(-1, size) for size in x.shape]
    starts = numbers(places, kind) if pen.may(0.5) else pen.input((len(part),), kind)
    pen.add("DYNAMIC_UPDATE_SLICE", [x, pen.operand(part, x.dtype, numbers_of(x)), starts])


def scatter(pen: Pen) -> None:
    x = pen.source()
    row, count = x.shape[1:], pen.random.randint(1, 9)
    places = [pen.random.randrange(count) for _ in range(x.shape[0])]
    inputs = [numbers([[place] for place in places]), x, numbers([count, *row])]
    pen.add("SCATTER_ND", inputs, dtype=x.dtype)


def stablehlo_pad(pen: Pen) -> None:
    """STABLEHLO_PAD, also with negative padding, which crops."""
    x = pen.source()
    rows = [[pen.one_of((0, 0, 1, 2, 3, -1, -2)) for _ in x.shape] for _ in "ab"]
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    options = dict(zip(names, (*rows, [pen.one_of((0, 0, 1, 2)) for _ in x.shape]), strict=True))
    pen.add("STABLEHLO_PAD", [x, pen.operand((), x.dtype, numbers_of(x))], options)


def stablehlo_gather(pen: Pen) -> None:
    """STABLEHLO_GATHER with any starts, which TFLite clamps."""
    x = pen.source()
    rank, count = len(x.shape), pen.random.randint(1, 9)
    slices = [pen.random.randint(1, size) for size in x.shape]
    mapped = pen.random.sample(range(rank), pen.random.randint(1, rank))
    dropped = [axis for axis, size in enumerate(slices) if size == 1 and pen.may(0.5)]
    remaining = rank - len(dropped)
    offsets = sorted(pen.random.sample(range(remaining + 1), remaining))
    kind, shape = pen.one_of(("int32", "int64")), (count, len(mapped))
    places = numbers(pen.arrays.integers(-2, 20, shape), kind)
    options = {
        "offset_dims": offsets,
        "collapsed_slice_dims": dropped,
        "start_index_map": mapped,
        "index_vector_dim": 1,
        "slice_sizes": slices,
    }
    sizes = iter([size for axis, size in enumerate(slices) if axis not in dropped])
    wanted = [next(sizes) if axis in offsets else count for axis in range(remaining + 1)]
    result = tensor(wanted, x.dtype, *numbers_of(x))
    indices = places if pen.may(0.5) else pen.input(shape, kind)
    pen.join(node("STABLEHLO_GATHER", [x, indices], [result], options))


def stablehlo_scatter(pen: Pen) -> None:
    """STABLEHLO_SCATTER of rows to constant positions, some beyond the end."""
    x = pen.source()
    mapped = pen.random.sample(range(len(x.shape)), pen.random.randint(1, len(x.shape)))
    picks = pen.random.randint(1, 9)
    sizes = (size for axis, size in enumerate(x.shape) if axis not in mapped)
    windows = [pen.random.randint(1, size) for size in sizes]
    updates = pen.operand((picks, *windows), x.dtype, numbers_of(x))
    places = numbers(pen.arrays.integers(0, 12, (picks, len(mapped))))
    body = pen.one_of(("", "ADD", "MULTIPLY", "MINIMUM", "MAXIMUM"))
    inserted, window = tuple(sorted(mapped)), tuple(range(1, len(windows) + 1))
    op = body and f"STABLEHLO_{body}"
    pen.join(scattered([x, places, updates], op, window, inserted, tuple(mapped), 1))


# Frequencies.
OFTEN = (
    (2, resize), (2, pad), (2, join), (2, part), (3, reshape),
    (4, move), (2, strided_slice), (2, block), (2, shuffle), (1, filled), (1, update), (1, scatter),
    (1, stablehlo_pad), (1, stablehlo_gather), (1, stablehlo_scatter),
)  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""ARG_MAX and ARG_MIN: over vectors of kept elements, over vectors of a row, plain."""

from __future__ import annotations

import math

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch, size_bytes
from delegate.ops._checks.node import inputs_of, output_of, require_constant
from delegate.ops._checks.shapes import elements_of, shape_text
from delegate.ops._launches.tiles import HALF_ROUNDS, by_work, lanes_of
from delegate.ops._launches.types import ELEM
from delegate.ops._registry import lowers
from delegate.target import Target

_TYPES = ("uint8", "int8", "int32", "float32", "bool")
_LONGEST = 2**18  # an axis whose elements a work-item visits in few enough rounds
_STEPS = 8  # elements a round of the plain kernel


@lowers("ARG_MAX", "ARG_MIN")
def lower_arg_max(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Find the place of the largest or smallest element along an axis, the first one of several.

    Shapes:
        input (..., n, ...), constant axis of one value -> output (..., ...) of int32 or int64
    Raises:
        Unsupported: other types, an axis that is computed, out of range or too long.
    Source: tflite/kernels/arg_min_max.cc, internal/reference/arg_min_max.h
    """
    (source, axis), _ = inputs_of(node.inputs, 2)
    result = output_of(node.outputs)
    if source.dtype not in _TYPES:
        raise Unsupported(f"{source.dtype}: only {', '.join(_TYPES)} are implemented")
    if result.dtype not in ("int32", "int64"):
        raise Unsupported(f"output {result.dtype}: int32 or int64 is needed")
    if axis.dtype not in ("int32", "int64"):
        raise Unsupported(f"axis {axis.dtype}: int32 or int64 is needed")
    values = np.ravel(require_constant(axis, "axes")).tolist()
    rank = len(source.shape)
    if len(values) != 1 or not -rank <= values[0] < rank:
        raise Unsupported(f"axis {values} of {shape_text(source)}: one of its axes is needed")
    along = values[0] % rank
    elements = elements_of(source)
    if result.shape != source.shape[:along] + source.shape[along + 1 :]:
        raise Unsupported(
            f"{shape_text(source)} -> {shape_text(result)}: all but axis {along} must stay"
        )
    if max(size_bytes(source), size_bytes(result)) >= 2**31:
        raise Unsupported(f"{shape_text(source)}: 2^31 bytes or more")
    length, inner = source.shape[along], math.prod(source.shape[along + 1 :])
    if length > _LONGEST:
        raise Unsupported(f"axis of {length}: more than 2^18 elements")
    count = elements // length
    is_min = int(node.op == "ARG_MIN")
    common: dict[str, int | Tensor | Constant] = {
        "input": source,
        "output": result,
        "length": length,
    }
    shared: dict[str, int | str] = {"IS_LONG": int(result.dtype == "int64")}
    gives_way = int(inner > 1 and target.rules.arg_max_nan_gives_way)
    kept = {"inner": inner, "nan_gives_way": gives_way}
    typed = shared | {"ELEM": ELEM[source.dtype], "IS_MIN": is_min}

    def launch(
        kernel: str, items: int, rounds: int, extra: dict[str, int], defines: dict[str, int | str]
    ) -> Launch:
        tiling = by_work(items, 2 * rounds + 8, target, HALF_ROUNDS // rounds)
        return Launch(
            "arg_max",
            kernel,
            tiles=tiling.tiles,
            group_items=tiling.group_items,
            params=common | {**extra, "items": items, "tile_items": tiling.tile_items},
            reads=(source,),
            writes=(result,),
            defines=defines,
        )

    found = []
    lanes = lanes_of(inner, target)
    if lanes:
        blocks = -(-inner // lanes)
        vector = launch(
            "arg_max_vector",
            count // inner * blocks,
            length,
            kept | {"blocks": blocks},
            typed | {"LANES": lanes},
        )
        if length <= HALF_ROUNDS:
            found.append(Alternative(f"vector {lanes}", (vector,)))
    elif inner == 1 and target.group_items == 1:
        is_short = source.dtype != "int32" and source.dtype != "float32" and length <= 256
        widest = target.vector_width * (2 if is_short else 1)
        lanes = max((n for n in (16, 8, 4) if n <= min(widest, length)), default=0)
        rounds = -(-length // max(lanes, 1))
        if lanes and is_short:
            # Bytes whose order as unsigned ones is that of the elements, or its reverse.
            flip = (128 if source.dtype == "int8" else 0) ^ (255 * is_min)
            kernel = "arg_max_row_quant8"
            row = launch(kernel, count, rounds, {"flip": flip}, shared | {"LANES": lanes})
            found.append(Alternative(f"row {lanes}", (row,)))
        elif lanes:
            row = launch("arg_max_row", count, rounds, {}, typed | {"LANES": lanes})
            found.append(Alternative(f"row {lanes}", (row,)))
    plain = launch("arg_max", count, -(-length // _STEPS), kept, typed)
    return (*found, Alternative("plain", (plain,)))

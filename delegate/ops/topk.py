# SPDX-License-Identifier: Apache-2.0
"""TOPK_V2: the largest elements of each row, and their indices.

Short rows are ranked directly. In long rows the k largest elements are selected first, then ranked.
"""

from __future__ import annotations

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.float_results import SELECTS
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Defines, Launch, Params, temporary
from delegate.ops._checks.node import elements_of, inputs_of, require_shape, scalar_of
from delegate.ops._launches.tiles import (
    GROUP_ITEMS,
    HALF_ROUNDS,
    MOST_ROUNDS,
    by_work,
    launch_of,
    launch_over,
)
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

_TYPES = ("uint8", "int8", "int16", "int32", "float32")
_SHORT = 256  # elements of a row that is ranked faster than selected
_UNROLLED = 4  # elements per loop round of the selection


@lowers("TOPK_V2", floats=SELECTS)
def lower_topk(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the k largest elements of each row in descending order; ties are in input order.

    Shapes:
        input (..., n), k -> values (..., k), indices (..., k) of int32 or int16
    Raises:
        Unsupported: other types; a non-constant k; rows or a k too long for a work-item's loops.
    Source: tflite/kernels/topk_v2.cc
    """
    (source, k_tensor), _ = inputs_of(node.inputs, 2)
    if len(node.outputs) != 2:
        raise Unsupported(f"{len(node.outputs)} outputs: values and indices are expected")
    values, indices = node.outputs
    if source.dtype not in _TYPES or values.dtype != source.dtype:
        raise Unsupported(f"{source.dtype} -> {values.dtype}: one of {', '.join(_TYPES)}")
    if indices.dtype not in ("int32", "int16"):
        raise Unsupported(f"{indices.dtype} indices: only int32 and int16")
    k, length = scalar_of(k_tensor, "k"), (source.shape or (0,))[-1]
    if not 1 <= k <= length:
        raise Unsupported(f"k {k}: not within 1 and the {length} elements of a row")
    if indices.dtype == "int16" and length > np.iinfo(np.int16).max:
        raise Unsupported(f"rows of {length} elements: more than int16 can index")
    for result in (values, indices):
        require_shape(result, (*source.shape[:-1], k))
        elements_of(result)
    rows = elements_of(source) // length
    defines = _defines(source, indices)
    count = length if length <= _SHORT else k
    if count > MOST_ROUNDS // 2:
        raise Unsupported(f"k {k}: more than {MOST_ROUNDS // 2}")
    fields: Params = {"input": source, "length": length, "k": k}
    launches: tuple[Launch, ...] = ()
    selection: Params = {}
    if length > _SHORT:
        first, selection = _selection(fields, rows, k, length, defines)
        launches = (first,)
    items = rows * count
    params = fields | selection | {"values_output": values, "indices_output": indices}
    params |= {"count": count, "items": items}
    tiling = by_work(items, count, target, max(1, HALF_ROUNDS // count))
    defines |= {"IS_SELECTED": int(length > _SHORT)}
    ranks = launch_over("topk_v2", "topk_v2", tiling, params, defines)
    return (Alternative("plain", (*launches, ranks)),)


def _defines(source: Tensor, indices: Tensor) -> Defines:
    digits = 8 * np.dtype(source.dtype).itemsize
    is_signed = source.dtype in ("int8", "int16", "int32")
    return {
        "ELEM": ELEM[source.dtype],
        "DIGITS": digits,
        "FLIP": f"{1 << digits - 1 if is_signed else 0}u",
        "INDEX": ELEM[indices.dtype],
        "IS_FLOAT": int(source.dtype == "float32"),
    }


def _selection(
    fields: Params, rows: int, k: int, length: int, defines: Defines
) -> tuple[Launch, Params]:
    """Return the launch that selects each row's k largest elements, and the fields of its outputs.

    Raises:
        Unsupported: rows that are too long.
    """
    digits = defines["DIGITS"]
    assert isinstance(digits, int)
    part = ceil_div(length, GROUP_ITEMS)
    if digits * (ceil_div(part, _UNROLLED) + GROUP_ITEMS) + 2 * part > MOST_ROUNDS:
        raise Unsupported(f"rows of {length} elements: too many for the loops of a work-item")
    keys, places = (temporary(name, (rows, k), "int32") for name in ("keys", "places"))
    launch = launch_of(
        "topk_v2",
        "topk_v2_select",
        rows,
        GROUP_ITEMS,
        fields | {"keys_output": keys, "places_output": places},
        defines | {"SCRATCH_INTS": 2 * GROUP_ITEMS + 1},
    )
    return launch, {"keys": keys, "places": places}

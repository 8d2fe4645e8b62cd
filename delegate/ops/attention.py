# SPDX-License-Identifier: Apache-2.0
"""attention, by passes/fuse_attention.py: what of the values each query takes, by one kernel."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.float_results import Growth, roundings
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Defines, Params, temporary
from delegate.ops._checks.node import (
    inputs_of,
    output_of,
    require_floats,
    require_shape,
    shape_text,
)
from delegate.ops._launches.copy import turned
from delegate.ops._launches.tiles import (
    GROUP_ITEMS,
    HALF_ROUNDS,
    MOST_ROUNDS,
    by_share,
    lanes_of,
    launch_of,
    launch_over,
    one_each,
    product_rows,
    product_vectors,
)
from delegate.ops._numbers import bits, ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

_MOST = 4  # places that a CPU's work-item takes at a time, and vectors of the result: 4, 2 or 1
_LEAST_PLACES = 32  # of a part
_FEW_ROWS = 16  # of more, products of matrices share what they load, as the tiled kernel does


@lowers("attention", floats=roundings(Growth.STEADY, is_activation=True))
def lower_attention(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the softmax of the scaled products of queries and keys, times the values.

    Where a mask hides the last places, they are not read: the kernel finds the last one that is
    not hidden.

    Shapes:
        queries (..., r, h), keys and values (..., p, h), mask (..., r or 1, p), which is broadcast
        -> output (..., r, h)
    Raises:
        Unsupported: other types, shapes that do not fit, too many places; many rows where a
            work-item has one of them.
    """
    (queries, keys, values), (mask,) = inputs_of(node.inputs, 3, 1)
    result = output_of(node.outputs)
    require_floats(queries, keys, values, result, *([] if mask is None else [mask]))
    *outer, rows, head = queries.shape
    places = keys.shape[-2]
    require_shape(keys, (*outer, places, head))
    require_shape(values, keys.shape)
    require_shape(result, queries.shape)
    if places * head > HALF_ROUNDS * GROUP_ITEMS or places > HALF_ROUNDS:
        raise Unsupported(f"{places} places of {head}: too many for one kernel")
    if rows > _FEW_ROWS and places < 2 * rows and target.group_items > 1:
        raise Unsupported(f"{rows} rows: products of matrices share what they load")
    count = math.prod((*outer, rows))
    params: Params = {
        "queries": queries,
        "keys": keys,
        "values": values,
        "output": result,
        "shares_output": temporary("shares", (count, places), "float32"),
        "scale": bits(float(node.options["scale"])),
        "rows": rows,
        "places": places,
        "head": head,
    }
    if mask is not None:
        params |= {"mask": mask, **_mask_steps(mask, (*outer, rows, places))}
        params["masked_scale"] = bits(float(node.options["masked_scale"]))
    has_mask: Defines = {"HAS_MASK": int(mask is not None)}
    launch = launch_over(
        "attention", "attention_float", one_each(count), params | {"elements": count}, has_mask
    )
    fallback = Alternative("plain", (launch,))
    tiled = _tiled(queries, keys, params, has_mask, target)
    lanes = lanes_of(head, target)
    if not lanes or head % lanes or places < _MOST:
        return *tiled, fallback
    is_alone = target.group_items == 1
    defines = has_mask | {"LANES": lanes, "ALONE": int(is_alone)}
    if is_alone:
        blocks = {"TILE_N": math.gcd(places, _MOST), "VECTORS": math.gcd(head // lanes, _MOST)}
    else:
        blocks = {"TILE_N": 1, "SCRATCH_INTS": target.group_items}
    defines |= blocks
    row = launch_of("attention", "attention_row_float", count, target.group_items, params, defines)
    parts = _parts((count // rows, rows, places, head), params, has_mask, lanes, target)
    return *tiled, *parts, Alternative(f"row {lanes}", (row,)), fallback


def _parts(
    sizes: tuple[int, int, int, int],
    params: Params,
    defines: Defines,
    lanes: int,
    target: Target,
) -> tuple[Alternative, ...]:
    """Return the launches for few rows of each matrix, on a CPU whose cores share its places.

    Each key and value is loaded once for all rows of its matrix. None where one core takes one row
    anyway, or rows are too many for the registers. `sizes`: matrices, rows, places and head.
    """
    matrices, rows, places, head = sizes
    sums = 12 if lanes > 8 else 8  # vectors that registers have beside what is loaded
    parts = target.compute_units // math.gcd(matrices, target.compute_units)
    parts = max(1, min(parts, places // _LEAST_PLACES))
    if target.group_items > 1 or rows > 4 or rows * parts == 1:
        return ()
    most = _MOST if rows * _MOST <= sums else 2
    found = temporary("found", (matrices * rows, parts, head + 2), "float32")
    own: Defines = {"LANES": lanes, "PARTS": parts}
    blocks: Defines = {"TILE_M": rows, "TILE_N": math.gcd(places, most)}
    blocks["VECTORS"] = math.gcd(head // lanes, most)
    scored = launch_of(
        "attention_parts",
        "attention_parts_float",
        matrices * parts,
        1,
        {name: value for name, value in params.items() if name != "output"}
        | {"found_output": found},
        defines | own | blocks,
    )
    merged = launch_of(
        "attention_parts",
        "attention_parts_merged_float",
        matrices * rows,
        1,
        {"found_input": found, "head": head, "output": params["output"]},
        defines | own,
    )
    return (Alternative(f"parts {parts}x{rows}", (scored, merged)),)


def _tiled(
    queries: Tensor, keys: Tensor, params: Params, defines: Defines, target: Target
) -> tuple[Alternative, ...]:
    """Return the launches for several rows at a time, on a CPU; none where they fill no tile."""
    *outer, rows, head = queries.shape
    places = keys.shape[-2]
    lanes = lanes_of(min(head, places), target)
    tile_m = product_rows(rows, target)
    if target.group_items > 1 or not lanes or tile_m == 1:
        return ()
    at_places, vectors = (product_vectors(count, lanes, target) for count in (places, head))
    by_terms, first = turned(keys, target)
    row_blocks, pitch = ceil_div(rows, tile_m), ceil_div(places, lanes) * lanes
    items = math.prod(outer) * row_blocks
    found, taken = ceil_div(places, lanes * at_places), ceil_div(head, lanes * vectors)
    rounds = found * head + tile_m * pitch // lanes + taken * places
    if rounds > MOST_ROUNDS:
        return ()
    tiling = by_share(items, target, most=MOST_ROUNDS // rounds)
    shares = temporary("shares", (tiling.tiles, tile_m, pitch), "float32")
    own = params | {"keys": by_terms, "shares_output": shares, "pitch": pitch}
    own |= {"row_blocks": row_blocks, "items": items}
    defines = defines | {"LANES": lanes, "TILE_M": tile_m}
    defines |= {"PLACE_VECTORS": at_places, "VECTORS": vectors}
    launch = launch_over("attention", "attention_tiled_float", tiling, own, defines)
    return (Alternative(f"tiled {tile_m}x{lanes * at_places}", (*first, launch)),)


def _mask_steps(mask: Tensor, shape: tuple[int, ...]) -> Params:
    """Return the steps of a mask from one matrix to the next, and from row to row.

    Raises:
        Unsupported: it is broadcast in another way.
    """
    *outer, rows, places = shape
    own = (1,) * (len(shape) - len(mask.shape)) + mask.shape
    is_one = all(size == 1 for size in own[:-2])
    if own[-1] != places or own[-2] not in (1, rows) or not (is_one or [*own[:-2]] == outer):
        raise Unsupported(f"a mask {shape_text(mask)} of scores {shape}")
    return {
        "mask_matrix_step": 0 if is_one else own[-2] * places,
        "mask_row_step": 0 if own[-2] == 1 else places,
    }

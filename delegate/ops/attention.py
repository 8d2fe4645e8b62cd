# SPDX-License-Identifier: Apache-2.0
"""attention, by passes/fuse_attention.py: softmax(queries x keys) x values in one kernel."""

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
from delegate.ops._launches.copy import transposed
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

_MOST = 4  # positions that a CPU's work-item processes at once, and vectors of the result
_LEAST_POSITIONS = 32  # positions per part
_MOST_ROWS = 16  # with more, matrix products and the tiled kernel win: rows share loads


@lowers("attention", floats=roundings(Growth.STEADY, is_activation=True))
def lower_attention(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the softmax of the scaled products of queries and keys, times the values.

    The kernel skips masked positions at the end.

    Shapes:
        queries (..., r, h), keys and values (..., p, h), mask (..., r or 1, p), broadcast
        -> output (..., r, h)
    Raises:
        Unsupported: types other than float32, mismatched shapes, too many positions; many rows on a
            device with one row per work-item.
    """
    (queries, keys, values), (mask,) = inputs_of(node.inputs, 3, 1)
    result = output_of(node.outputs)
    require_floats(queries, keys, values, result, *([] if mask is None else [mask]))
    *outer, rows, head = queries.shape
    positions = keys.shape[-2]
    require_shape(keys, (*outer, positions, head))
    require_shape(values, keys.shape)
    require_shape(result, queries.shape)
    if positions * head > HALF_ROUNDS * GROUP_ITEMS or positions > HALF_ROUNDS:
        raise Unsupported(f"{positions} places of {head}: too many for one kernel")
    if rows > _MOST_ROWS and positions < 2 * rows and target.group_items > 1:
        raise Unsupported(f"{rows} rows: separate products of matrices are faster")
    count = math.prod((*outer, rows))
    params: Params = {
        "queries": queries,
        "keys": keys,
        "values": values,
        "output": result,
        "shares_output": temporary("shares", (count, positions), "float32"),
        "scale": bits(float(node.options["scale"])),
        "rows": rows,
        "places": positions,
        "head": head,
    }
    if mask is not None:
        params |= {"mask": mask, **_mask_steps(mask, (*outer, rows, positions))}
        params["masked_scale"] = bits(float(node.options["masked_scale"]))
    mask_define: Defines = {"HAS_MASK": int(mask is not None)}
    launch = launch_over(
        "attention", "attention_float", one_each(count), params | {"elements": count}, mask_define
    )
    fallback = Alternative("plain", (launch,))
    tiled = _tiled(queries, keys, params, mask_define, target)
    lanes = lanes_of(head, target)
    if not lanes or head % lanes or positions < _MOST:
        return *tiled, fallback
    is_single = target.group_items == 1
    defines = mask_define | {"LANES": lanes, "ALONE": int(is_single)}
    if is_single:
        blocks = {"TILE_N": math.gcd(positions, _MOST), "VECTORS": math.gcd(head // lanes, _MOST)}
    else:
        blocks = {"TILE_N": 1, "SCRATCH_INTS": target.group_items}
    defines |= blocks
    row = launch_of("attention", "attention_row_float", count, target.group_items, params, defines)
    parts = _parts((count // rows, rows, positions, head), params, mask_define, lanes, target)
    return *tiled, *parts, Alternative(f"row {lanes}", (row,)), fallback


def _parts(
    sizes: tuple[int, int, int, int],
    params: Params,
    defines: Defines,
    lanes: int,
    target: Target,
) -> tuple[Alternative, ...]:
    """Return the launches for few rows per matrix, on a CPU whose cores share the positions.

    Each key and value is loaded once for all rows of its matrix. Returns none if a core has only
    one row anyway, or the rows exceed the registers. `sizes`: matrices, rows, positions, head size.
    """
    matrices, rows, positions, head = sizes
    sums = 12 if lanes > 8 else 8  # vectors of sums that fit in registers beside the loads
    parts = target.compute_units // math.gcd(matrices, target.compute_units)
    parts = max(1, min(parts, positions // _LEAST_POSITIONS))
    if target.group_items > 1 or rows > 4 or rows * parts == 1:
        return ()
    most = _MOST if rows * _MOST <= sums else 2
    partials = temporary("found", (matrices * rows, parts, head + 2), "float32")
    part_defines: Defines = {"LANES": lanes, "PARTS": parts}
    blocks: Defines = {"TILE_M": rows, "TILE_N": math.gcd(positions, most)}
    blocks["VECTORS"] = math.gcd(head // lanes, most)
    scores = launch_of(
        "attention_parts",
        "attention_parts_float",
        matrices * parts,
        1,
        {name: value for name, value in params.items() if name != "output"}
        | {"found_output": partials},
        defines | part_defines | blocks,
    )
    merged = launch_of(
        "attention_parts",
        "attention_parts_merged_float",
        matrices * rows,
        1,
        {"found_input": partials, "head": head, "output": params["output"]},
        defines | part_defines,
    )
    return (Alternative(f"parts {parts}x{rows}", (scores, merged)),)


def _tiled(
    queries: Tensor, keys: Tensor, params: Params, defines: Defines, target: Target
) -> tuple[Alternative, ...]:
    """Return the launches for several rows at once, on a CPU; none if the rows fill no tile."""
    *outer, rows, head = queries.shape
    positions = keys.shape[-2]
    lanes = lanes_of(min(head, positions), target)
    tile_m = product_rows(rows, target)
    if target.group_items > 1 or not lanes or tile_m == 1:
        return ()
    score_vectors, vectors = (product_vectors(count, lanes, target) for count in (positions, head))
    transposed_keys, transposition = transposed(keys, target)
    row_blocks, pitch = ceil_div(rows, tile_m), ceil_div(positions, lanes) * lanes
    items = math.prod(outer) * row_blocks
    score_blocks = ceil_div(positions, lanes * score_vectors)
    value_blocks = ceil_div(head, lanes * vectors)
    rounds = score_blocks * head + tile_m * pitch // lanes + value_blocks * positions
    if rounds > MOST_ROUNDS:
        return ()
    tiling = by_share(items, target, most=MOST_ROUNDS // rounds)
    shares = temporary("shares", (tiling.tiles, tile_m, pitch), "float32")
    fields = params | {"keys": transposed_keys, "shares_output": shares, "pitch": pitch}
    fields |= {"row_blocks": row_blocks, "items": items}
    defines = defines | {"LANES": lanes, "TILE_M": tile_m}
    defines |= {"PLACE_VECTORS": score_vectors, "VECTORS": vectors}
    launch = launch_over("attention", "attention_tiled_float", tiling, fields, defines)
    return (Alternative(f"tiled {tile_m}x{lanes * score_vectors}", (*transposition, launch)),)


def _mask_steps(mask: Tensor, shape: tuple[int, ...]) -> Params:
    """Return the strides of a mask from matrix to matrix, and from row to row.

    Raises:
        Unsupported: any other broadcast.
    """
    *outer, rows, positions = shape
    padded = (1,) * (len(shape) - len(mask.shape)) + mask.shape
    is_shared = all(size == 1 for size in padded[:-2])
    if (
        padded[-1] != positions
        or padded[-2] not in (1, rows)
        or not (is_shared or [*padded[:-2]] == outer)
    ):
        raise Unsupported(f"a mask {shape_text(mask)} of scores {shape}: they do not fit")
    return {
        "mask_matrix_step": 0 if is_shared else padded[-2] * positions,
        "mask_row_step": 0 if padded[-2] == 1 else positions,
    }

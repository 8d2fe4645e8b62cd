# SPDX-License-Identifier: Apache-2.0
"""BATCH_MATMUL: plain for every type, over vectors of columns or of terms for 8 bits and floats.

Of floats and int8 the floats' rows become int8 at each run, as those of FULLY_CONNECTED.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Defines, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import applied
from delegate.ops._checks.matrices import sizes_of
from delegate.ops._checks.node import tensors_of
from delegate.ops._checks.windows import ONE_TAP
from delegate.ops._convolution import hybrid
from delegate.ops._launches.copy import turned
from delegate.ops._launches.tiles import (
    by_share,
    lanes_of,
    launch_over,
    most_rounds,
    one_each,
    product_rows,
    product_vectors,
)
from delegate.ops._launches.types import ELEM
from delegate.ops._launches.wide_sums import WIDE, fixed_sums
from delegate.ops._numbers import bits, ceil_div, fixed_point
from delegate.ops._registry import lowers
from delegate.ops.fully_connected import hybrid_products
from delegate.target import Rules, Target

TILE = 4  # columns of a row, a work-item
_ROWS = 8  # of 8 bits, on a CPU: right rows are read half as often
_FILE = "batch_matmul"
_TURNED_ROWS = 16  # of the left matrix: fewer are multiplied sooner than the right one is turned
_MOST_TERMS = most_rounds(1, 1_000)


_FAMILIES = {
    ("float32", "float32", "float32"): "float",
    ("int8", "int8", "int8"): "quant8",
    ("int16", "int16", "int16"): "quant16",
    ("int16", "int8", "int16"): "quant16",
    ("float32", "int8", "float32"): "hybrid",
}


@lowers("BATCH_MATMUL")
def lower_batch_matmul(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply matrices; what comes before their two dimensions is broadcast.

    Shapes:
        left (..., m, k), or (..., k, m) with adj_x, right (..., k, n), or (..., n, k) with adj_y
        -> output (..., m, n)
    Raises:
        Unsupported: shapes that do not fit, other types.
    Source: tflite/kernels/batch_matmul.cc, internal/reference/batch_matmul.h
    """
    left, right, result = tensors_of(node, 2)
    types = (left.dtype, right.dtype, result.dtype)
    if types not in _FAMILIES:
        raise Unsupported(
            f"{left.dtype} x {right.dtype} -> {result.dtype}: no such kernel is there"
        )
    is_adjoint = bool(node.options.get("adj_x")), bool(node.options.get("adj_y"))
    sizes = sizes_of(left, right, result, *is_adjoint, _MOST_TERMS)
    if target.rules.batch_matmul_mixes_rows and is_adjoint[0]:
        outer = left.shape[-3:-2], right.shape[-3:-2]
        if outer[1] == (1,) and outer[0] not in ((), (1,)):
            raise Unsupported(
                "adj_x with one right matrix for several: this TFLite mixes up the rows"
            )
    family = _FAMILIES[types]
    if family == "hybrid":
        return _hybrid(node, sizes, target)
    scaling = {} if family == "float" else _scaling(left, right, result, family)
    params: Params = {"left": left, "right_at": right, "output": result, **sizes, **scaling}
    elements = math.prod(result.shape)
    is_wide = family == "quant16"
    defines: Defines = {"ROUNDING": WIDE, "RIGHT": ELEM[right.dtype]} if is_wide else {}
    own = params | {"elements": elements}
    launch = launch_over(_FILE, f"{_FILE}_{family}", one_each(elements), own, defines)
    plain = Alternative("plain", (launch,))
    vectors = () if is_wide else _vectors(sizes, params, family, elements, target)
    beside = () if is_wide else _turned(right, sizes, params, family, elements, target)
    return (*beside, *vectors, plain)


def _hybrid(node: Node, sizes: dict[str, int], target: Target) -> tuple[Alternative, ...]:
    """Return the ways to multiply float rows, which become int8 at each run, with int8.

    Raises:
        Unsupported: what TFLite does not compute rightly, or not from one run to the next.
    Source: tflite/kernels/batch_matmul.cc EvalHybrid
    """
    left, right, result = tensors_of(node, 2)
    hybrid.require_known(target.rules)
    is_asymmetric = bool(node.options.get("asymmetric_quantize_inputs"))
    scale, zero_point = quantized.per_tensor(right)
    if zero_point:
        raise Unsupported(f"int8 with zero point {zero_point}: hybrid products take it for 0")
    if node.options.get("adj_x"):
        raise Unsupported("hybrid with adj_x: the terms of a row are not side by side")
    if sum(size > 1 for size in left.shape[:-2]) > 1:
        raise Unsupported("hybrid with several batch dimensions: TFLite takes another row's scale")
    weights = _right_sides(node, target.rules)
    if weights is None and is_asymmetric:
        raise Unsupported(
            "asymmetric rows with a computed right side: TFLite keeps the sums of its first run"
        )
    # TFLite takes the zero points' part off in floats: of small sums that is the same.
    is_exact = weights is None or 255 * int(np.abs(weights.astype(np.int32)).sum(2).max()) < 2**24
    if weights is None or len(weights) > 1:
        if is_asymmetric and not is_exact:
            raise Unsupported("asymmetric rows with several right sides: sums beyond 2^24")
        return _of_right_sides(node, sizes, scale, target)
    columns = sizes["n_size"]
    product = hybrid.Product(
        source=left,
        result=result,
        area=ONE_TAP,
        batch=math.prod(left.shape[:-1]),
        weights=np.ascontiguousarray(weights.transpose(1, 0, 2)),
        is_asymmetric=is_asymmetric,
        is_offset_in_floats=is_asymmetric and not is_exact,
        scales=np.full(columns, scale, np.float32),
        bias=np.zeros(columns, np.float32),
        clamp=applied("NONE")[0],
    )
    return hybrid_products(product, target)


def _right_sides(node: Node, rules: Rules) -> NDArray[np.int8] | None:
    """Return the right matrices, (matrices, columns, terms); None where they are computed.

    Raises:
        Unsupported: constants that TFLite sums wrongly.
    """
    right = node.inputs[1]
    if right is None or right.data is None:
        return None
    weights = right.data.astype(np.int8, copy=False).reshape(-1, *right.shape[-2:])
    if not node.options.get("adj_y"):
        weights = weights.transpose(0, 2, 1)
    by_column = np.ascontiguousarray(weights).reshape(-1, weights.shape[2])
    hybrid.require_right_sums(
        by_column, bool(node.options.get("asymmetric_quantize_inputs")), rules
    )
    return weights


def _of_right_sides(
    node: Node, sizes: dict[str, int], scale: float, target: Target
) -> tuple[Alternative, ...]:
    """Return the ways to multiply by right matrices that are computed, or several."""
    left, right, result = tensors_of(node, 2)
    depth = sizes["k_size"]
    rows = hybrid.quantised(
        left,
        (math.prod(left.shape[:-1]), depth, depth),
        bool(node.options.get("asymmetric_quantize_inputs")),
        target,
        "float32",
        is_centred=True,
    )
    elements = math.prod(result.shape)
    params: Params = {
        "left": rows.values,
        "right_at": right,
        "output": result,
        **sizes,
        "row_scales": rows.scales,
        "right_scale": bits(scale),
    }
    own = params | {"elements": elements}
    launch = launch_over(_FILE, f"{_FILE}_hybrid", one_each(elements), own)
    ways = (
        *_turned(right, sizes, params, "hybrid", elements, target),
        *_vectors(sizes, params, "hybrid", elements, target),
        Alternative("plain", (launch,)),
    )
    return tuple(replace(way, launches=(*rows.launches, *way.launches)) for way in ways)


def _vectors(
    sizes: dict[str, int], params: Params, family: str, elements: int, target: Target
) -> tuple[Alternative, ...]:
    """Return the launch over vectors of columns, or of terms; none where they fill none."""
    m, k, n = (sizes[name] for name in ("m_size", "k_size", "n_size"))
    rows, vectors = elements // n, 1
    if sizes["right_column"] == 1 and n > 1:
        name, side, lanes = "vector", "TILE_M", lanes_of(n, target)
        tile = product_rows(m, target)
        if family == "quant8":
            tile = _ROWS if target.group_items == 1 and m >= _ROWS else tile
        elif lanes:
            vectors = product_vectors(n, lanes, target)
        columns = lanes * vectors
        blocks = {"m_blocks": ceil_div(m, tile), "n_blocks": ceil_div(n, columns or 1)}
        items = rows // m * blocks["m_blocks"] * blocks["n_blocks"]
    else:
        name, side, lanes = "row", "TILE_N", lanes_of(k, target)
        tile = TILE if n >= TILE else 1
        blocks = {"n_blocks": ceil_div(n, tile)}
        items = rows * blocks["n_blocks"]
        is_beside = sizes["right_term"] == sizes["left_term"] == 1
        lanes = lanes if is_beside and family != "hybrid" else 0
    if not lanes:
        return ()
    kernel, own = f"{_FILE}_{name}_{family}", params | blocks | {"items": items}
    defines: Defines = {"LANES": lanes, side: tile, "VECTORS": vectors}
    launch = launch_over(_FILE, kernel, by_share(items, target), own, defines)
    return (Alternative(f"{name} {lanes * vectors}x{tile}", (launch,)),)


def _turned(
    right: Tensor,
    sizes: dict[str, int],
    params: Params,
    family: str,
    elements: int,
    target: Target,
) -> tuple[Alternative, ...]:
    """Return the launches that turn the right matrices first, so that columns make vectors.

    That is worth it where many rows read what is turned: queries and keys of an attention.
    """
    terms, columns = sizes["k_size"], sizes["n_size"]
    is_short = sizes["m_size"] < _TURNED_ROWS or min(terms, columns) < 2
    if sizes["right_term"] != 1 or is_short or target.group_items > 1:
        return ()
    matrices, first = turned(right, target)
    own = params | sizes | {"right_at": matrices, "right_term": columns, "right_column": 1}
    own_sizes = sizes | {"right_term": columns, "right_column": 1}
    (way,) = _vectors(own_sizes, own, family, elements, target) or (None,)
    if way is None:
        return ()
    return (Alternative(f"turned {way.name}", (*first, *way.launches)),)


def _scaling(left: Tensor, right: Tensor, result: Tensor, family: str) -> dict[str, int]:
    """Return zero points, a multiplier and a shift.

    Raises:
        Unsupported: a right zero point of int16, scales beyond TFLite's.
    """
    scale, zero_point = quantized.per_tensor(result, quantized.QUANT)
    left_scale, left_zero = quantized.per_tensor(left, quantized.QUANT)
    right_scale, right_zero = quantized.per_tensor(right, quantized.QUANT)
    with np.errstate(over="ignore"):
        scales = float(np.float32(left_scale) * np.float32(right_scale))
    if math.isinf(scales):
        raise Unsupported(f"scales {left_scale} * {right_scale}: more than a float holds")
    if family == "quant16":
        if right_zero:
            raise Unsupported(f"{right.dtype} with zero point {right_zero}: it must be 0")
        pair = fixed_point.quantize_multiplier(scales / scale)
        scaling = fixed_sums(np.zeros(1, np.int64), [pair], False).scaling[:, 0].tolist()
        return {"multiplier": scaling[0], "shift": scaling[1]}
    multiplier, shift = quantized.multiplier_of(scales / scale)
    return {
        "left_zero": left_zero,
        "right_zero": right_zero,
        "output_zero": zero_point,
        "multiplier": multiplier,
        "shift": shift,
    }

# SPDX-License-Identifier: Apache-2.0
"""BATCH_MATMUL: vectors of columns or of terms for 8 bits and floats, and plain for all types.

A hybrid one (float32 x int8) quantises its float rows at run time, like FULLY_CONNECTED.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import PRODUCTS
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Defines, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import applied
from delegate.ops._checks.matrices import sizes_of
from delegate.ops._checks.node import tensors_of
from delegate.ops._checks.windows import ONE_TAP
from delegate.ops._convolution import hybrid
from delegate.ops._convolution.variants import hybrid_products
from delegate.ops._launches.products import MOST_TERMS, MatrixProduct
from delegate.ops._launches.types import ELEM
from delegate.ops._launches.wide_sums import WIDE, fixed_sums
from delegate.ops._numbers import bits, fixed_point
from delegate.ops._registry import lowers
from delegate.target import Rules, Target

_FAMILIES = {
    ("float32", "float32", "float32"): "float",
    ("int8", "int8", "int8"): "quant8",
    ("int16", "int16", "int16"): "quant16",
    ("int16", "int8", "int16"): "quant16",
    ("float32", "int8", "float32"): "hybrid",
}


@lowers("BATCH_MATMUL", floats=PRODUCTS)
def lower_batch_matmul(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply matrices; the outer dimensions are broadcast.

    Shapes:
        left (..., m, k), or (..., k, m) with adj_x, right (..., k, n), or (..., n, k) with adj_y
        -> output (..., m, n)
    Raises:
        Unsupported: mismatched shapes, other types.
    Source: tflite/kernels/batch_matmul.cc, internal/reference/batch_matmul.h
    """
    left, right, result = tensors_of(node, 2)
    types = (left.dtype, right.dtype, result.dtype)
    if types not in _FAMILIES:
        raise Unsupported(f"{left.dtype} x {right.dtype} -> {result.dtype}: no such kernel")
    is_adjoint = bool(node.options.get("adj_x")), bool(node.options.get("adj_y"))
    sizes = sizes_of(left, right, result, *is_adjoint, MOST_TERMS)
    if target.rules.batch_matmul_mixes_rows and is_adjoint[0]:
        rows_and_matrices = left.shape[-3:-2], right.shape[-3:-2]
        if rows_and_matrices[1] == (1,) and rows_and_matrices[0] not in ((), (1,)):
            raise Unsupported(
                "adj_x with one right matrix for several: this TFLite mixes up the rows"
            )
    family = _FAMILIES[types]
    if family == "hybrid":
        return _hybrid(node, sizes, target)
    defines: dict[str, Defines] = {
        "quant8": {"ELEM": ELEM["int8"]},
        "quant16": {"ROUNDING": WIDE, "RIGHT": ELEM[right.dtype]},
    }
    product = MatrixProduct(
        family=family,
        left=left,
        right=right,
        result=result,
        sizes=sizes,
        fields={} if family == "float" else _scaling(left, right, result, family),
        defines=defines.get(family, {}),
    )
    return product.alternatives(target)


def _hybrid(node: Node, sizes: dict[str, int], target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives for float rows, quantised at run time, times int8.

    Raises:
        Unsupported: a node that TFLite computes wrongly, in each run or after the first.
    Source: tflite/kernels/batch_matmul.cc EvalHybrid
    """
    left, right, result = tensors_of(node, 2)
    hybrid.require_known(target.rules)
    is_asymmetric = bool(node.options.get("asymmetric_quantize_inputs"))
    scale, zero_point = quantized.per_tensor(right)
    if zero_point:
        raise Unsupported(f"int8 with zero point {zero_point}: hybrid products ignore it")
    if node.options.get("adj_x"):
        raise Unsupported("hybrid with adj_x: the terms of a row are not contiguous")
    if sum(size > 1 for size in left.shape[:-2]) > 1:
        raise Unsupported("hybrid with several batch dimensions: TFLite uses another row's scale")
    weights = _constant_right(node, target.rules)
    if weights is None and is_asymmetric:
        raise Unsupported(
            "asymmetric rows with a computed right side: TFLite keeps the sums of its first run"
        )
    # TFLite subtracts the zero points' part in floats, which is exact for small sums.
    is_exact = weights is None or 255 * int(np.abs(weights.astype(np.int32)).sum(2).max()) < 2**24
    if weights is None or len(weights) > 1:
        if is_asymmetric and not is_exact:
            raise Unsupported("asymmetric rows with several right sides: sums beyond 2^24")
        return _general_hybrid(node, sizes, scale, target)
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


def _constant_right(node: Node, rules: Rules) -> NDArray[np.int8] | None:
    """Return constant right matrices, (matrices, columns, terms); None if they are not constant.

    Raises:
        Unsupported: constants whose sums TFLite gets wrong.
    """
    right = node.inputs[1]
    if right is None or right.data is None:
        return None
    weights = right.data.astype(np.int8, copy=False).reshape(-1, *right.shape[-2:])
    if not node.options.get("adj_y"):
        weights = weights.transpose(0, 2, 1)
    by_column = np.ascontiguousarray(weights).reshape(-1, weights.shape[2])
    hybrid.require_correct_sums(
        by_column, bool(node.options.get("asymmetric_quantize_inputs")), rules
    )
    return weights


def _general_hybrid(
    node: Node, sizes: dict[str, int], scale: float, target: Target
) -> tuple[Alternative, ...]:
    """Return the alternatives for several right matrices, or ones that are not constant."""
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
    product = MatrixProduct(
        family="hybrid",
        left=rows.values,
        right=right,
        result=result,
        sizes=sizes,
        fields={"row_scales": rows.scales, "right_scale": bits(scale)},
        defines={},
    )
    products = product.alternatives(target)
    return tuple(replace(each, launches=(*rows.launches, *each.launches)) for each in products)


def _scaling(left: Tensor, right: Tensor, result: Tensor, family: str) -> Params:
    """Return the fields of zero points, multiplier and shift.

    Raises:
        Unsupported: a right zero point with int16, scales beyond TFLite's range.
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

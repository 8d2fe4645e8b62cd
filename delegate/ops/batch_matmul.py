# SPDX-License-Identifier: Apache-2.0
"""BATCH_MATMUL: plain for every type, over vectors of columns or of terms for 8 bits and floats."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Defines, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import shape_text, tensors_of
from delegate.ops._launches.tiles import by_share, lanes_of, launch_over, most_rounds, one_each
from delegate.ops._launches.types import ELEM
from delegate.ops._launches.wide_sums import WIDE, fixed_sums
from delegate.ops._numbers import ceil_div, fixed_point
from delegate.ops._registry import lowers
from delegate.target import Rules, Target

MOST_DIMENSIONS = 5  # TFLite's own limit
TILE = 4  # rows, or columns, a work-item
_MOST_TERMS = most_rounds(1, 1_000)


_FAMILIES = {
    ("float32", "float32", "float32"): "float",
    ("int8", "int8", "int8"): "quant8",
    ("int16", "int16", "int16"): "quant16",
    ("int16", "int8", "int16"): "quant16",
}


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A checked product of matrices, (m, k) by (k, n), as its kernels see it."""

    left: Tensor
    right: Tensor
    result: Tensor
    family: str  # the types, as kernels' names have them
    fields: dict[str, int]  # m_size, k_size, n_size, steps in elements, the scaling

    def params(self) -> Params:
        """The fields every kernel reads."""
        return {"left": self.left, "right_at": self.right, "output": self.result, **self.fields}


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
    return alternatives(decode(node, target.rules), target)


def decode(node: Node, rules: Rules) -> Product:
    """Return what a node multiplies, checked.

    Raises:
        Unsupported: see `lower_batch_matmul`.
    """
    left, right, result = tensors_of(node, 2)
    types = (left.dtype, right.dtype, result.dtype)
    if types not in _FAMILIES:
        raise Unsupported(
            f"{left.dtype} x {right.dtype} -> {result.dtype}: no such kernel is there"
        )
    is_adjoint = bool(node.options.get("adj_x")), bool(node.options.get("adj_y"))
    sizes = _sizes(left, right, result, *is_adjoint)
    if rules.batch_matmul_mixes_rows and is_adjoint[0]:
        outer = left.shape[-3:-2], right.shape[-3:-2]
        if outer[1] == (1,) and outer[0] not in ((), (1,)):
            raise Unsupported(
                "adj_x with one right matrix for several: this TFLite mixes up the rows"
            )
    family = _FAMILIES[types]
    if family == "float":
        return Product(left, right, result, family, sizes)
    return Product(left, right, result, family, sizes | _scaling(left, right, result, family))


def alternatives(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return the launch over vectors that these matrices allow, then the plain one."""
    m, k, n = (product.fields[name] for name in ("m_size", "k_size", "n_size"))
    elements = math.prod(product.result.shape)
    kernel, is_wide = f"batch_matmul_{product.family}", product.family == "quant16"
    defines: Defines = {"ROUNDING": WIDE, "RIGHT": ELEM[product.right.dtype]} if is_wide else {}
    sizes = {"elements": elements}
    launch = launch_over(
        "batch_matmul", kernel, one_each(elements), product.params() | sizes, defines
    )
    plain = Alternative("plain", (launch,))
    over_columns = product.fields["right_column"] == 1 and n > 1
    if over_columns:
        lanes, across = lanes_of(n, target), m
    elif product.fields["right_term"] == product.fields["left_term"] == 1:
        lanes, across = lanes_of(k, target), n
    else:
        lanes = across = 0
    if not lanes or is_wide:
        return (plain,)
    tile = TILE if across >= TILE else 1
    rows = elements // n
    if over_columns:
        name, side = "vector", "TILE_M"
        blocks = {"m_blocks": ceil_div(m, tile), "n_blocks": ceil_div(n, lanes)}
        items = rows // m * blocks["m_blocks"] * blocks["n_blocks"]
    else:
        name, side = "row", "TILE_N"
        blocks = {"n_blocks": ceil_div(n, tile)}
        items = rows * blocks["n_blocks"]
    vectors = launch_over(
        "batch_matmul",
        f"batch_matmul_{name}_{product.family}",
        by_share(items, target),
        product.params() | blocks | {"items": items},
        {"LANES": lanes, side: tile},
    )
    return Alternative(f"{name} {lanes}x{tile}", (vectors,)), plain


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
    pair = fixed_point.quantize_multiplier(scales / scale)
    if family == "quant16":
        if right_zero:
            raise Unsupported(f"{right.dtype} with zero point {right_zero}: it must be 0")
        scaling = fixed_sums(np.zeros(1, np.int64), [pair], False).scaling[:, 0].tolist()
        return {"multiplier": scaling[0], "shift": scaling[1]}
    if pair[1] > 30:
        raise Unsupported(f"a scale ratio of 2^{pair[1]}: more than 2^30")
    return {
        "left_zero": left_zero,
        "right_zero": right_zero,
        "output_zero": zero_point,
        "multiplier": pair[0],
        "shift": pair[1],
    }


def _sizes(left: Tensor, right: Tensor, result: Tensor, adj_x: bool, adj_y: bool) -> dict[str, int]:
    """Return sizes, and steps in elements.

    Raises:
        Unsupported: shapes that do not fit.
    """
    shapes = f"shapes {shape_text(left)} x {shape_text(right)} -> {shape_text(result)}"
    for tensor in (left, right):
        if not 2 <= len(tensor.shape) <= MOST_DIMENSIONS:
            raise Unsupported(f"{shapes}: 2 to {MOST_DIMENSIONS} dimensions are implemented")
        if 0 in tensor.shape:
            raise Unsupported(f"{shapes}: they are empty")
    rows, columns = left.shape[-2:]
    m, k = (columns, rows) if adj_x else (rows, columns)
    steps = (
        {"left_row": 1, "left_term": columns} if adj_x else {"left_row": columns, "left_term": 1}
    )
    rows, columns = right.shape[-2:]
    terms, n = (columns, rows) if adj_y else (rows, columns)
    if adj_y:
        steps |= {"right_term": 1, "right_column": columns}
    else:
        steps |= {"right_term": columns, "right_column": 1}
    if terms != k:
        raise Unsupported(f"{shapes}: {k} columns of the left one, {terms} rows of the right one")
    if k > _MOST_TERMS:
        raise Unsupported(f"{shapes}: {k} terms a sum, at most {_MOST_TERMS} are implemented")
    rank = max(len(left.shape), len(right.shape))
    outer = [(1,) * (MOST_DIMENSIONS - len(t.shape)) + t.shape[:-2] for t in (left, right)]
    if any(1 not in pair and pair[0] != pair[1] for pair in zip(*outer, strict=True)):
        raise Unsupported(f"{shapes}: they cannot be broadcast together")
    sizes = tuple(max(pair) for pair in zip(*outer, strict=True))
    if result.shape != (*sizes[MOST_DIMENSIONS - rank :], m, n):
        wanted = "x".join(map(str, (*sizes[MOST_DIMENSIONS - rank :], m, n)))
        raise Unsupported(f"{shapes}: {wanted} is computed")
    fields = {"m_size": m, "k_size": k, "n_size": n, "batch_1": sizes[1], "batch_2": sizes[2]}
    for name, own, matrix in (("left", outer[0], m * k), ("right", outer[1], k * n)):
        for axis in range(3):
            step = matrix * math.prod(own[axis + 1 :])
            fields[f"{name}_batch_{axis}"] = 0 if own[axis] == 1 else step
    return fields | steps

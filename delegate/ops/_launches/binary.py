# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops on two tensors: types, broadcasting, launches of binary.cl.

The op files choose the expression, and the fields for scales and bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Defines, Launch, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import elements_of, shape_text, tensors_of
from delegate.ops._launches.broadcast import broadcast, padded
from delegate.ops._launches.tiles import HALF_ROUNDS, LEAST_BYTES, by_share, lanes_of, launch_over
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import ceil_div, fixed_point
from delegate.target import Target

FAMILY = {
    "uint8": "quant8",
    "int8": "quant8",
    "bool": "quant8",
    "int16": "quant16",
    "int32": "int32",
    "int64": "int64",
    "float32": "float",
}
NUMBERS = ("int32", "float32")
EVERY = (*quantized.QUANT, *NUMBERS)
IDENTITY = (1 << 30, 1)  # multiplier and shift of 1
_FEW = 40  # registers for four elements of both inputs
_OUTER, _DEEP = 4, 7  # outer dimensions that kernels loop over, without and with DEEP
# Scalar expressions, by family.
_SCALAR = {("POWER", "float"), ("ANGLE", "float"), ("DIVIDE", "quant8"), ("DIVIDE", "quant16")}
_SCALAR_IF_FEW = {("DIVIDE", "float")}  # if registers are few
_SHORT_ROW = 64  # elements


@dataclass(frozen=True, slots=True)
class Operands:
    """The tensors of a node with two inputs of one type."""

    left: Tensor
    right: Tensor
    result: Tensor

    def quantization(self) -> list[tuple[float, int]]:
        """Return the scale and zero point of each tensor.

        Raises:
            Unsupported: one is not quantised, or has several scales.
        """
        tensors = (self.left, self.right, self.result)
        return [quantized.per_tensor(tensor, quantized.QUANT) for tensor in tensors]


def operands_of(node: Node, types: tuple[str, ...], result_type: str = "") -> Operands:
    """Return a node's tensors after checking types and shapes.

    `result_type`: by default the inputs' type.

    Raises:
        Unsupported: other types, a result shape other than the broadcast one, tensors that are
            empty or too large.
    """
    left, right, result = tensors_of(node, 2)
    if left.dtype != right.dtype or result.dtype != (result_type or left.dtype):
        raise Unsupported(
            f"{left.dtype} and {right.dtype} -> {result.dtype}: "
            f"they must be equal{f', the output {result_type}' if result_type else ''}"
        )
    if left.dtype not in types:
        raise Unsupported(f"{left.dtype}: only {', '.join(types)} are implemented")
    require_broadcast(result, left, right)
    return Operands(left, right, result)


def require_broadcast(result: Tensor, *sources: Tensor) -> None:
    """Check that a result has the broadcast shape of its sources.

    Raises:
        Unsupported: another shape, or a tensor that is empty or too large.
    """
    for tensor in (*sources, result):
        elements_of(tensor)
    try:
        shape = np.broadcast_shapes(*(tensor.shape for tensor in sources))
    except ValueError:
        shape = ()
    if shape != result.shape:
        texts = " and ".join(shape_text(tensor) for tensor in sources)
        raise Unsupported(f"{texts} -> {shape_text(result)}: not the broadcast shape")


def product_params(operands: Operands) -> dict[str, int]:
    """Return the fields of a product of quantised tensors.

    Raises:
        Unsupported: a scale ratio above 2^30.
    """
    (left_scale, left_zero), (right_scale, right_zero), (scale, zero) = operands.quantization()
    with np.errstate(over="ignore", under="ignore"):
        # In float32, as in TFLite: only the quotient becomes a double.
        ratio = float(np.float32(left_scale) * np.float32(right_scale) / np.float32(scale))
    multiplier, shift = fixed_point.quantize_multiplier(ratio)
    if not np.isfinite(ratio) or shift > 30:
        raise Unsupported(f"a scale ratio of {ratio:g}: more than 2^30")
    return scaling_of((left_zero, right_zero, zero), multiplier, shift)


def scaling_of(zeros: tuple[int, int, int], multiplier: int, shift: int) -> dict[str, int]:
    """Return the fields of products and quotients, whose inputs keep their scales."""
    return {
        **dict(zip(("left_zero", "right_zero", "output_zero"), zeros, strict=True)),
        "output_multiplier": multiplier,
        "output_shift": shift,
    }


def rescaling(which: str, multiplier: int, shift: int, zero: int, lift: int) -> dict[str, int]:
    """Return the fields of an input that is rescaled.

    Units:
        lift: a factor before the rescaling; negative: the input is subtracted
    """
    return {
        f"{which}_zero": zero,
        f"{which}_lift": lift,
        f"{which}_multiplier": multiplier,
        f"{which}_shift": shift,
    }


def identity(which: str) -> dict[str, int]:
    """Return the fields of an input that is not rescaled."""
    return rescaling(which, *IDENTITY, zero=0, lift=1)


def rows_of(result: Tensor, sources: Mapping[str, Tensor], merged: int = 1) -> dict[str, int]:
    """Return the fields by which broadcast.clh addresses the sources' elements.

    A row is the innermost dimension. Along it each source is contiguous, or broadcasts one element.
    `merged`: number of rows that are merged into one, if a source is repeated as often.

    Raises:
        Unsupported: more than 7 dimensions around the rows.
    """
    sizes, strides = broadcast(result, *sources.values())
    if merged > 1:
        sizes = (*sizes[:-2], sizes[-2] // merged, sizes[-1] * merged)
        strides = tuple((*steps[:-2], steps[-2] * merged, steps[-1]) for steps in strides)
    row = sizes[-1] if sizes else 1
    fields = {"row": row, "rows": elements_of(result) // row}
    fields |= _outer_fields("size", sizes, 1)
    for name, steps in zip(sources, strides, strict=True):
        fields |= _outer_fields(name, steps, 0)
        fields[f"{name}_step"] = steps[-1] if steps else 0
    return fields


def _outer_fields(name: str, values: Sequence[int], absent: int) -> dict[str, int]:
    """Return the fields of the dimensions around a row: the inner 0 to 3, and 4 to 6 if any."""
    outer = padded(values[:-1], _OUTER if len(values) <= _OUTER + 1 else _DEEP, absent)
    inner, outermost = outer[-_OUTER:], outer[:-_OUTER][::-1]
    return {f"{name}_{i}": n for i, n in enumerate((*inner, *outermost))}


def over_rows(
    file: str, kernel: str, params: Params, defines: Defines, width: int, most: int, target: Target
) -> tuple[Alternative, ...]:
    """Return the alternatives over rows: vectors, and plain; `params` contain those of `rows_of`.

    Units:
        width: bytes of an element; most: lanes of a vector, 1 for scalar expressions
    """
    row, rows = params["row"], params["rows"]
    defines = defines | {"DEEP": 1} if "size_4" in params else defines
    assert isinstance(row, int)
    assert isinstance(rows, int)

    def of(lanes: int) -> Launch:
        row_items = ceil_div(row, lanes)
        items = rows * row_items
        tiling = by_share(items, target, LEAST_BYTES // (lanes * width), HALF_ROUNDS)
        sizes = {"items": items, "row_items": row_items}
        return launch_over(file, kernel, tiling, params | sizes, defines | {"LANES": lanes})

    plain = Alternative("plain", (of(1),))
    lanes = lanes_of(row, target, most)
    if not target.keeps(_FEW):
        lanes = min(lanes, 2)
    return (Alternative(f"vector {lanes}", (of(lanes),)), plain) if 1 < lanes <= most else (plain,)


def binary(
    operands: Operands, op: str, numbers: Mapping[str, int], target: Target
) -> tuple[Alternative, ...]:
    """Return the alternatives of an expression of two tensors: vectors along rows, and plain.

    `op`: the macro's name in binary.cl; `numbers`: its fields for scales and bounds.

    Raises:
        Unsupported: more than 8 dimensions after merging.
    """
    tensors = {"left": operands.left, "right": operands.right}
    result = operands.result
    fields: Params = {**tensors, "output": result}
    merged = 1
    for name, tensor in tensors.items():
        rows = _rows_to_merge(tensor, operands)
        if rows > 1:
            merged, fields[name] = rows, _repeated(tensor, rows)
        fields[f"{name}_is_constant"] = int(rows > 1)
    family = FAMILY[operands.left.dtype]
    fields |= rows_of(result, tensors, merged) | dict(numbers)
    defines: Defines = {
        "OP": op,
        "ELEM": ELEM[operands.left.dtype],
        "RESULT": ELEM[result.dtype],
    }
    width = np.dtype(operands.left.dtype).itemsize
    scalar = _SCALAR if target.keeps(_FEW) else _SCALAR | _SCALAR_IF_FEW
    most = 1 if (op, family) in scalar or family == "int64" else 16 if width == 1 else 8
    return over_rows("binary", f"binary_{family}", fields, defines, width, most, target)


def _rows_to_merge(tensor: Tensor, operands: Operands) -> int:
    """Return how often to repeat a short constant row; 1 for any other operand.

    A row of few channels, such as a mean colour, fills no vector: several rows become one.
    """
    sizes, strides = broadcast(operands.result, operands.left, operands.right)
    if tensor.data is None or tensor.dtype == "bool" or len(sizes) < 2:
        return 1
    steps, other_steps = strides if tensor is operands.left else reversed(strides)
    row = sizes[-1]
    is_row = steps[-1] == 1 and not any(steps[:-1])
    if not is_row or other_steps[-2:] != (row, 1) or row >= _SHORT_ROW:
        return 1
    least, most = ceil_div(_SHORT_ROW, row), min(16 * _SHORT_ROW // row, sizes[-2])
    return next((n for n in range(least, most + 1) if sizes[-2] % n == 0), 1)


def _repeated(tensor: Tensor, times: int) -> Constant:
    values = tensor.data
    assert values is not None
    return Constant(
        times * values.nbytes, lambda: np.tile(np.ravel(values).astype(tensor.dtype), times)
    )

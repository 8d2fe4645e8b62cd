# SPDX-License-Identifier: Apache-2.0
"""What ops on two tensors share, element by element: types, broadcasting, launches of binary.cl.

The op files choose the expression, and the fields for the scales.
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
IDENTITY = (1 << 30, 1)  # a multiplier and shift that change nothing
_FEW = 40  # registers that keep four elements of both inputs
_OUTER, _DEEP = 4, 7  # dimensions around a row that kernels walk, and those where DEEP is 1
# Expressions without vectors, by family.
_ONE_BY_ONE = {("POWER", "float"), ("ANGLE", "float"), ("DIVIDE", "quant8"), ("DIVIDE", "quant16")}
_ONE_BY_ONE_OF_FEW = {("DIVIDE", "float")}  # where registers are few
_SHORT_ROW = 64  # elements


@dataclass(frozen=True, slots=True)
class Operands:
    """The tensors of a node with two inputs of one type."""

    left: Tensor
    right: Tensor
    result: Tensor

    def quantization(self) -> list[tuple[float, int]]:
        """Return the scale and the zero point of each.

        Raises:
            Unsupported: one is not quantised, or has several.
        """
        tensors = (self.left, self.right, self.result)
        return [quantized.per_tensor(tensor, quantized.QUANT) for tensor in tensors]


def operands_of(node: Node, types: tuple[str, ...], result_type: str = "") -> Operands:
    """Return a node's tensors, whose types and shapes fit.

    `result_type`: the inputs' where it is left out.

    Raises:
        Unsupported: other types, a result of another shape than the inputs are broadcast to,
            tensors that are empty or too large.
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
    """Check that a result has just the shape that its sources are broadcast to.

    Raises:
        Unsupported: it has not, or a tensor is empty or too large.
    """
    for tensor in (*sources, result):
        elements_of(tensor)
    try:
        shape = np.broadcast_shapes(*(tensor.shape for tensor in sources))
    except ValueError:
        shape = ()
    if shape != result.shape:
        texts = " and ".join(shape_text(tensor) for tensor in sources)
        raise Unsupported(f"{texts} -> {shape_text(result)}: they are not broadcast to that")


def product_params(operands: Operands) -> dict[str, int]:
    """Return the fields of a product of quantised tensors.

    Raises:
        Unsupported: a ratio of scales above 2^30.
    """
    (left_scale, left_zero), (right_scale, right_zero), (scale, zero) = operands.quantization()
    with np.errstate(over="ignore", under="ignore"):
        # In floats: TFLite's scales are, and only the quotient becomes a double.
        ratio = float(np.float32(left_scale) * np.float32(right_scale) / np.float32(scale))
    multiplier, shift = fixed_point.quantize_multiplier(ratio)
    if not np.isfinite(ratio) or shift > 30:
        raise Unsupported(f"a scale ratio of {ratio:g}: more than 2^30")
    return scaling_of((left_zero, right_zero, zero), multiplier, shift)


def scaling_of(zeros: tuple[int, int, int], multiplier: int, shift: int) -> dict[str, int]:
    """Return the fields of products and quotients, whose inputs are at scales of their own."""
    return {
        **dict(zip(("left_zero", "right_zero", "output_zero"), zeros, strict=True)),
        "output_multiplier": multiplier,
        "output_shift": shift,
    }


def rescaling(which: str, multiplier: int, shift: int, zero: int, lift: int) -> dict[str, int]:
    """Return the fields of an input that is brought to another scale.

    Units:
        lift: what it is multiplied by before; below 0 it is subtracted
    """
    return {
        f"{which}_zero": zero,
        f"{which}_lift": lift,
        f"{which}_multiplier": multiplier,
        f"{which}_shift": shift,
    }


def identity(which: str) -> dict[str, int]:
    """Return the fields of an input that is taken as it is."""
    return rescaling(which, *IDENTITY, zero=0, lift=1)


def rows_of(result: Tensor, sources: Mapping[str, Tensor], joined: int = 1) -> dict[str, int]:
    """Return the fields by which broadcast.clh's items find the elements of the sources.

    A row is the innermost dimension. Along it each source has neighbouring elements, or one element
    for all of the row.
    `joined`: how many rows are made one, where a source is repeated by as much.

    Raises:
        Unsupported: more dimensions around the rows than 7.
    """
    sizes, strides = broadcast(result, *sources.values())
    if joined > 1:
        sizes = (*sizes[:-2], sizes[-2] // joined, sizes[-1] * joined)
        strides = tuple((*own[:-2], own[-2] * joined, own[-1]) for own in strides)
    row = sizes[-1] if sizes else 1
    fields = {"row": row, "rows": elements_of(result) // row}
    fields |= _outer_fields("size", sizes, 1)
    for name, own in zip(sources, strides, strict=True):
        fields |= _outer_fields(name, own, 0)
        fields[f"{name}_step"] = own[-1] if own else 0
    return fields


def _outer_fields(name: str, values: Sequence[int], absent: int) -> dict[str, int]:
    """Return the fields of the dimensions around a row: 0 to 3, and 4 to 6 around those, if any."""
    outer = padded(values[:-1], _OUTER if len(values) <= _OUTER + 1 else _DEEP, absent)
    near, far = outer[-_OUTER:], outer[:-_OUTER][::-1]
    return {f"{name}_{i}": n for i, n in enumerate((*near, *far))}


def over_rows(
    file: str, kernel: str, params: Params, defines: Defines, wide: int, most: int, target: Target
) -> tuple[Alternative, ...]:
    """Return launches over vectors of a row, and plain; `params` have the fields of `rows_of`.

    Units:
        wide: bytes of an element; most: lanes of a vector, 1 where the elements have none
    """
    row, rows = params["row"], params["rows"]
    defines = defines | {"DEEP": 1} if "size_4" in params else defines
    assert isinstance(row, int)
    assert isinstance(rows, int)

    def of(lanes: int) -> Launch:
        row_items = ceil_div(row, lanes)
        items = rows * row_items
        tiling = by_share(items, target, LEAST_BYTES // (lanes * wide), HALF_ROUNDS)
        sizes = {"items": items, "row_items": row_items}
        return launch_over(file, kernel, tiling, params | sizes, defines | {"LANES": lanes})

    last = Alternative("plain", (of(1),))
    lanes = lanes_of(row, target, most)
    if not target.keeps(_FEW):
        lanes = min(lanes, 2)
    return (Alternative(f"vector {lanes}", (of(lanes),)), last) if 1 < lanes <= most else (last,)


def binary(
    operands: Operands, op: str, numbers: Mapping[str, int], target: Target
) -> tuple[Alternative, ...]:
    """Return the alternatives of an expression of two tensors: over vectors of a row, and plain.

    `op`: the macro's name in binary.cl; `numbers`: its fields for scales and bounds.

    Raises:
        Unsupported: more than 8 dimensions after merging.
    """
    tensors = {"left": operands.left, "right": operands.right}
    result = operands.result
    fields: Params = {**tensors, "output": result}
    joined = 1
    for name, tensor in tensors.items():
        rows = _rows_to_join(tensor, operands)
        if rows > 1:
            joined, fields[name] = rows, _repeated(tensor, rows)
        fields[f"{name}_is_constant"] = int(rows > 1)
    family = FAMILY[operands.left.dtype]
    fields |= rows_of(result, tensors, joined) | dict(numbers)
    defines: Defines = {
        "OP": op,
        "ELEM": ELEM[operands.left.dtype],
        "RESULT": ELEM[result.dtype],
    }
    wide = np.dtype(operands.left.dtype).itemsize
    lonely = _ONE_BY_ONE if target.keeps(_FEW) else _ONE_BY_ONE | _ONE_BY_ONE_OF_FEW
    most = 1 if (op, family) in lonely or family == "int64" else 16 if wide == 1 else 8
    return over_rows("binary", f"binary_{family}", fields, defines, wide, most, target)


def _rows_to_join(tensor: Tensor, operands: Operands) -> int:
    """Return how many times to repeat a short constant row; 1 for any other operand.

    A few channels, as of a mean colour, fill no vector, so several pixels become one row.
    """
    sizes, strides = broadcast(operands.result, operands.left, operands.right)
    if tensor.data is None or tensor.dtype == "bool" or len(sizes) < 2:
        return 1
    own, other = strides if tensor is operands.left else reversed(strides)
    row = sizes[-1]
    is_row = own[-1] == 1 and not any(own[:-1])
    if not is_row or other[-2:] != (row, 1) or row >= _SHORT_ROW:
        return 1
    least, most = ceil_div(_SHORT_ROW, row), min(16 * _SHORT_ROW // row, sizes[-2])
    return next((n for n in range(least, most + 1) if sizes[-2] % n == 0), 1)


def _repeated(tensor: Tensor, times: int) -> Constant:
    values = tensor.data
    assert values is not None
    return Constant(
        times * values.nbytes, lambda: np.tile(np.ravel(values).astype(tensor.dtype), times)
    )

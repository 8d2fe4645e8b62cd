# SPDX-License-Identifier: Apache-2.0
"""ADD: of two 8-bit tensors of one shape plain, over vectors, and by floats where proven.

Other types and shapes are sums like any other, of binary.cl.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from delegate.graph.ir import Node
from delegate.launch import Alternative, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import activation_of
from delegate.ops._checks.sums import sum_of
from delegate.ops._launches.binary import EVERY, Expression, Operands, binary, operands_of
from delegate.ops._launches.binary_sums import sum_expression
from delegate.ops._launches.tiles import (
    LEAST_BYTES,
    by_share,
    lanes_of,
    launch_over,
    of_size,
    vectors_of,
)
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers.float32 import bits
from delegate.ops._numbers.float_sum import Sum, float_sum
from delegate.ops._numbers.integers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

_PLAIN_ELEMENTS = 1024  # of a tile of the plain kernel, where a group is one work-item


@dataclass(frozen=True, slots=True, eq=False)
class Addition:
    """A checked ADD of 8-bit tensors of one shape."""

    operands: Operands
    sum: Sum


@lowers("ADD")
def lower_add(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Add two tensors that may differ in scale and zero point, and are broadcast to each other.

    Raises:
        Unsupported: other types, shapes that cannot be broadcast, an output scale too small.
    Source: tflite/kernels/add.cc PrepareGeneralQuantized, internal/reference/add.h
    """
    return alternatives(decode(node), target)


def decode(node: Node) -> Expression | Addition:
    """Return what a node adds, checked: 8-bit tensors of one shape, or as any two tensors.

    Raises:
        Unsupported: see `lower_add`.
    """
    operands = operands_of(node, EVERY)
    left, right, result = operands.left, operands.right, operands.result
    if left.dtype not in quantized.QUANT8 or left.shape != right.shape:
        return sum_expression(node, 1)
    return Addition(operands, sum_of(left, right, result, activation_of(node)))


def alternatives(addition: Expression | Addition, target: Target) -> tuple[Alternative, ...]:
    """Return the sums of 8-bit tensors of one shape: by floats, by fixed point, and plain."""
    if isinstance(addition, Expression):
        return binary(addition, target)
    operands, case = addition.operands, addition.sum
    elements = math.prod(operands.result.shape)
    elem = ELEM[operands.result.dtype]
    rescaling = dict(zip(("left", "right", "output"), case.rescaling, strict=True))
    common: Params = {
        "left": operands.left,
        "right": operands.right,
        "output": operands.result,
        "output_zero": case.zeros[2],
        "output_min": case.clamp[0],
        "output_max": case.clamp[1],
        "elements": elements,
    }
    fixed = {
        "left_zero": case.zeros[0],
        "right_zero": case.zeros[1],
        **{f"{name}_multiplier": by.multiplier for name, by in rescaling.items()},
        **{f"{name}_shift": by.shift for name, by in rescaling.items()},
    }
    tiling = of_size(elements, _PLAIN_ELEMENTS, target)
    plain = launch_over("add", "add_quant8", tiling, common | fixed, {"ELEM": elem})
    lanes = lanes_of(elements, target)
    if not lanes:
        return (Alternative("plain", (plain,)),)

    def vector(name: str, fields: dict[str, int], is_float: bool) -> Alternative:
        items = ceil_div(elements, lanes)
        launch = launch_over(
            "add",
            "add_vector_quant8",
            by_share(items, target, LEAST_BYTES // lanes),
            common | fields | {"items": items},
            {"ELEM": elem, **vectors_of(elements, lanes, target), "IS_FLOAT": int(is_float)},
        )
        return Alternative(f"{name} {lanes}", (launch,))

    found = [vector("vector", fixed, False), Alternative("plain", (plain,))]
    floats = float_sum(case)
    if floats is not None:
        fields = {name: bits(value) for name, value in asdict(floats).items()}
        found.insert(0, vector("float", fields, True))
    return tuple(found)

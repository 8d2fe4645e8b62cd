# SPDX-License-Identifier: Apache-2.0
"""The steps of a sequence, and rows of floats that become int8 at each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Constant, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import require_constant, shape_text
from delegate.ops._convolution import hybrid
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_MOST_STEPS = 1000  # launches of a program
_WHOLE = 64  # a row of int8 is filled up to whole vectors


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a sequence of rows."""

    rows: int
    count: int
    is_time_major: bool  # a step of all rows comes after the other, else a row of all steps

    def stride(self, size: int) -> tuple[int, int]:
        """Return the elements from step to step and from row to row, of rows of `size`."""
        if self.is_time_major:
            return self.rows * size, size
        return size, self.count * size


def steps_of(node: Node, source: Tensor, is_sequence: bool) -> Steps:
    """Return the steps of a node's input, of rank 3, or the one step of rank 2.

    Raises:
        Unsupported: another rank, too many steps.
    """
    rank = 3 if is_sequence else 2
    if len(source.shape) != rank:
        raise Unsupported(f"input {shape_text(source)}: rank {rank} is needed")
    if not is_sequence:
        return Steps(source.shape[0], 1, True)
    is_time_major = bool(node.options.get("time_major"))
    count, rows = source.shape[:2] if is_time_major else source.shape[1::-1]
    if count > _MOST_STEPS:
        raise Unsupported(f"{count} steps: more than {_MOST_STEPS}")
    return Steps(rows, count, is_time_major)


def int8_rows(
    source: Tensor, rows: int, size: int, is_asymmetric: bool, target: Target
) -> hybrid.Rows:
    """Return rows of `size` floats as int8."""
    pitch = ceil_div(size, _WHOLE) * _WHOLE
    return hybrid.quantised(source, (rows, size, pitch), is_asymmetric, target)


@dataclass(frozen=True, slots=True, eq=False)
class HybridInput:
    """The rows of all steps of an input as int8, of one launch or two."""

    steps: Steps
    rows: hybrid.Rows

    def at(self, step: int, hidden: hybrid.Rows) -> Params:
        """Return the fields of a step: its rows, and those of the output before."""
        pitch = self.rows.values.shape[1]
        fields: Params = {}
        for name, tensor, size in (
            ("input", self.rows.values, pitch),
            ("input_scales", self.rows.scales, 1),
            ("input_zeros", self.rows.zeros, 1),
        ):
            ahead, row = self.steps.stride(size)
            fields |= {name: tensor, f"{name}_at": step * ahead, f"{name}_row": row}
        return fields | {
            "hidden": hidden.values,
            "hidden_at": 0,
            "hidden_row": hidden.values.shape[1],
            "hidden_scales": hidden.scales,
            "hidden_zeros": hidden.zeros,
        }


def hybrid_numbers(tensor: Tensor, is_asymmetric: bool, target: Target) -> NDArray[np.int32]:
    """Return what kernels need of int8 weights (out, terms): (out, 2), each sum, and the scale.

    Raises:
        Unsupported: computed weights, several scales, weights that the calling TFLite
            multiplies wrongly, an unknown way to make int8 of floats.
    """
    hybrid.require_known(target.rules)
    values = hybrid.weight_values(tensor)
    hybrid.require_right_signs(values, target.rules)
    hybrid.require_right_sums(values, is_asymmetric, target.rules)
    numbers = np.empty((len(values), 2), np.int32)
    numbers[:, 0] = values.sum(1, dtype=np.int32)
    numbers[:, 1] = np.float32(only_scale(tensor)).view(np.int32)
    return numbers


def only_scale(tensor: Tensor) -> float:
    """Return the scale of constants that have one, and no zero point.

    Raises:
        Unsupported: several scales, or a zero point.
    """
    require_constant(tensor, "weights")
    scale, zero = quantized.per_tensor(tensor, quantized.QUANT)
    if zero:
        raise Unsupported(f"weights with zero point {zero}: it must be 0")
    return scale


def constant(array: NDArray[np.generic]) -> Constant:
    """Return values that kernels read as they are."""
    return Constant(array.nbytes, lambda: array)

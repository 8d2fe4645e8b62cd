# SPDX-License-Identifier: Apache-2.0
"""The steps of a sequence, and rows of floats that become int8 at each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Constant, Defines, Launch, Params, temporary
from delegate.ops._checks import quantized
from delegate.ops._checks.node import elements_of, require_constant, require_shape, shape_text
from delegate.ops._convolution import hybrid
from delegate.ops._launches.copy import copied, layers
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

    is_backward: bool = False  # the last step comes first

    @property
    def order(self) -> range:
        """The steps, the first one first."""
        return range(self.count - 1, -1, -1) if self.is_backward else range(self.count)

    def backward(self) -> Steps:
        """Return the same from the last step on."""
        return replace(self, is_backward=True)

    def stride(self, size: int) -> tuple[int, int]:
        """Return the elements from step to step and from row to row, of rows of `size`."""
        if self.is_time_major:
            return self.rows * size, size
        return size, self.count * size


@dataclass(frozen=True, slots=True, eq=False)
class StepOutput:
    """Where the outputs of steps go: some of the elements of each row of a tensor."""

    tensor: Tensor
    first: int  # of a row's elements
    size: int  # of a row

    def at(self, step: int, steps: Steps) -> Params:
        """Return the fields of the output of a step."""
        return self._fields("output", step, steps)

    def hidden(self, step: int, steps: Steps) -> Params:
        """Return the fields of the output of a step, which the next one reads."""
        return self._fields("hidden", step, steps)

    def _fields(self, name: str, step: int, steps: Steps) -> Params:
        ahead, row = steps.stride(self.size)
        at = step * ahead + self.first
        return {name: self.tensor, f"{name}_at": at, f"{name}_row": row}


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


def results_of(
    node: Node, steps: Steps, sizes: Sequence[int], states: int
) -> tuple[list[StepOutput], list[Tensor]]:
    """Return where each direction's outputs go, of `sizes` elements, and what states become.

    Raises:
        Unsupported: no state, outputs of other shapes.
    """
    is_merged = len(sizes) > 1 and bool(node.options.get("merge_outputs"))
    own = 1 if is_merged else len(sizes)
    if len(node.outputs) != own + states:
        raise Unsupported("variable tensors and what they become are needed")
    widths = [sum(sizes)] if is_merged else [*sizes]
    source = node.inputs[0]
    assert source is not None
    for tensor, width in zip(node.outputs, widths, strict=False):
        require_shape(tensor, (*source.shape[:-1], width))
        elements_of(tensor)
    results = []
    for at, _ in enumerate(sizes):
        if is_merged:
            results.append(StepOutput(node.outputs[0], sum(sizes[:at]), widths[0]))
        else:
            results.append(StepOutput(node.outputs[at], 0, widths[at]))
    return results, [*node.outputs[own:]]


@dataclass(frozen=True, slots=True, eq=False)
class HybridInput:
    """The rows of all steps of an input as int8, of one launch or two."""

    steps: Steps
    rows: hybrid.Rows

    def fields(self, name: str, step: int) -> Params:
        """Return the fields of the rows of a step."""
        fields: Params = {}
        for own, tensor, size in (
            (name, self.rows.values, self.rows.values.shape[1]),
            (f"{name}_scales", self.rows.scales, 1),
            (f"{name}_zeros", self.rows.zeros, 1),
        ):
            ahead, row = self.steps.stride(size)
            fields |= {own: tensor, f"{own}_at": step * ahead, f"{own}_row": row}
        return fields

    def at(self, step: int, hidden: hybrid.Rows) -> Params:
        """Return the fields of a step: its rows, and those of the output before."""
        return self.fields("input", step) | {
            "hidden": hidden.values,
            "hidden_at": 0,
            "hidden_row": hidden.values.shape[1],
            "hidden_scales": hidden.scales,
            "hidden_zeros": hidden.zeros,
        }


def is_asymmetric(node: Node) -> bool:
    """Whether a row that becomes int8 has a zero point."""
    return bool(node.options.get("asymmetric_quantize_inputs"))


def int8_rows(source: Tensor, rows: int, size: int, is_wide: bool, target: Target) -> hybrid.Rows:
    """Return rows of `size` floats as int8."""
    pitch = ceil_div(size, _WHOLE) * _WHOLE
    return hybrid.quantised(source, (rows, size, pitch), is_wide, target)


def input_of(source: Tensor, steps: Steps, is_wide: bool, target: Target) -> HybridInput:
    """Return the rows of all steps of an input as int8."""
    count, depth = steps.rows * steps.count, source.shape[-1]
    return HybridInput(steps, int8_rows(source, count, depth, is_wide, target))


def beside(one: Tensor, other: Tensor, target: Target) -> tuple[Tensor, tuple[Launch, ...]]:
    """Return the elements of two tensors' rows side by side, and what copies them."""
    first, second = one.shape[-1], other.shape[-1]
    joined = temporary("inputs side by side", (*one.shape[:-1], first + second), one.dtype)
    axis = len(one.shape) - 1
    moves = [layers(one, joined, axis, 0, first), layers(other, joined, axis, first, second)]
    return joined, copied(moves, target)[0].launches


def rounding(target: Target) -> Defines:
    """Return the macro of hybrid.clh that says how sums of rows of int8 become floats, if any."""
    return {"ROUNDS_ONCE": 1} if target.rules.processor == "aarch64" else {}


def hybrid_numbers(tensor: Tensor, is_wide: bool, target: Target) -> NDArray[np.int32]:
    """Return what kernels need of int8 weights (out, terms): (out, 2), each sum, and the scale.

    Raises:
        Unsupported: computed weights, several scales, weights that the calling TFLite
            multiplies wrongly, an unknown way to make int8 of floats.
    """
    hybrid.require_known(target.rules)
    values = hybrid.weight_values(tensor)
    hybrid.require_right_signs(values, target.rules)
    hybrid.require_right_sums(values, is_wide, target.rules)
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

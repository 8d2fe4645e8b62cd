# SPDX-License-Identifier: Apache-2.0
"""The steps of a sequence, and quantisation of float rows at each step."""

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
from delegate.ops._launches.copy import by_copies, insertion
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_MOST_STEPS = 1000  # each is at least a launch
_WHOLE = 64  # int8 rows are padded to whole vectors


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a sequence, for several rows."""

    rows: int
    count: int
    is_time_major: bool  # (steps, rows, ...) in memory, else (rows, steps, ...)

    is_backward: bool = False  # from the last step to the first

    @property
    def order(self) -> range:
        """The steps in order of execution."""
        return range(self.count - 1, -1, -1) if self.is_backward else range(self.count)

    def backward(self) -> Steps:
        """Return the same steps in reverse order."""
        return replace(self, is_backward=True)

    def stride(self, size: int) -> tuple[int, int]:
        """Return the strides from step to step and from row to row, for rows of `size` elements."""
        if self.is_time_major:
            return self.rows * size, size
        return size, self.count * size


@dataclass(frozen=True, slots=True, eq=False)
class StepOutput:
    """The destination of the steps' outputs: a range of elements in each row of a tensor."""

    tensor: Tensor
    first: int  # element of a row
    size: int  # of a whole row

    def at(self, step: int, steps: Steps) -> Params:
        """Return the fields of a step's output."""
        return self._fields("output", step, steps)

    def hidden(self, step: int, steps: Steps) -> Params:
        """Return the fields by which the next step reads a step's output."""
        return self._fields("hidden", step, steps)

    def _fields(self, name: str, step: int, steps: Steps) -> Params:
        step_stride, row_stride = steps.stride(self.size)
        at = step * step_stride + self.first
        return {name: self.tensor, f"{name}_at": at, f"{name}_row": row_stride}


def steps_of(node: Node, source: Tensor, is_sequence: bool) -> Steps:
    """Return the steps of a sequence (rank 3), or a single step (rank 2).

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
    """Return the outputs of each direction, of `sizes` elements, and the next states.

    Raises:
        Unsupported: no state, outputs of other shapes.
    """
    is_merged = len(sizes) > 1 and bool(node.options.get("merge_outputs"))
    count = 1 if is_merged else len(sizes)
    if len(node.outputs) != count + states:
        raise Unsupported("states must be inputs and outputs")
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
    return results, [*node.outputs[count:]]


@dataclass(frozen=True, slots=True, eq=False)
class HybridInput:
    """The quantised rows of all steps of an input."""

    steps: Steps
    rows: hybrid.Rows

    def fields(self, name: str, step: int) -> Params:
        """Return the fields of a step's rows."""
        fields: Params = {}
        for field, tensor, size in (
            (name, self.rows.values, self.rows.values.shape[1]),
            (f"{name}_scales", self.rows.scales, 1),
            (f"{name}_zeros", self.rows.zeros, 1),
        ):
            step_stride, row = self.steps.stride(size)
            fields |= {field: tensor, f"{field}_at": step * step_stride, f"{field}_row": row}
        return fields

    def at(self, step: int, hidden: hybrid.Rows) -> Params:
        """Return the fields of a step: its rows, and those of the previous output."""
        return self.fields("input", step) | {
            "hidden": hidden.values,
            "hidden_at": 0,
            "hidden_row": hidden.values.shape[1],
            "hidden_scales": hidden.scales,
            "hidden_zeros": hidden.zeros,
        }


def is_asymmetric(node: Node) -> bool:
    """Whether quantised rows have a zero point."""
    return bool(node.options.get("asymmetric_quantize_inputs"))


def int8_rows(source: Tensor, rows: int, size: int, has_zeros: bool, target: Target) -> hybrid.Rows:
    """Return rows of `size` floats, quantised to int8."""
    pitch = ceil_div(size, _WHOLE) * _WHOLE
    return hybrid.quantised(source, (rows, size, pitch), has_zeros, target)


def input_of(source: Tensor, steps: Steps, has_zeros: bool, target: Target) -> HybridInput:
    """Return the rows of all steps of an input, quantised to int8."""
    count, depth = steps.rows * steps.count, source.shape[-1]
    return HybridInput(steps, int8_rows(source, count, depth, has_zeros, target))


def concatenated(one: Tensor, other: Tensor, target: Target) -> tuple[Tensor, tuple[Launch, ...]]:
    """Return the concatenated rows of two tensors, and the launches that copy them."""
    first, second = one.shape[-1], other.shape[-1]
    result = temporary("inputs side by side", (*one.shape[:-1], first + second), one.dtype)
    axis = len(one.shape) - 1
    moves = [insertion(one, result, axis, 0, first), insertion(other, result, axis, first, second)]
    return result, by_copies(moves, target)[0].launches


def rounding(target: Target) -> Defines:
    """Return the macro of hybrid.clh for the rounding of sums, if any."""
    return {"ROUNDS_ONCE": 1} if target.rules.processor == "aarch64" else {}


def hybrid_numbers(tensor: Tensor, has_zeros: bool, target: Target) -> NDArray[np.int32]:
    """Return the field `numbers` of int8 weights (out, terms): (out, 2), the sum and the scale.

    Raises:
        Unsupported: non-constant weights, several scales, weights that the calling TFLite
            multiplies wrongly, an unknown TFLite.
    """
    hybrid.require_known(target.rules)
    values = hybrid.weight_values(tensor)
    hybrid.require_correct_signs(values, target.rules)
    hybrid.require_correct_sums(values, has_zeros, target.rules)
    numbers = np.empty((len(values), 2), np.int32)
    numbers[:, 0] = values.sum(1, dtype=np.int32)
    numbers[:, 1] = np.float32(only_scale(tensor)).view(np.int32)
    return numbers


def only_scale(tensor: Tensor) -> float:
    """Return the single scale of a constant without a zero point.

    Raises:
        Unsupported: several scales, a zero point, or no constant.
    """
    require_constant(tensor, "weights")
    scale, zero = quantized.per_tensor(tensor, quantized.QUANT)
    if zero:
        raise Unsupported(f"weights with zero point {zero}: it must be 0")
    return scale


def constant(array: NDArray[np.generic]) -> Constant:
    """Return a constant of these values."""
    return Constant(array.nbytes, lambda: array)

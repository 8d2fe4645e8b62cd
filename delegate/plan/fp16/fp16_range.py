# SPDX-License-Identifier: Apache-2.0
"""Which floats of a partition stay float32 where others may be halves, because of their range.

A half holds at most 65504, and below 2^-14 it loses digits. Activations of networks keep within
that: what a convolution gives is taken for one, though nobody can show its range. Sums, squares,
products of two activations, exponentials, quotients and attention masks do not: a node that makes
or reads such a tensor has floats, unless its range follows from a clamp, a constant or the like.
They are wide until a product with weights, a norm or a function of bounded result ends it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from delegate.graph.float_results import float_result
from delegate.graph.ir import Node, Tensor

LARGEST, LEAST = 65504.0, 2.0**-14
_USUAL_FACTOR = 32.0  # an activation times as much is one still
# By the greatest sizes of the inputs, how large a result is at most; infinite: nobody knows.
_Sizes = Sequence[float]
# Ops whose result is wide where it cannot be shown to fit.
_GROWING: Mapping[str, Callable[[Node, _Sizes], float]] = {
    "CUMSUM": lambda node, sizes: sizes[0] * _terms(node),
    "DIV": lambda *_: math.inf,
    "EXP": lambda _, sizes: math.exp(min(sizes[0], 88.0)),
    "POW": lambda *_: math.inf,
    "REDUCE_PROD": lambda *_: math.inf,
    "RSQRT": lambda *_: math.inf,
    "SQUARE": lambda _, sizes: sizes[0] ** 2,
    "SQUARED_DIFFERENCE": lambda _, sizes: sum(sizes) ** 2,
    "SUM": lambda node, sizes: sizes[0] * _terms(node),
    "silu_mul": lambda *_: math.inf,
}
_ADDING = frozenset({"ADD", "SUB"})
_MULTIPLYING = frozenset({"MUL", "logistic_mul"})


class Ranges:
    """What is known of the sizes of a partition's floats, node after node.

    Attributes:
        wide: tensors that halves may not hold.
    """

    def __init__(self) -> None:
        self.wide: set[Tensor] = set()
        self._most: dict[Tensor, float] = {}  # greatest sizes, where they are known

    def note(self, node: Node) -> bool:
        """Take the next node; return whether halves can hold what it reads and gives."""
        reads = [each for each in node.inputs if each is not None and each.dtype == "float32"]
        sizes = [self._size(each) for each in reads]
        # A bias is added to a sum of floats.
        own = reads[:2] if float_result(node.op).is_activation else reads
        constants = [self._size(each) for each in own if each.data is not None]
        fits = all(map(_fits, constants)) and self.wide.isdisjoint(reads)
        most, is_wide = self._result(node, reads, sizes, fits)
        for tensor in node.outputs:
            if math.isfinite(most):
                self._most[tensor] = most
            if is_wide:
                self.wide.add(tensor)
        return fits and not is_wide

    def _result(
        self, node: Node, reads: Sequence[Tensor], sizes: _Sizes, fits: bool
    ) -> tuple[float, bool]:
        """Return how large a node's result is at most, and whether it is wide."""
        clamp = str(node.options.get("fused_activation_function", "NONE"))
        result = float_result(node.op)
        least = min(float_result(clamp).limit, result.limit)
        if result.is_activation or not sizes:
            return least, False
        if node.op == "DIV" and (divisor := _least(node.inputs[1])):
            most = min(least, sizes[0] / divisor)
            return most, not (_fits(most) or (fits and divisor * _USUAL_FACTOR >= 1))
        if node.op in _GROWING:
            most = min(least, _GROWING[node.op](node, sizes))
            return most, not _fits(most)
        if node.op in _MULTIPLYING:
            most = min(least, _product(node, sizes))
            return most, not (_fits(most) or (fits and self._is_scaled(reads, sizes)))
        most = min(least, sum(sizes) if node.op in _ADDING else max(sizes))
        return most, not (_fits(most) or fits)

    def _is_scaled(self, reads: Sequence[Tensor], sizes: _Sizes) -> bool:
        """Whether a product is of one activation and of factors that change little of its size."""
        rest = sorted(sizes)[:-1]
        return len(set(reads)) > 1 and all(LEAST < size <= _USUAL_FACTOR for size in rest)

    def _size(self, tensor: Tensor) -> float:
        if tensor not in self._most and tensor.data is not None:
            data = tensor.data
            self._most[tensor] = max(float(data.max()), -float(data.min())) if data.size else 0.0
        return self._most.get(tensor, math.inf)


def _fits(size: float) -> bool:
    """Whether halves hold what is so large; not infinities, which the least may be rounded to."""
    return size == 0 or LEAST <= size <= LARGEST


def _product(node: Node, sizes: _Sizes) -> float:
    if node.op == "logistic_mul":
        return sizes[-1]
    return 0.0 if 0 in sizes else math.prod(sizes)


def _terms(node: Node) -> int:
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    if node.op == "CUMSUM":
        return max(source.shape, default=1)
    return math.prod(source.shape) // max(1, math.prod(result.shape))


def _least(tensor: Tensor | None) -> float:
    """Return the least size of a constant; of what is computed 0."""
    data = None if tensor is None else tensor.data
    return 0.0 if data is None or not data.size else float(np.abs(data).min())

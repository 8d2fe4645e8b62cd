# SPDX-License-Identifier: Apache-2.0
"""Range analysis: which tensors must stay float32 where others may be fp16.

fp16 holds at most 65504, and loses precision below 2^-14. Network activations stay within that: a
convolution's result is assumed to, though its range cannot be proven. Sums, squares, products of
two activations, exponentials, quotients and attention masks do not: a node that reads or writes
such a tensor stays float32, unless a clamp, a constant or the like bounds its range. Tensors count
as wide until a product with weights, a norm or a bounded function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from delegate.graph.float_results import Growth, float_result
from delegate.graph.ir import Node, Tensor

LARGEST, LEAST = 65504.0, 2.0**-14
_USUAL_FACTOR = 32.0  # an activation scaled by this still counts as one
# From the maxima of the inputs, the maximum of a result; infinite: unknown.
_Sizes = Sequence[float]
# By FloatResult.growth.
BOUNDS: Mapping[Growth, Callable[[Node, _Sizes], float]] = {
    Growth.STEADY: lambda _, sizes: max(sizes),
    Growth.ADDITION: lambda _, sizes: sum(sizes),
    Growth.REDUCTION: lambda node, sizes: sizes[0] * _terms(node),
    Growth.PRODUCT: lambda _, sizes: 0.0 if 0 in sizes else math.prod(sizes),
    Growth.QUOTIENT: lambda node, sizes: _quotient(sizes[0], _least(node.inputs[1])),
    Growth.GATE: lambda _, sizes: sizes[-1],
    Growth.SQUARE: lambda _, sizes: sum(sizes) ** 2,
    Growth.EXPONENTIAL: lambda _, sizes: math.exp(min(sizes[0], 88.0)),
    Growth.UNBOUNDED: lambda *_: math.inf,
}


class Ranges:
    """Known magnitudes of a partition's float tensors, node after node.

    Attributes:
        wide: tensors that may exceed fp16.
    """

    def __init__(self) -> None:
        self.wide: set[Tensor] = set()
        self._most: dict[Tensor, float] = {}  # maximum magnitudes, if known

    def note(self, node: Node) -> bool:
        """Add the next node; return whether its inputs and outputs fit fp16."""
        reads = [each for each in node.inputs if each is not None and each.dtype == "float32"]
        sizes = [self._size(each) for each in reads]
        # A bias is added to a float32 sum.
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
        """Return a node result's maximum magnitude, and whether it is wide."""
        clamp = str(node.options.get("fused_activation_function", "NONE"))
        result = float_result(node.op)
        least = min(float_result(clamp).limit, result.limit)
        if result.is_activation or not sizes:
            return least, False
        most = min(least, BOUNDS[result.growth](node, sizes))
        is_activation = fits and _keeps_size(node, result.growth, reads, sizes)
        return most, not (_fits(most) or is_activation)

    def _size(self, tensor: Tensor) -> float:
        if tensor not in self._most and tensor.data is not None:
            data = tensor.data
            self._most[tensor] = max(float(data.max()), -float(data.min())) if data.size else 0.0
        return self._most.get(tensor, math.inf)


def _fits(size: float) -> bool:
    """Whether a magnitude fits fp16, and does not round to infinity."""
    return size == 0 or LEAST <= size <= LARGEST


def _keeps_size(node: Node, growth: Growth, reads: Sequence[Tensor], sizes: _Sizes) -> bool:
    """Whether a function of activations is an activation, though its maximum is unknown."""
    # Of one activation, and of factors that hardly change its size.
    if growth in (Growth.PRODUCT, Growth.GATE):
        rest = sorted(sizes)[:-1]
        return len(set(reads)) > 1 and all(LEAST < size <= _USUAL_FACTOR for size in rest)
    if growth == Growth.QUOTIENT:
        return _least(node.inputs[1]) * _USUAL_FACTOR >= 1
    return growth in (Growth.STEADY, Growth.ADDITION)


def _quotient(size: float, divisor: float) -> float:
    return size / divisor if divisor else math.inf


def _terms(node: Node) -> int:
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    if node.op == "CUMSUM":
        return max(source.shape, default=1)
    return math.prod(source.shape) // max(1, math.prod(result.shape))


def _least(tensor: Tensor | None) -> float:
    """Return the least magnitude in a constant; 0 for computed tensors."""
    data = None if tensor is None else tensor.data
    return 0.0 if data is None or not data.size else float(np.abs(data).min())

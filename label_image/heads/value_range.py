# SPDX-License-Identifier: Apache-2.0
"""The value range of outputs, derived from the model alone: tells scores from logits, and pixels
from relative coordinates, consistently over all runs.

Walks back from an output through data movement ops to the ops that compute the values, and to
the ranges of quantised tensors on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.harness.feeds import scale_of

Limits = tuple[float, float]
_MOST_OPS = 40  # on the walk back: the end of the model determines what outputs mean
# Ops that move or select values of their first input, or take their maximum.
_MOVES = frozenset(
    (
        *("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "QUANTIZE", "DEQUANTIZE", "CAST", "TRANSPOSE"),
        *("SLICE", "STRIDED_SLICE", "SPLIT_V", "UNPACK", "GATHER", "GATHER_ND", "TOPK_V2"),
        *("REVERSE_V2", "TILE", "BROADCAST_TO", "MAX_POOL_2D", "REDUCE_MAX"),
        *("RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR", "AVERAGE_POOL_2D", "MEAN"),
    )
)
_SAME_PLACES = ("QUANTIZE", "DEQUANTIZE", "CAST")
_WHOLE = ("int32", "int64", "int8", "uint8", "int16", "uint16", "uint32")
_PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL")
_LIMITS = {
    "LOGISTIC": (0.0, 1.0), "SOFTMAX": (0.0, 1.0), "TANH": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0),
    "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU": (0.0, math.inf),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ValueRange:
    """What is known about some values of an output.

    Attributes:
        low, high: minimum and maximum real value; infinite if unbounded.
        is_linear: whether they are sums of products without a later activation: logits.
        factor: the maximum of the constant they were last multiplied by; None: there is none.
        step: the coarsest quantisation step near the end; 0: none.
        is_whole: whether they are integers, such as class indices.
    """

    low: float = -math.inf
    high: float = math.inf
    is_linear: bool = False
    factor: float | None = None
    step: float = 0.0
    is_whole: bool = False

    def within(self, low: float, high: float) -> ValueRange:
        """Return the range clamped to these limits; a clamped range is no longer linear."""
        is_cut = low > self.low or high < self.high
        new = max(low, min(self.low, high)), min(high, max(self.high, low))
        return replace(self, low=new[0], high=new[1], is_linear=self.is_linear and not is_cut)


def value_range_of(
    graph: Graph, number: int, axis: int | None = None, place: int = 0
) -> ValueRange:
    """Return the range of the output with this index.

    `axis`, `place`: of the values at this index of the axis only; None: of all.
    """
    makers = {tensor: node for node in graph.nodes for tensor in node.outputs}
    return _Walk(makers).of(graph.outputs[number], axis, place, _MOST_OPS)


class _Walk:
    def __init__(self, makers: dict[Tensor, Node]) -> None:
        self._makers = makers
        self._known: dict[tuple[Tensor, int | None, int], ValueRange] = {}

    def of(self, tensor: Tensor | None, axis: int | None, place: int, left: int) -> ValueRange:
        """Return what is known about a tensor's values. `left`: ops that may still be visited."""
        if tensor is None:
            return ValueRange()
        key = tensor, axis, place if axis is not None else 0
        if key not in self._known:
            self._known[key] = ValueRange()  # for a tensor that depends on itself
            self._known[key] = self._found(tensor, axis, place, left)
        return self._known[key]

    def _found(self, tensor: Tensor, axis: int | None, place: int, left: int) -> ValueRange:
        values = _real_constant(tensor)
        if values is not None:
            return ValueRange(*values)
        node, found = self._makers.get(tensor), ValueRange()
        if node is not None and left and node.inputs:
            found = self._of_node(node, tensor, axis, place, left - 1)
            found = found.within(*_fused_limits(node))
        low, high, step = _stored_limits(tensor)
        is_linear = found.is_linear  # a calibrated range is not an activation
        is_whole = found.is_whole or (tensor.dtype in _WHOLE and not step)
        return replace(
            found.within(low, high),
            is_linear=is_linear, step=max(found.step, step), is_whole=is_whole,
        )  # fmt: skip

    def _of_node(
        self, node: Node, tensor: Tensor, axis: int | None, place: int, left: int
    ) -> ValueRange:
        def of(number: int) -> ValueRange:
            return self.of(node.inputs[number], None, 0, left)

        op, first = node.op, node.inputs[0]
        if op in ("CONCATENATION", "PACK"):
            return self._joined(node, axis, place, left)
        if op == "TOPK_V2" and tensor is not node.outputs[0]:
            return ValueRange(low=0.0)
        if op == "SPLIT":
            return self.of(node.inputs[-1], None, 0, left)
        if op in _MOVES and first is not None:
            return self.of(first, _axis_before(node, first, axis), place, left)
        if op in _LIMITS:
            return replace(of(0), step=0.0).within(*_LIMITS[op])
        if op in _PRODUCTS:
            return self._product(node)
        if op == "EXP":
            with np.errstate(all="ignore"):
                low, high = (float(np.exp(np.float64(each))) for each in (of(0).low, of(0).high))
            return ValueRange(low, high)
        if op in _PAIRS and len(node.inputs) == 2:
            return _pair(op, of(0), of(1), *map(_real_constant, node.inputs))
        return ValueRange()

    def _joined(self, node: Node, axis: int | None, place: int, left: int) -> ValueRange:
        result, parts = node.outputs[0], [each for each in node.inputs if each is not None]
        own = int(node.options.get("axis") or 0) % max(1, len(result.shape))
        if node.op == "PACK" or any(len(each.shape) != len(result.shape) for each in parts):
            axis = None
        elif axis == own:
            for part in parts:
                if place < part.shape[own]:
                    return self.of(part, axis, place, left)
                place -= part.shape[own]
        found = [self.of(part, axis, place, left) for part in parts] or [ValueRange()]
        factors = [each.factor for each in found]
        return ValueRange(
            min(each.low for each in found),
            max(each.high for each in found),
            all(each.is_linear for each in found),
            None if None in factors else max(each or 0.0 for each in factors),
            max(each.step for each in found),
            all(each.is_whole for each in found),
        )

    def _product(self, node: Node) -> ValueRange:
        """Return the range of sums of products; weighted means stay within the operand's range."""
        source, weights = (_before(each, self._makers) for each in (*node.inputs, None)[:2])
        maker = None if source is None else self._makers.get(source)
        values = None if weights is None else _real_constant(weights)
        if maker is not None and maker.op == "SOFTMAX" and values is not None:
            return ValueRange(*values)
        return ValueRange(is_linear=True)


def _before(tensor: Tensor | None, makers: dict[Tensor, Node]) -> Tensor | None:
    """Return the tensor whose values this one copies, at the same indices."""
    while tensor is not None and (node := makers.get(tensor)) and node.op in _SAME_PLACES:
        tensor = node.inputs[0]
    return tensor


def _axis_before(node: Node, first: Tensor, axis: int | None) -> int | None:
    """Return the input axis that an output axis of the node comes from; None: none or unknown."""
    if axis is None or node.op in _SAME_PLACES:
        return axis
    if node.op == "TRANSPOSE":
        order = node.inputs[1].data if len(node.inputs) > 1 and node.inputs[1] else None
        return None if order is None or axis >= order.size else int(order.flat[axis])
    if node.op in ("RESHAPE", "SQUEEZE", "EXPAND_DIMS"):
        shape, size = node.outputs[0].shape, node.outputs[0].shape[axis]
        before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        for own, length in enumerate(first.shape):
            sides = math.prod(first.shape[:own]), math.prod(first.shape[own + 1 :])
            if (*sides, length) == (before, after, size):
                return own
    return None


def _real_constant(tensor: Tensor | None) -> tuple[float, float] | None:
    """Return a constant's minimum and maximum real value; None: not a plain constant."""
    if tensor is None or tensor.data is None or tensor.is_sparse or not tensor.data.size:
        return None
    is_packed = tensor.data.dtype.name != tensor.dtype  # several values per byte
    if is_packed or tensor.data.dtype.kind not in "iuf" or tensor.blocks is not None:
        return None
    values, quantization = tensor.data.astype(np.float64), tensor.quantization
    if quantization is not None and quantization.scale and tensor.data.dtype.kind in "iu":
        of_axis = [1] * values.ndim
        if len(quantization.scale) > 1:
            of_axis[quantization.axis] = -1
        values -= np.reshape(quantization.zero_point, of_axis)
        values *= np.reshape(quantization.scale, of_axis)
    return float(values.min()), float(values.max())


def _stored_limits(tensor: Tensor) -> tuple[float, float, float]:
    """Return the minimum and maximum of a tensor's type as real values, and its step."""
    scale, zero_point = scale_of(tensor)
    if not scale or tensor.dtype not in ("int8", "uint8", "int16"):
        return -math.inf, math.inf, 0.0
    limits = np.iinfo(tensor.dtype)
    low, high = (scale * (int(each) - zero_point) for each in (limits.min, limits.max))
    return low, high, scale


def _fused_limits(node: Node) -> tuple[float, float]:
    return _LIMITS.get(node.options.get("fused_activation_function", ""), (-math.inf, math.inf))


def _pair(
    op: str, a: ValueRange, b: ValueRange, fixed_a: Limits | None, fixed_b: Limits | None
) -> ValueRange:
    """Return the range of a binary op; `fixed_a`, `fixed_b`: of constant operands."""
    if op == "DIV":
        if fixed_b is None or fixed_b[0] <= 0 <= fixed_b[1]:
            return ValueRange()
        fixed_b = 1 / fixed_b[1], 1 / fixed_b[0]
        b = ValueRange(*fixed_b)
    with np.errstate(all="ignore"):
        ends = [
            _PAIRS[op](np.float64(x), np.float64(y))
            for x, y in product(*((each.low, each.high) for each in (a, b)))
        ]
    low, high = (-math.inf, math.inf) if np.isnan(ends).any() else (min(ends), max(ends))
    is_scaled = op in ("MUL", "DIV")
    fixed = fixed_a or fixed_b
    factor = max(map(abs, fixed)) if is_scaled and fixed else None
    # A bias or scale after sums of products keeps them linear.
    is_linear = fixed is not None and op in _AFFINE and (a.is_linear or b.is_linear)
    return ValueRange(float(low), float(high), is_linear, factor)


_AFFINE = ("ADD", "SUB", "MUL", "DIV")
_PAIRS: Mapping[str, Callable[[Any, Any], Any]] = {
    "ADD": np.add, "SUB": np.subtract, "MUL": np.multiply, "DIV": np.multiply,
    "MINIMUM": np.minimum, "MAXIMUM": np.maximum,
}  # fmt: skip

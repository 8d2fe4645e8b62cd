# SPDX-License-Identifier: Apache-2.0
"""SVDF: feature filters, then time filters over their last results.

A node has the state twice: as an input, before the run, and as a second output, after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import Growth, sums
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Defines, Launch, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import activation_of, applied
from delegate.ops._checks.node import (
    elements_of,
    inputs_of,
    integer,
    require_constant,
    require_shape,
    shape_text,
)
from delegate.ops._convolution import hybrid
from delegate.ops._convolution.packing import as_stored
from delegate.ops._launches.tiles import MOST_ROUNDS, by_work, lanes_of, launch_over
from delegate.ops._numbers import bits, ceil_div
from delegate.ops._numbers.fixed_point import wrap_int32
from delegate.ops._registry import lowers
from delegate.target import Target

# Input, feature weights, time weights, bias, state, output -> kernel family.
_FAMILIES: dict[tuple[str, ...], str] = {
    ("int8", "int8", "int16", "int32", "int16", "int8"): "quant8",
    ("float32", "float32", "float32", "float32", "float32", "float32"): "float",
    ("float32", "int8", "int8", "float32", "float32", "float32"): "hybrid",
}


@dataclass(frozen=True, slots=True, eq=False)
class _Svdf:
    """A checked SVDF node."""

    family: str
    source: Tensor
    features: Tensor
    times: Tensor
    bias: NDArray[np.generic]
    state: Tensor
    result: Tensor
    next_state: Tensor
    rank: int

    @property
    def depth(self) -> int:
        """Elements of an input row."""
        return self.features.shape[1]

    @property
    def units(self) -> int:
        """Elements of an output row."""
        return self.features.shape[0] // self.rank

    @property
    def weights(self) -> NDArray[np.generic]:
        """The feature weights, (filters, depth)."""
        return require_constant(self.features, "weights")

    @property
    def time_weights(self) -> NDArray[np.generic]:
        """The time weights, (filters, memory)."""
        return require_constant(self.times, "weights of time")

    def launch(self, params: Params, target: Target, defines: Defines | None = None) -> Launch:
        """Return the launch of the family's kernel, with additional fields and macros."""
        memory = self.times.shape[1]
        work = self.rank * (self.depth + memory)
        if work > MOST_ROUNDS:
            raise Unsupported(f"{work} products a unit: more than {MOST_ROUNDS}")
        items = elements_of(self.result)
        fields: Params = {
            "input": self.source,
            "state": self.state,
            "output": self.result,
            "state_output": self.next_state,
            "weights": as_stored(self.weights),
            "bias": as_stored(self.bias),
            "depth": self.depth,
            "memory": memory,
            "rank": self.rank,
            "units": self.units,
            "items": items,
        }
        if self.family != "quant8":
            lanes = lanes_of(memory - 1, target) if target.group_items == 1 else 0
            defines = {**(defines or {}), "LANES": lanes or 1}
        tiling = by_work(items, work, target, max(1, MOST_ROUNDS // (2 * work)))
        return launch_over("svdf", f"svdf_{self.family}", tiling, fields | params, defines)


@lowers("SVDF", floats=sums(Growth.STEADY))
def lower_svdf(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Apply each feature filter to the input, and each time filter to the last features.

    Shapes:
        input (n, c), weights (units * rank, c), time weights (units * rank, m), bias (units,),
        state (n, m * units * rank) -> output (n, units), state
    Raises:
        Unsupported: non-constant weights, other types, mismatched shapes, scales beyond 32 bits.
    Source: tflite/kernels/svdf.cc, internal/reference/svdf.h. int8 requires RELU, which is applied
    only by the clamp to the output's type.
    """
    svdf = _parse(node)
    if svdf.family == "quant8":
        if activation_of(node) != "RELU":
            raise Unsupported(f"fused activation {activation_of(node)}: TFLite requires RELU")
        return (Alternative("plain", (svdf.launch(_integer_params(svdf), target),)),)
    clamp, defines = applied(activation_of(node))
    if svdf.family == "float":
        times: Params = {"times": as_stored(svdf.time_weights), **clamp}
        return (Alternative("plain", (svdf.launch(times, target, defines),)),)
    is_asymmetric = bool(node.options.get("asymmetric_quantize_inputs"))
    return _hybrid(svdf, clamp, defines, is_asymmetric, target)


def _parse(node: Node) -> _Svdf:
    (source, features, times), (bias, state) = inputs_of(node.inputs, 3, 2)
    if state is None or len(node.outputs) != 2:
        raise Unsupported("the state must be an input and an output")
    result, next_state = node.outputs
    types = [source, features, times, bias, state, result]
    dtypes = tuple("" if tensor is None else tensor.dtype for tensor in types)
    family = _FAMILIES.get(dtypes) or _FAMILIES.get((*dtypes[:3], _bias_type(source), *dtypes[4:]))
    if family is None or (bias is None) != (dtypes[3] == ""):
        raise Unsupported(f"{', '.join(filter(None, dtypes))}: no such TFLite kernel")
    if (next_state.dtype, next_state.shape) != (state.dtype, state.shape):
        raise Unsupported("the state becomes another type or shape")
    rank = integer(node.options, "rank", 1)
    if len(features.shape) != 2 or len(times.shape) != 2 or len(source.shape) != 2:
        raise Unsupported(f"weights {shape_text(features)}, {shape_text(times)}: rank 2 is needed")
    filters, depth = features.shape
    units = filters // rank if rank > 0 else 0
    if not units or units * rank != filters or min(depth, *times.shape) < 1:
        raise Unsupported(f"{filters} filters of rank {rank}: a unit has as many as the rank")
    batch = source.shape[0]
    if source.shape != (batch, depth) or times.shape[0] != filters:
        shapes = f"input {shape_text(source)}, weights of time {shape_text(times)}"
        raise Unsupported(f"{shapes}: they do not fit")
    for tensor, shape in ((result, (batch, units)), (state, (batch, times.shape[1] * filters))):
        require_shape(tensor, shape)
        elements_of(tensor)
    elements_of(source)
    biases = quantized.bias_of(bias, units, (_bias_type(source),))
    return _Svdf(family, source, features, times, biases, state, result, next_state, rank)


def _bias_type(source: Tensor) -> str:
    return "int32" if source.dtype == "int8" else "float32"


def _integer_params(svdf: _Svdf) -> Params:
    """Return the fields of the integer kernel.

    Source: tflite/kernels/svdf.cc Prepare, which computes scale ratios in float32
    """
    in_scale, in_zero = quantized.per_tensor(svdf.source)
    out_scale, out_zero = quantized.per_tensor(svdf.result)
    scales = [
        np.float32(_single_scale(each, what))
        for each, what in ((svdf.features, "weights"), (svdf.times, "weights of time"))
    ]
    state_scale = np.float32(quantized.per_tensor(svdf.state, quantized.QUANT)[0])
    with np.errstate(over="ignore"):
        feature_ratio = np.float32(in_scale) * scales[0] / state_scale
        output_ratio = state_scale * scales[1] / np.float32(out_scale)
    feature_multiplier, feature_shift = quantized.multiplier_of(float(feature_ratio))
    output_multiplier, output_shift = quantized.multiplier_of(float(output_ratio))

    def offsets() -> NDArray[np.int32]:
        return wrap_int32(-in_zero * svdf.weights.sum(1, dtype=np.int64))

    return {
        "times": as_stored(svdf.time_weights),
        "offsets": Constant(4 * svdf.features.shape[0], offsets),
        "feature_multiplier": feature_multiplier,
        "feature_shift": feature_shift,
        "output_multiplier": output_multiplier,
        "output_shift": output_shift,
        "output_zero": out_zero,
    }


def _hybrid(
    svdf: _Svdf, clamp: dict[str, int], defines: Defines, is_asymmetric: bool, target: Target
) -> tuple[Alternative, ...]:
    """Return the launches for float inputs, quantised at run time, and int8 weights."""
    hybrid.require_known(target.rules)
    values = hybrid.weight_values(svdf.features)
    hybrid.require_correct_signs(values, target.rules)
    hybrid.require_correct_sums(values, is_asymmetric, target.rules)
    scale = _single_scale(svdf.features, "weights")
    sizes = svdf.source.shape[0], svdf.depth, ceil_div(svdf.depth, 64) * 64  # whole vectors
    rows = hybrid.quantised(svdf.source, sizes, is_asymmetric, target)
    fields: Params = {
        **rows.fields,
        "times": as_stored(svdf.time_weights),
        "time_scale": bits(_single_scale(svdf.times, "weights of time")),
        "weight_sums": Constant(4 * len(values), lambda: values.sum(1, dtype=np.int32)),
        "weight_scale": bits(scale),
        **clamp,
    }
    return (Alternative("plain", (*rows.launches, svdf.launch(fields, target, defines))),)


def _single_scale(tensor: Tensor, what: str) -> float:
    """Return the single scale of a constant without a zero point."""
    scale, zero_point = quantized.per_tensor(tensor, quantized.QUANT)
    if zero_point:
        raise Unsupported(f"{what} with zero point {zero_point}: it must be 0")
    return scale

# SPDX-License-Identifier: Apache-2.0
"""What the activations share: a float function of each element, and tables of rounded floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._checks.shapes import elements_of, shape_text
from delegate.ops._launches.lookup import Answers
from delegate.ops._launches.tiles import by_elements, launch_over
from delegate.ops._numbers import fixed_point, sigmoid16
from delegate.target import Target

Floats = NDArray[np.float32]
Entries = NDArray[np.int16]


def one_to_one(node: Node, types: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return the input and the output of a node that keeps shape and type.

    Raises:
        Unsupported: it does not, or the type is none of these, or there is nothing to do.
    """
    (source,), _ = inputs_of(node.inputs, 1)
    result = output_of(node.outputs)
    if source.dtype != result.dtype:
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: they must be equal")
    if source.dtype not in types:
        raise Unsupported(f"{source.dtype}: only {', '.join(types)}")
    if source.shape != result.shape:
        raise Unsupported(f"{shape_text(source)} -> {shape_text(result)}: the shape must stay")
    elements_of(source)
    return source, result


def float_launch(
    function: str,
    source: Tensor,
    result: Tensor,
    target: Target,
    params: Mapping[str, int] | None = None,
) -> tuple[Alternative, ...]:
    """Compute a function of each float; `function` is its name in activation.cl."""
    tiling = by_elements(elements_of(source), target)
    fields: Params = {
        "input": source,
        "output": result,
        "elements": elements_of(source),
        **(params or {}),
    }
    launch = launch_over(
        "activation",
        "activation_float",
        tiling,
        fields,
        {f"IS_{function.upper()}": 1},
    )
    return (Alternative("plain", (launch,)),)


def rounded_floats(source: Tensor, result: Tensor, function: Callable[[Floats], Floats]) -> Answers:
    """Return the answers of TFLite's tables for 8 bits: a function of floats, rounded.

    Raises:
        Unsupported: quantisation that the tensors cannot have.
    Source: tflite/kernels/internal/common.h LUTPopulate
    """
    in_scale, in_zero = quantized.per_tensor(source)
    out_scale, out_zero = quantized.per_tensor(result)

    def answers(values: NDArray[np.int64]) -> NDArray[Any]:
        inverse = np.float32(1) / np.float32(out_scale)
        with np.errstate(over="ignore", invalid="ignore"):
            floats = np.float32(in_scale) * (values - in_zero).astype(np.float32)
            steps = round_away(function(floats) * inverse)
            # As C's conversion to int32 does on this machine, where it cannot hold the float.
            whole = (steps + np.float32(out_zero)).astype(np.int32)
        return fixed_point.clamped(whole, result.dtype)

    return answers


def scaling_of_int16(source: Tensor, result: Tensor, most_shift: int) -> tuple[int, int]:
    """Return what scales the inputs of an int16 LOGISTIC or TANH; see `sigmoid16.scaling`.

    Raises:
        Unsupported: another output scale than 2^-15; an input scale of 16/3 or more, whose products
            are no int32: C leaves open what TFLite computes then.
    """
    quantized.require_fixed_output(result, 2.0**-15, 0)
    scale, _ = quantized.per_tensor(source, quantized.QUANT)
    factors = sigmoid16.scaling(scale, most_shift)
    if factors[0] >= 1 << 16:
        raise Unsupported(f"input scale {scale:g}: TFLite's products pass 32 bits from 16/3 on")
    return factors


def interpolated_floats(
    source: Tensor, result: Tensor, function: Callable[[Floats], Floats]
) -> Answers:
    """Return the answers of TFLite's tables for 16 bits: straight lines between 513 floats.

    Raises:
        Unsupported: quantisation that the tensors cannot have.
    """
    in_scale, in_zero = quantized.per_tensor(source, quantized.QUANT)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    limits = np.array([-(1 << 15), (1 << 15) - 1])

    def answers(values: NDArray[np.int64]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            first, last = np.float32(in_scale) * (limits - in_zero).astype(np.float32)
            lowest, highest = np.float32(out_scale) * (limits - out_zero).astype(np.float32)
            steps = np.float32(1 << 16) / (highest - lowest)
        return on_lines(ends_of_lines(first, last, steps, function), values)

    return answers


def ends_of_lines(first: Any, last: Any, steps: Any, function: Callable[[Any], Any]) -> Entries:
    """Return the 513 ends of the lines that stand for a function, in `steps` of one.

    Computed as the arguments are, in floats or doubles.
    Source: tflite/kernels/internal/common.h LUTPopulate for int16_t
    """
    two = type(last)(2)  # numpy 1 makes doubles of a float and an int
    with np.errstate(over="ignore", invalid="ignore"):
        step = (last - first) / type(last)(512)
        points = first + np.arange(513).astype(step.dtype) * step
        curve = function(points) * steps
        middle = round_away(function(points[:-1] + step / two) * steps)
        line = round_away((curve[1:] + round_away(curve[:-1])) / two)
        # Half of what a line misses in the middle is shared with its ends.
        entries = round_away(curve[:-1]) - round_away((line - middle) / two)
        end = round_away(function(np.array([last])) * steps)
        whole = np.clip(np.concatenate([entries, end]), -(1 << 15), (1 << 15) - 1)
        ends: Entries = whole.astype(np.int16)
    return ends


def on_lines(entries: Entries, values: NDArray[np.int64]) -> Entries:
    """Return what the lines between the entries give for values of an int16.

    Source: tflite/kernels/internal/common.h LUTLookup
    """
    place = 256 + (values >> 7)
    slope = (entries[place + 1] - entries[place]).astype(np.int64)
    answers: Entries = (entries[place] + ((slope * (values & 127) + 64) >> 7)).astype(np.int16)
    return answers


def round_away(values: NDArray[Any]) -> NDArray[Any]:
    """Return whole floats or doubles, ties away from zero, as C's round() does."""
    size = np.abs(values.astype(np.float64))
    whole = np.floor(size)
    rounded: NDArray[Any] = np.copysign(whole + (size - whole >= 0.5), values)
    return rounded.astype(values.dtype)

# SPDX-License-Identifier: Apache-2.0
"""Fused nodes of transformers, one kernel each.

rms_norm, layer_norm, scaled, rope, silu_mul and logistic_mul: passes/fuse_rms_norm.py,
fuse_layer_norm.py, fuse_scale.py, fuse_rope.py, fuse_gate.py and fuse_logistic.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.float_results import EXACT, Growth, roundings
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Defines, Params
from delegate.ops._checks.node import (
    inputs_of,
    output_of,
    require_constant,
    require_floats,
    require_shape,
    shape_text,
)
from delegate.ops._convolution.packing import as_stored
from delegate.ops._launches.tiles import (
    HALF_ROUNDS,
    LEAST_FUNCTIONS,
    by_elements,
    by_share,
    lanes_of,
    launch_of,
    launch_over,
    one_each,
)
from delegate.ops._numbers import bits, ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

# Within these bounds neither a scale times an inverse deviation nor the added offset overflows.
_LEAST_EPSILON, _MOST_COLUMN = 2.0**-120, 2.0**60
_ITEM_GATES = 4  # elements of a work-item, if a work-group has several


@lowers("rms_norm", floats=roundings(Growth.STEADY, is_activation=True))
def lower_rms_norm(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Divide rows by sqrt(mean of squares + epsilon), and scale the columns.

    Shapes:
        input (..., c), scale of c -> output (..., c)
    Raises:
        Unsupported: types other than float32, mismatched shapes, a non-constant scale.
    """
    return _norm(node, ("scale",), target)


@lowers("layer_norm", floats=roundings(Growth.STEADY, is_activation=True))
def lower_layer_norm(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Normalise rows to mean 0 and variance 1, up to epsilon; scale and shift the columns.

    Shapes:
        input (..., c), scale and offset of c, or None: 1 and 0 -> output (..., c)
    Raises:
        Unsupported: types other than float32, mismatched shapes, a non-constant scale or offset,
            constants that overflow by themselves.
    """
    return _norm(node, ("scale", "offset"), target)


def _require_no_overflow(epsilon: float, columns: Sequence[Tensor]) -> None:
    """Check that constants alone cause no overflow: kernels handle the rows' magnitudes.

    Raises:
        Unsupported: an inverse deviation times a scale, or the added offset, may overflow.
    """
    largest = [float(np.abs(require_constant(each, "columns")).max(initial=0)) for each in columns]
    if not (epsilon >= _LEAST_EPSILON and all(each < _MOST_COLUMN for each in largest)):
        magnitudes = " and ".join(f"{each:g}" for each in largest)
        raise Unsupported(f"epsilon {epsilon:g}, columns to {magnitudes}: may overflow")


def _norm(node: Node, columns: Sequence[str], target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives of a row norm; `columns`: the fields of the inputs after the rows.

    Raises:
        Unsupported: types other than float32, mismatched shapes, columns that are not constant.
    """
    (source,), constants = inputs_of(node.inputs, 1, len(columns))
    given = [each for each in constants if each is not None]
    op, result = node.op, output_of(node.outputs)
    require_floats(source, *given, result)
    require_shape(result, source.shape)
    params: Params = {"input": source, "output": result, **_columns(source, columns, constants)}
    depth = source.shape[-1] if source.shape else 0
    count = math.prod(source.shape[:-1])
    epsilon = float(node.options["epsilon"])
    _require_no_overflow(epsilon, given)
    params |= {"depth": depth, "epsilon": bits(epsilon)}
    plain = params | {"elements": count}
    fallback = Alternative("plain", (launch_over(op, f"{op}_float", one_each(count), plain),))
    lanes = lanes_of(depth, target)
    if not lanes:
        return (fallback,)
    group = target.group_items
    defines: Defines = {"LANES": lanes, "ALONE": int(group == 1)}
    if group > 1:
        defines["SCRATCH_INTS"] = group
    launch = launch_of(op, f"{op}_row_float", count, group, params, defines)
    return Alternative(f"row {lanes}", (launch,)), fallback


def _columns(source: Tensor, names: Sequence[str], constants: Sequence[Tensor | None]) -> Params:
    """Return the fields of per-column constants; None: scales are 1, offsets 0.

    Raises:
        Unsupported: they are not constant, or of another size.
    """
    depth = source.shape[-1] if source.shape else 0
    params: Params = {}
    for name, tensor in zip(names, constants, strict=True):
        values = (
            np.full(depth, name == "scale", np.float32)
            if tensor is None
            else require_constant(tensor, f"{name}s")
        )
        if values.size != depth or values.shape[-1:] != (depth,) or depth > HALF_ROUNDS:
            shape = depth if tensor is None else shape_text(tensor)
            expected = f"one a column is needed, at most {HALF_ROUNDS}"
            raise Unsupported(f"{name}s {shape} of rows of {depth}: {expected}")
        params[name] = as_stored(values)
    return params


@lowers("scaled", floats=EXACT)
def lower_scaled(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Scale and shift the columns, after adding an optional residual.

    Shapes:
        input (..., c), scale and offset of c, residual (..., c) -> output (..., c)
    Raises:
        Unsupported: types other than float32, mismatched shapes, a non-constant scale or offset.
    """
    (source, *constants), (residual,) = inputs_of(node.inputs, 3, 1)
    result, residuals = output_of(node.outputs), [] if residual is None else [residual]
    require_floats(source, *constants, *residuals, result)
    for tensor in (result, *residuals):
        require_shape(tensor, source.shape)
    params: Params = {"input": source, "output": result}
    params |= _columns(source, ("scale", "offset"), constants)
    if residual is not None:
        params["residual"] = residual
    depth, elements = source.shape[-1], math.prod(source.shape)

    def alternative(name: str, lanes: int, span: int) -> Alternative:
        items = elements // span
        tiling = one_each(items)
        if lanes > 1:
            tiling = by_share(items, target, most=HALF_ROUNDS // (span // lanes))
        fields = params | {"depth": depth, "span": span, "elements": items}
        defines: Defines = {"LANES": lanes, "HAS_RESIDUAL": int(residual is not None)}
        return Alternative(name, (launch_over("scaled", "scaled_float", tiling, fields, defines),))

    fallback, lanes = alternative("plain", 1, 1), lanes_of(depth, target)
    if lanes == 0 or depth % lanes:
        return (fallback,)
    span = depth if target.group_items == 1 else lanes
    return alternative(f"vector {lanes}", lanes, span), fallback


@lowers("rope", floats=EXACT)
def lower_rope(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Apply rotary embedding to the halves of rows; angles repeat over the outer dimensions.

    Shapes:
        input (..., n, d), cosines and sines (n, d / 2), or with sizes of 1 before
        -> output (..., n, d)
    Raises:
        Unsupported: types other than float32, mismatched shapes.
    """
    (source, cosines, sines), _ = inputs_of(node.inputs, 3)
    result = output_of(node.outputs)
    require_floats(source, cosines, sines, result)
    require_shape(result, source.shape)
    require_shape(sines, cosines.shape)
    *outer, size = source.shape
    *rows, half = cosines.shape
    while rows and rows[0] == 1:
        del rows[0]
    if 2 * half != size or rows != outer[len(outer) - len(rows) :]:
        raise Unsupported(
            f"angles {shape_text(cosines)} of rows {shape_text(source)}: they do not fit"
        )
    params: Params = {
        "input": source,
        "cosines": cosines,
        "sines": sines,
        "output": result,
        "half": half,
        "angle_rows": math.prod(rows),
    }
    pairs = math.prod(outer) * half

    def alternative(name: str, lanes: int) -> Alternative:
        count = pairs // lanes
        tiling = one_each(count) if lanes == 1 else by_share(count, target)
        fields = params | {"elements": count}
        launch = launch_over("rope", "rope_float", tiling, fields, {"LANES": lanes})
        return Alternative(name, (launch,))

    fallback, lanes = alternative("plain", 1), lanes_of(half, target)
    if lanes == 0 or half % lanes:
        return (fallback,)
    return alternative(f"vector {lanes}", lanes), fallback


@lowers("silu_mul", floats=roundings(Growth.UNBOUNDED))
@lowers("logistic_mul", floats=roundings(Growth.GATE))
def lower_gate(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply the input by logistic(gate), or for silu_mul by gate * logistic(gate).

    Shapes:
        gate, input and output have the same shape
    Raises:
        Unsupported: types other than float32, shapes that differ.
    """
    (gate, source), _ = inputs_of(node.inputs, 2)
    result = output_of(node.outputs)
    require_floats(gate, source, result)
    require_shape(source, gate.shape)
    require_shape(result, gate.shape)
    count = math.prod(gate.shape)
    params: Params = {"gate": gate, "input": source, "output": result, "elements": count}
    tiling = by_elements(count, target, least=LEAST_FUNCTIONS)
    if tiling.group_items > 1:  # few enough tiles for a shared call
        tiles, tile_items = ceil_div(tiling.tiles, _ITEM_GATES), _ITEM_GATES * tiling.tile_items
        tiling = replace(tiling, tiles=tiles, tile_items=tile_items)
    return (Alternative("plain", (launch_over(node.op, f"{node.op}_float", tiling, params),)),)

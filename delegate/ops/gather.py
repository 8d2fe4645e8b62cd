# SPDX-License-Identifier: Apache-2.0
"""GATHER, GATHER_ND and EMBEDDING_LOOKUP: copies of rows by indices, which must be in range.

Also ONE_HOT.
"""

from __future__ import annotations

import math

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.float_results import COPIES, EXACT, SELECTS
from delegate.graph.ir import Node, Tensor
from delegate.graph.packed import BITS
from delegate.launch import Alternative, Constant, Defines, Params, size_bytes, storage_type
from delegate.ops._checks.indices import constant_rows, require_inside
from delegate.ops._checks.node import (
    ANY,
    axis_of,
    elements_of,
    integer,
    require_shape,
    require_types,
    scalar_of,
    shape_text,
    tensors_of,
)
from delegate.ops._convolution.hybrid import weight_scales, weight_values
from delegate.ops._launches.copy import group_size, steps_of
from delegate.ops._launches.tiles import over_elements
from delegate.ops._launches.types import copy_type, type_of_bytes
from delegate.ops._registry import lowers
from delegate.target import Target

_ONE_HOT_TYPES = ("uint8", "int8", "int32", "int64", "float32", "bool")


@lowers("GATHER", floats=COPIES)
def lower_gather(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy slices along `axis` by indices; the first `batch_dims` dimensions are batched.

    Shapes:
        input (batch..., outer..., n, inner...), indices (batch..., k...)
        -> output (batch..., outer..., k..., inner...)
    Raises:
        Unsupported: a constant index out of range, on which TFLite fails at run time; int4 rows
            that share bytes.
    Source: tflite/kernels/gather.cc, internal/reference/gather.h
    """
    source, positions, result = tensors_of(node, 2)
    require_types(source, result, (*ANY, "int4"))
    _require_index(positions)
    outer = positions.shape
    axis = axis_of(integer(node.options, "axis", 0), len(source.shape))
    batch = integer(node.options, "batch_dims", 0)
    batch += len(outer) if batch < 0 else 0
    if not 0 <= batch <= min(axis, len(outer)):
        raise Unsupported(f"batch_dims {batch}: beyond axis {axis} or {len(outer)} dimensions")
    if outer[:batch] != source.shape[:batch]:
        raise Unsupported(f"batches {shape_text(source)} and {shape_text(positions)}: they differ")
    before, after = source.shape[:axis], source.shape[axis + 1 :]
    require_shape(result, (*before, *outer[batch:], *after))
    row, row_count = math.prod(after), math.prod(outer[batch:])
    if source.dtype == "int4" and row % 2:
        raise Unsupported(f"int4 rows of {row}: TFLite takes {row // 2} bytes of each")
    return _gathered(source, result, positions, (source.shape[axis],), row, row_count, target)


@lowers("GATHER_ND", floats=COPIES)
def lower_gather_nd(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy one slice per row of coordinates.

    Shapes:
        input (n0, n1, ..., inner...), indices (k..., coordinates) -> output (k..., inner...)
    Raises:
        Unsupported: a constant coordinate out of range, on which TFLite fails at run time.
    Source: tflite/kernels/gather_nd.cc, internal/reference/reference_ops.h GatherNd
    """
    source, positions, result = tensors_of(node, 2, ANY)
    _require_index(positions)
    count = positions.shape[-1] if positions.shape else 0
    if not 1 <= count <= len(source.shape):
        raise Unsupported(
            f"{count} coordinates of {shape_text(source)}: 1 to {len(source.shape)} are needed"
        )
    outer, inner = positions.shape[:-1], source.shape[count:]
    require_shape(result, (*outer, *inner))
    row, row_count = math.prod(inner), math.prod(outer)
    return _gathered(source, result, positions, source.shape[:count], row, row_count, target)


def _require_index(tensor: Tensor) -> None:
    if tensor.dtype not in ("int16", "int32", "int64"):
        raise Unsupported(f"{tensor.dtype} indices: only int16, int32 and int64")


def _gathered(
    source: Tensor,
    result: Tensor,
    indices: Tensor,
    sizes: tuple[int, ...],
    row: int,
    row_count: int,
    target: Target,
) -> tuple[Alternative, ...]:
    """Return the launch that copies rows of `row` elements by indices.

    The source consists of blocks of groups of rows, each in whole bytes. `sizes`: of a group, one
    per coordinate of an index. `row_count`: rows copied per block. Blocks may share their indices.

    Raises:
        Unsupported: a constant index out of range.
    """
    coordinates = constant_rows(indices, sizes)
    group = math.prod(sizes)
    blocks = math.prod(source.shape) // (group * row)
    width = storage_type(source.dtype).itemsize
    row = size_bytes(source) // (blocks * group * width)
    merged = group_size(width, row)
    steps = np.array(steps_of(sizes), np.int32)
    params: Params = {
        "input": source,
        "output": result,
        "picks": row_count,
        "repeats": blocks // (math.prod(indices.shape) // len(sizes) // row_count),
        "group": group,
        "row": row // merged,
    }
    defines: Defines = {"ELEM": type_of_bytes(width * merged)}
    kernel = "gather"
    if coordinates is not None:
        rows = (coordinates @ steps.astype(np.int64)).astype(np.int32)
        params["table"] = Constant(rows.nbytes, lambda: rows)
    else:
        kernel = "gather_computed"
        params |= {"indices": indices, "axes": len(steps)}
        params["steps"] = Constant(steps.nbytes, lambda: steps)
        defines["WORDS"] = 2 if indices.dtype == "int64" else 1
    elements = size_bytes(result) // (width * merged)
    launch = over_elements("gather", kernel, elements, target, params, defines)
    requirements = require_inside(indices, sizes)
    return (Alternative("plain", (launch,), requirements=requirements),)


@lowers("EMBEDDING_LOOKUP", floats=SELECTS)
def lower_embedding_lookup(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy rows of a table; int8, int4 and int2 rows may be dequantised to float32.

    Shapes:
        indices (k,), table (n, inner...) -> output (k, inner...)
    Raises:
        Unsupported: a constant index out of range, on which TFLite fails at run time.
    """
    positions, table, result = tensors_of(node, 2)
    if positions.dtype != "int32" or len(positions.shape) != 1 or len(table.shape) < 2:
        raise Unsupported(
            f"{positions.dtype} {shape_text(positions)} of {shape_text(table)}: "
            "one dimension of int32 and a table of two or more are needed"
        )
    count, inner = table.shape[0], table.shape[1:]
    require_shape(result, (*positions.shape, *inner))
    row = math.prod(inner)
    if table.dtype == result.dtype:
        require_types(table, result, ("uint8", "int8", "float32"))
        return _gathered(table, result, positions, (count,), row, positions.shape[0], target)
    if table.dtype not in ("int8", *BITS) or result.dtype != "float32":
        raise Unsupported(f"a table of {table.dtype}, {result.dtype} out: no such kernel")
    elements_of(result)
    constant_rows(positions, (count,))
    if row * BITS.get(table.dtype, 8) % 8:
        raise Unsupported(f"{table.dtype} rows of {row}: TFLite misplaces rows that share bytes")
    values, scales = weight_values(table), weight_scales(table, 0)
    has_row_scales = table.quantization is not None and len(table.quantization.scale) > 1
    if has_row_scales and not target.rules.embedding_scales_a_row:
        raise Unsupported("a scale a row: this TFLite returns zeros")
    indices = positions.data
    params: Params = {
        "indices": positions
        if indices is None
        else Constant(4 * indices.size, lambda: np.asarray(indices)),
        "output": result,
        "table": Constant(values.nbytes, lambda: values),
        "scales": Constant(scales.nbytes, lambda: scales),
        "rows": count,
        "row": row,
    }
    file, elements = "embedding_lookup", math.prod(result.shape)
    defines: Defines = {"IS_COMPUTED": int(indices is None)}
    launch = over_elements(file, f"{file}_hybrid", elements, target, params, defines)
    requirements = require_inside(positions, (count,))
    return (Alternative("plain", (launch,), requirements=requirements),)


@lowers("ONE_HOT", floats=EXACT)
def lower_one_hot(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Set `on` at each index along a new axis, `off` elsewhere; indices out of range are all off.

    Shapes:
        indices (d0, d1, ...), depth, on, off -> output with `depth` before dimension `axis`
    Raises:
        Unsupported: a non-constant depth, values with several elements.
    Source: tflite/kernels/one_hot.cc
    """
    indices, depth_tensor, on, off, result = tensors_of(node, 4)
    if indices.dtype not in ("int32", "int64"):
        raise Unsupported(f"{indices.dtype} indices: only int32 and int64")
    for value in (on, off):
        require_types(value, result, _ONE_HOT_TYPES)
        if math.prod(value.shape) != 1:
            raise Unsupported(f"value {shape_text(value)}: one number is needed")
    if depth_tensor.dtype != "int32":
        raise Unsupported(f"{depth_tensor.dtype} depth: only int32")
    depth = scalar_of(depth_tensor, "depth")
    axis = axis_of(integer(node.options, "axis", -1), len(indices.shape) + 1)
    require_shape(result, (*indices.shape[:axis], depth, *indices.shape[axis:]))
    elements_of(indices)
    params: Params = {
        "indices": indices,
        "on": on,
        "off": off,
        "output": result,
        "depth": depth,
        "inner": math.prod(indices.shape[axis:]),  # stride of the new axis
    }
    defines: Defines = {"ELEM": copy_type(result), "WORDS": 2 if indices.dtype == "int64" else 1}
    elements = math.prod(result.shape)
    launch = over_elements("one_hot", "one_hot", elements, target, params, defines)
    return (Alternative("plain", (launch,)),)

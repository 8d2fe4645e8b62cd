# SPDX-License-Identifier: Apache-2.0
"""PAD: a copy with a border of zero points; of any type, as only bytes move."""

from __future__ import annotations

import math

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch, Target
from delegate.ops import _quantize
from delegate.ops._geometry import shape_text
from delegate.ops._registry import lowers

MOST_DIMENSIONS = 5  # TFLite's own limit


@lowers("PAD")
def lower_pad(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Surround a tensor with zero points, or zeros where it is not quantised.

    Shapes:
        input (d0, d1, ...), constant paddings (rank, 2) -> output (before0 + d0 + after0, ...)
    Raises:
        Unsupported: computed or negative paddings, more than 5 dimensions, other scales.
    Source: tflite/kernels/pad.cc, internal/reference/pad.h
    """
    (source, amounts), _ = _quantize.inputs_of(node.inputs, 2)
    result = _quantize.output_of(node.outputs)
    if source.dtype != result.dtype or source.dtype not in ("uint8", "int8", "float32", "int32"):
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: one of 8 bits, float or int32")
    values = np.asarray(_quantize.require_constant(amounts, "paddings")).astype(np.int64)
    rank = len(source.shape)
    if values.shape != (rank, 2) or values.min(initial=0) < 0:
        raise Unsupported(f"paddings {values.tolist()} of shape {shape_text(source)}")
    if not 1 <= rank <= MOST_DIMENSIONS:
        raise Unsupported(f"{rank} dimensions: 1 to {MOST_DIMENSIONS} are implemented")
    if tuple(source.shape + values.sum(1)) != result.shape or 0 in (*source.shape, *result.shape):
        raise Unsupported(f"shapes {shape_text(source)} -> {shape_text(result)} with {values}")
    border = np.zeros(1, source.dtype)
    if source.dtype in _quantize.QUANT8:
        scale, zero = _quantize.per_tensor(result)
        if _quantize.per_tensor(source) != (scale, zero):
            raise Unsupported("input and output differ in scale or zero point")
        border[0] = zero
    return (
        Alternative("plain", (_launch(source, result, values[:, 0].tolist(), border, target),)),
    )


def _launch(
    source: Tensor,
    result: Tensor,
    before: list[int],
    border: np.ndarray[tuple[int], np.dtype[np.generic]],
    target: Target,
) -> Launch:
    missing = MOST_DIMENSIONS - len(before)
    elements = math.prod(result.shape)
    tile_items = 64 if target.group_items > 1 else 4096
    wide = np.dtype(source.dtype).itemsize
    return Launch(
        "pad",
        "pad",
        tiles=-(-elements // tile_items),
        group_items=target.group_items,
        params={
            "input": source,
            "output": result,
            **{f"in_{i}": n for i, n in enumerate((*(1,) * missing, *source.shape))},
            **{f"out_{i}": n for i, n in enumerate((*(1,) * missing, *result.shape))},
            **{f"before_{i}": n for i, n in enumerate((*(0,) * missing, *before))},
            "border": Constant(wide, lambda: border),
            "elements": elements,
            "tile_items": tile_items,
        },
        reads=(source,),
        writes=(result,),
        defines={"ELEM": "uchar" if wide == 1 else "uint"},
    )

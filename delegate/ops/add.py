# SPDX-License-Identifier: Apache-2.0
"""ADD: of two 8-bit tensors of one shape plain, over vectors, and by floats where proven.

Other types and shapes are sums like any other, of kernels/binary.cl.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace

from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks import quantized
from delegate.ops._checks.sums import sum_of
from delegate.ops._launches.binary import EVERY, pair_of, sum_of_pair
from delegate.ops._launches.tiles import LEAST_BYTES, by_share, lanes_of, of_size
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers.float32 import bits
from delegate.ops._numbers.float_sum import FloatSum, float_sum
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("ADD")
def lower_add(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Add two tensors that may differ in scale and zero point, and stretch to each other.

    Raises:
        Unsupported: other types, shapes that do not stretch, an output scale too small.
    Source: tflite/kernels/add.cc PrepareGeneralQuantized, internal/reference/add.h
    """
    pair = pair_of(node, EVERY)
    left, right, result = pair.left, pair.right, pair.result
    if left.dtype not in quantized.QUANT8 or left.shape != right.shape:
        return sum_of_pair(node, target, 1)
    case = sum_of(left, right, result, node.options.get("fused_activation_function", "NONE"))
    elements = math.prod(result.shape)
    common: dict[str, int | Tensor | Constant] = {
        "left": left,
        "right": right,
        "output": result,
        "output_zero": case.zeros[2],
        "output_min": case.clamp[0],
        "output_max": case.clamp[1],
        "elements": elements,
    }
    rescaling = dict(zip(("left", "right", "output"), case.rescaling, strict=True))
    fixed = {
        "left_zero": case.zeros[0],
        "right_zero": case.zeros[1],
        **{f"{name}_multiplier": by.multiplier for name, by in rescaling.items()},
        **{f"{name}_shift": by.shift for name, by in rescaling.items()},
    }
    elem = ELEM[result.dtype]
    tiling = of_size(elements, 1024, target)
    plain = Launch(
        "add",
        "add_quant8",
        tiles=tiling.tiles,
        group_items=tiling.group_items,
        params=common | fixed | {"tile_items": tiling.tile_items},
        reads=(left, right),
        writes=(result,),
        defines={"ELEM": elem},
    )

    def vector(lanes: int, floats: FloatSum | None) -> Alternative:
        items = -(-elements // lanes)
        tiling = by_share(items, target, LEAST_BYTES // lanes)
        launch = replace(
            plain,
            kernel="add_vector_quant8",
            tiles=tiling.tiles,
            params=common
            | (fixed if floats is None else {name: bits(v) for name, v in asdict(floats).items()})
            | {"items": items, "tile_items": tiling.tile_items},
            defines={"ELEM": elem, "LANES": lanes, "IS_FLOAT": int(floats is not None)},
        )
        return Alternative(f"{'vector' if floats is None else 'float'} {lanes}", (launch,))

    plain_last = (Alternative("plain", (plain,)),)
    lanes = lanes_of(elements, target)
    if not lanes:
        return plain_last
    floats = float_sum(case)
    both = (vector(lanes, floats), vector(lanes, None)) if floats else (vector(lanes, None),)
    return (*both, *plain_last)

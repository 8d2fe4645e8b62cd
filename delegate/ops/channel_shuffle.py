# SPDX-License-Identifier: Apache-2.0
"""channel_shuffle: the channels of two tensors in turn; made by passes/fuse_shuffle.py."""

from __future__ import annotations

import math
from dataclasses import dataclass

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Launch
from delegate.ops._checks.node import inputs_of
from delegate.ops._launches.copy import require_same_scale, require_shape, require_types
from delegate.ops._launches.tiles import LEAST_BYTES, by_share, lanes_of
from delegate.ops._numbers.integers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class Shuffle:
    """Two tensors of equal shapes whose channels are taken in turn, and the parts they become."""

    left: Tensor
    right: Tensor
    outputs: tuple[Tensor, ...]


@lowers("channel_shuffle")
def lower_channel_shuffle(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Take a channel of the left tensor, then one of the right, and so on; cut that in equal parts.

    Shapes:
        left, right (..., c) -> one output (..., 2 c), or two of (..., c)
    Raises:
        Unsupported: other types than those of 8 bits, scales that differ, parts of an odd number of
            channels or of fewer than a vector has.
    """
    return alternatives(decode(node), target)


def decode(node: Node) -> Shuffle:
    """Return what a node shuffles, checked.

    Raises:
        Unsupported: see `lower_channel_shuffle`.
    """
    (left, right), _ = inputs_of(node.inputs, 2)
    part, rest = divmod(left.shape[-1], len(node.outputs))
    if rest:
        raise Unsupported(
            f"{left.shape[-1]} channels: {len(node.outputs)} outputs do not divide them"
        )
    require_shape(right, left.shape)
    for result in node.outputs:
        for source in (left, right):
            require_types(source, result, ("uint8", "int8"))
            require_same_scale(source, result)
        require_shape(result, (*left.shape[:-1], 2 * part))
    return Shuffle(left, right, node.outputs)


def alternatives(shuffle: Shuffle, target: Target) -> tuple[Alternative, ...]:
    """Return the launch over vectors of channels.

    Raises:
        Unsupported: they do not fill one.
    """
    left, right, outputs = shuffle.left, shuffle.right, shuffle.outputs
    channels, part = left.shape[-1], left.shape[-1] // len(outputs)
    lanes = lanes_of(part, target) or 4
    if lanes > part:
        raise Unsupported(f"{part} channels: fewer than a vector has")
    rows = math.prod(left.shape[:-1])
    tiling = by_share(rows, target, least=ceil_div(LEAST_BYTES, channels))
    launch = Launch(
        "channel_shuffle",
        "channel_shuffle",
        tiles=tiling.tiles,
        group_items=tiling.group_items,
        params={
            "left": left,
            "right": right,
            "output": outputs[0],
            "last_output": outputs[-1],
            "rows": rows,
            "pitch": channels,
            "part": part,
            "parts": len(outputs),
            "tile_items": tiling.tile_items,
        },
        reads=(left, right),
        writes=outputs,
        defines={"LANES": lanes},
    )
    return (Alternative(f"vector {lanes}", (launch,)),)

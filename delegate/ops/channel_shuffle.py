# SPDX-License-Identifier: Apache-2.0
"""channel_shuffle: the channels of two tensors in turn; made by passes/fuse_shuffle.py."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.node import inputs_of, require_same_scale, require_shape, require_types
from delegate.ops._launches.tiles import LEAST_BYTES, by_share, lanes_of, launch_over
from delegate.ops._numbers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("channel_shuffle")
def lower_channel_shuffle(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Take a channel of the left tensor, then one of the right, and so on; cut that in equal parts.

    Shapes:
        left, right (..., c) -> one output (..., 2 c), or two of (..., c)
    Raises:
        Unsupported: other types than those of 8 bits, scales that differ, parts of an odd number of
            channels or of fewer than a vector has.
    """
    (left, right), _ = inputs_of(node.inputs, 2)
    outputs, channels = node.outputs, left.shape[-1]
    part, rest = divmod(channels, len(outputs))
    if rest:
        raise Unsupported(f"{channels} channels: {len(outputs)} outputs do not divide them")
    require_shape(right, left.shape)
    for result in outputs:
        for source in (left, right):
            require_types(source, result, ("uint8", "int8"))
            require_same_scale(source, result)
        require_shape(result, (*left.shape[:-1], 2 * part))
    lanes = lanes_of(part, target) or 4
    if lanes > part:
        raise Unsupported(f"{part} channels: fewer than a vector has")
    rows = math.prod(left.shape[:-1])
    launch = launch_over(
        "channel_shuffle",
        "channel_shuffle",
        by_share(rows, target, least=ceil_div(LEAST_BYTES, channels)),
        {
            "left": left,
            "right": right,
            "output": outputs[0],
            "last_output": outputs[-1],
            "rows": rows,
            "pitch": channels,
            "part": part,
            "parts": len(outputs),
        },
        {"LANES": lanes},
    )
    return (Alternative(f"vector {lanes}", (launch,)),)

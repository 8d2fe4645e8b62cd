# SPDX-License-Identifier: Apache-2.0
"""CONV_2D of groups of channels, 8 bit and float32: the plain kernels.

Of a single input channel a group, 8-bit ones are depthwise convolutions; conv_2d_quant16 takes
groups itself.
"""

from __future__ import annotations

from delegate.launch import Alternative, Launch, Params
from delegate.ops._convolution.channel_rows import fixed_rows
from delegate.ops._convolution.packing import as_stored
from delegate.ops._convolution.records import FloatConvolution, Quant8Convolution
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers.integers import ceil_div


def alternatives(conv: Quant8Convolution | FloatConvolution) -> tuple[Alternative, ...]:
    """Return the plain launch."""
    own: Params = {
        "group_in_c": conv.group_in_c,
        "group_out_c": conv.group_out_c,
        "weights": as_stored(conv.weights),
        "elements": conv.elements,
        "tile_items": 64,
    }
    defines: dict[str, int | str] = {}
    family = "float"
    if isinstance(conv, Quant8Convolution):
        own |= {
            "channels": fixed_rows(lambda: conv.bias, conv.scaling),
            "input_zero": conv.input_zero,
            "weight_zero": conv.weight_zero,
        }
        defines["ELEM"] = ELEM[conv.source.dtype]
        family = "quant8"
    launch = Launch(
        "conv_2d_groups",
        f"conv_2d_groups_{family}",
        tiles=ceil_div(conv.elements, 64),
        group_items=64,
        params=conv.params() | own,
        reads=conv.reads,
        writes=conv.writes,
        defines=defines,
    )
    return (Alternative("plain", (launch,)),)

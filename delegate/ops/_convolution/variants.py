# SPDX-License-Identifier: Apache-2.0
"""Dispatch of convolutions by arithmetic, groups and kind of device.

A kernel variant for another kind of device is a module in a folder here, with `alternatives(record,
target)`, and an entry in one of the lists below.
"""

from __future__ import annotations

from collections.abc import Callable

from delegate.launch import Alternative, Defines
from delegate.ops._convolution import (
    conv_2d_float,
    depthwise_conv_2d_float,
    hybrid,
    hybrid_blocks,
    integers,
)
from delegate.ops._convolution.arm import conv_2d as arm_conv_2d
from delegate.ops._convolution.arm import fully_connected as arm_fully_connected
from delegate.ops._convolution.nvidia import conv_2d as nvidia_conv_2d
from delegate.ops._convolution.nvidia import depthwise_conv_2d as nvidia_depthwise_conv_2d
from delegate.ops._convolution.packing import fallback
from delegate.ops._convolution.records import (
    AnyConvolution,
    FloatConvolution,
    Quant8Convolution,
    Quant16Convolution,
)
from delegate.ops._convolution.simt import conv_2d as simt_conv_2d
from delegate.ops._convolution.simt import depthwise_conv_2d as simt_depthwise_conv_2d
from delegate.ops._convolution.simt import fully_connected as simt_fully_connected
from delegate.ops._convolution.x86 import conv_2d as x86_conv_2d
from delegate.ops._convolution.x86 import depthwise_conv_2d as x86_depthwise_conv_2d
from delegate.ops._convolution.x86 import fully_connected as x86_fully_connected
from delegate.ops._launches.types import ELEM
from delegate.target import Target

# Returns alternatives of an 8-bit convolution for some devices, the fastest expected first; none if
# they do not apply.
Lowering = Callable[[Quant8Convolution, Target], tuple[Alternative, ...]]
# In expected order of speed. The last one is portable, and ends with the fallback.
CONV_2D_VARIANTS: tuple[Lowering, ...] = (
    x86_conv_2d.alternatives,
    arm_conv_2d.alternatives,
    nvidia_conv_2d.alternatives,
    simt_conv_2d.alternatives,
    integers.conv_2d_quant8,
)
DEPTHWISE_CONV_2D_VARIANTS: tuple[Lowering, ...] = (
    x86_depthwise_conv_2d.alternatives,
    nvidia_depthwise_conv_2d.alternatives,
    simt_depthwise_conv_2d.alternatives,
    integers.depthwise_conv_2d_quant8,
)


def conv_2d(conv: AnyConvolution, target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives of a CONV_2D or a FULLY_CONNECTED, the fallback last."""
    if isinstance(conv, Quant16Convolution):
        return integers.conv_2d_quant16(conv, target)
    if conv.groups > 1 and conv.group_in_c == 1 and isinstance(conv, Quant8Convolution):
        return depthwise_conv_2d(conv, target)
    if conv.groups > 1:
        return (_of_groups(conv),)
    if isinstance(conv, FloatConvolution):
        return conv_2d_float.alternatives(conv, target)
    return _all_variants(CONV_2D_VARIANTS, conv, target)


def depthwise_conv_2d(conv: AnyConvolution, target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives of a depthwise convolution, the fallback last."""
    if isinstance(conv, Quant16Convolution):
        return integers.depthwise_conv_2d_quant16(conv, target)
    if isinstance(conv, FloatConvolution):
        if conv.groups == 1:  # a convolution with one input channel, which has more alternatives
            return conv_2d_float.alternatives(conv, target)
        return depthwise_conv_2d_float.alternatives(conv, target)
    return _all_variants(DEPTHWISE_CONV_2D_VARIANTS, conv, target)


def hybrid_products(product: hybrid.Product, target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives for float rows and int8 weights, the fallback last."""
    x86 = x86_fully_connected.alternatives(product, target)
    arm = arm_conv_2d.hybrid(product, target)
    nvidia = nvidia_conv_2d.hybrid(product, target)
    shared = simt_fully_connected.alternatives(product, target)
    return (*x86, *arm, *nvidia, *shared, *hybrid.alternatives(product, target))


def blockwise(product: hybrid_blocks.BlockProduct, target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives for float rows and blockwise int4 weights, the fallback last."""
    x86 = x86_fully_connected.of_blocks(product, target)
    arm = arm_fully_connected.of_blocks(product, target)
    shared = simt_fully_connected.of_blocks(product, target)
    return (*x86, *arm, *shared, *hybrid_blocks.alternatives(product, target))


def _of_groups(conv: Quant8Convolution | FloatConvolution) -> Alternative:
    is_float = isinstance(conv, FloatConvolution)
    defines: Defines = {} if is_float else {"ELEM": ELEM[conv.source.dtype]}
    extra = {"group_in_c": conv.group_in_c, "group_out_c": conv.group_out_c}
    return fallback(
        conv, "conv_2d_groups", f"conv_2d_groups_{conv.family}", conv.weights, extra, defines
    )


def _all_variants(
    variants: tuple[Lowering, ...], conv: Quant8Convolution, target: Target
) -> tuple[Alternative, ...]:
    return tuple(each for variant in variants for each in variant(conv, target))

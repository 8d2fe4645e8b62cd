# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED of floats and quantised weights, by Arm's instructions proven on the device.

Weights of int8 have the kernels of CONV_2D; the kernel for int4 weights in blocks shares
fully_connected_blocks.clh.
"""

from __future__ import annotations

from collections.abc import Iterator

from delegate.launch import Alternative
from delegate.ops._convolution import panels_blocks
from delegate.ops._convolution.hybrid_blocks import BlockProduct
from delegate.ops._convolution.panels_blocks import BlockwiseGemmConfig
from delegate.target import Target

# Blocks of one row are as wide as those of two, so both read the same packed weights.
BLOCK_KINDS = (BlockwiseGemmConfig(frozenset({"dotprod"}), "dotprod", 4, ((2, 4), (1, 4))),)


def of_blocks(product: BlockProduct, target: Target) -> Iterator[Alternative]:
    """Yield the launches for int4 weights in blocks, the fastest expected first."""
    return panels_blocks.alternatives(product, target, BLOCK_KINDS)

# SPDX-License-Identifier: Apache-2.0
"""Variants of convolutions: smaller blocks where a work-item keeps few values in registers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delegate import ops
from delegate.inspect import Node
from tests.support.cases import SIMT
from tests.support.convolution import Convolution, float_convolution

CONV = Convolution(size=(9, 9, 8), dtype="int16")
FLOATS = float_convolution(size=(9, 9, 3))
DEEP = Convolution(size=(9, 9, 8), dtype="int16", depth_multiplier=1)


@pytest.mark.parametrize(
    ("node", "blocks"),
    [
        (Convolution().node(), {0: (4, 8), 96: (4, 8), 48: (2, 4), 24: (1, 4)}),
        (Convolution(out_c=7).node(), {0: (4, 4), 96: (4, 4), 48: (2, 4), 24: (1, 4)}),
        (
            Convolution(size=(1, 1, 9), kernel=(1, 1)).node(),
            {0: (1, 8), 96: (1, 8), 48: (1, 4), 24: (1, 4)},
        ),
        (CONV.node(), {0: (4, 4), 128: (4, 4), 96: (1, 4), 48: (1, 4), 24: (1, 2)}),
        (DEEP.node(), {0: (4, 4), 128: (4, 4), 96: (1, 4), 24: (1, 4)}),
        # Unrolled windows keep more: those of few terms, and of 3x3 taps.
        (FLOATS.node(), {0: (4, 4), 96: (4, 4), 48: (2, 4), 24: (1, 4)}),
        (replace(FLOATS, size=(9, 9, 64)).node(), {0: (4, 4), 96: (4, 4), 48: (2, 4), 24: (2, 4)}),
        (
            replace(FLOATS, size=(9, 9, 8), depth_multiplier=1).node(),
            {0: (4, 4), 96: (4, 4), 48: (4, 4), 24: (2, 4)},
        ),
    ],
    ids=["8 bits", "7 channels", "1 pixel", "16 bits", "deep 16", "short", "long", "deep float"],
)
def test_pixels_and_channels(node: Node, blocks: dict[int, tuple[int, int]]) -> None:
    for count, block in blocks.items():
        first = ops.lower(node, replace(SIMT.target, registers=count))[0].launches[0]
        channels = int(first.defines.get("LANES", 4)) * int(first.defines.get("VECTORS", 1))
        assert (first.defines["TILE_W"], channels) == block, count

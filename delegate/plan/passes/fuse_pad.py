# SPDX-License-Identifier: Apache-2.0
"""PAD -> convolution becomes one convolution with explicit padding.

    x -PAD-> y -CONV_2D, VALID-> z        becomes        x -CONV_2D, EXPLICIT-> z

The pad value must be the zero point (0.0 in float), which convolutions use outside the input.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node
from delegate.plan.passes.matching import Match

_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")


def found_at(links: DefUse, node: Node) -> Match | None:
    """Return a convolution and the PAD that only it reads."""
    if node.op not in _CONVOLUTIONS or node.options.get("padding") != "VALID":
        return None
    pad = links.sole_producer(node.inputs[0], "PAD") if node.inputs else None
    sizes = None if pad is None else _spatial_padding(pad)
    if pad is None or sizes is None:
        return None
    inputs = (pad.inputs[0], *node.inputs[1:])
    options = {**node.options, "padding": "EXPLICIT", **sizes}
    return (pad, node), replace(node, inputs=inputs, options=options)


def _spatial_padding(pad: Node) -> dict[str, int] | None:
    """Return the rows and columns that a PAD adds; None if it also pads batch or channels."""
    amounts = pad.inputs[1]
    if amounts is None or amounts.data is None or amounts.shape != (4, 2):
        return None
    rows = np.asarray(amounts.data).astype(np.int64)
    if rows[0].any() or rows[3].any() or rows.min() < 0:
        return None
    names = ("pad_top", "pad_bottom", "pad_left", "pad_right")
    return dict(zip(names, rows[1:3].ravel().tolist(), strict=True))

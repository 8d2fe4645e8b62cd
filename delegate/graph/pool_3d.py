# SPDX-License-Identifier: Apache-2.0
"""3D pools: custom ops in TFLite's sources that its packages lack.

Their options are TensorFlow's, as a FlexBuffer. Converters name the average pool like
TensorFlow's op, TFLite's tests differently.
Source: tflite/kernels/pooling3d.cc
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delegate.graph.flexbuffer import flexbuffer_of, values_in
from delegate.graph.ir import Node

MAX_POOL_3D, AVERAGE_POOL_3D, AVG_POOL_3D = "MaxPool3D", "AveragePool3D", "AvgPool3D"
POOLS_3D = (MAX_POOL_3D, AVERAGE_POOL_3D, AVG_POOL_3D)
_AXES = ("d", "h", "w")


def pool_3d_of(node: Node) -> dict[str, Any]:
    """Return the options of a pool as for CONV_3D, and "filter_d", "filter_h", "filter_w".

    Raises:
        ValueError: missing or invalid options.
    """
    values = values_in(node.options)
    layout, padding = values.get("data_format"), values.get("padding")
    if layout != "NDHWC" or padding not in ("SAME", "VALID"):
        raise ValueError(f"layout {layout}, padding {padding}: no pool")
    options: dict[str, Any] = {"padding": padding}
    for own, name in (("ksize", "filter"), ("strides", "stride")):
        sizes = values.get(own)
        if not isinstance(sizes, tuple) or len(sizes) != 5 or sizes[0] != 1 or sizes[4] != 1:
            raise ValueError(f"{own} {sizes}: five are needed, the first and the last 1")
        if not all(1 <= size < 2**31 for size in sizes):
            raise ValueError(f"{own} {sizes}: each must be at least 1")
        options |= {f"{name}_{axis}": size for axis, size in zip(_AXES, sizes[1:4], strict=True)}
    return options


def pool_3d_options(
    padding: str, strides: Sequence[int], window: Sequence[int], layout: str = "NDHWC"
) -> dict[str, Any]:
    """Return the options of a pool; `strides`, `window`: along depth, rows and columns."""
    return flexbuffer_of(
        data_format=layout, ksize=[1, *window, 1], padding=padding, strides=[1, *strides, 1]
    )

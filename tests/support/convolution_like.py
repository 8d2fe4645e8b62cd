# SPDX-License-Identifier: Apache-2.0
"""Nodes of the ops that multiply by weights or matrices, for each kernel of theirs to be built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from delegate import Node
from tests.support.cases import changed
from tests.support.convolution import Convolution
from tests.support.floats import FloatConvolution
from tests.support.model import const, op, t
from tests.support.quant16 import convolution16
from tests.support.transpose_conv import Spread


def convolution_like_nodes() -> Iterator[Node]:
    """Return nodes of every type whose channels fill each number of lanes, and of several sizes."""
    for channels in (1, 2, 4, 8, 16, 32):
        for size in (1, 5):
            yield from _quant16(size, channels)
            spread = Spread(size=(size, size, channels), out_c=channels)
            for dtype in ("uint8", "int8", "float32"):
                yield replace(spread, dtype=dtype).node()
            for has_bias in (False, True):
                yield replace(spread, dtype="int16", has_bias=has_bias).node()
            for dtype in ("float32", "int8", "int16"):
                for adj_y in (False, True):
                    yield matrices(size, channels, dtype, dtype, adj_y)
            yield matrices(size, channels, "int16", "int8", False)
        for dtype in ("uint8", "int8"):
            yield _without_multiplier(channels, dtype)
    yield from _grouped()


def _grouped() -> tuple[Node, ...]:
    """Return convolutions of two groups."""
    nodes = (
        Convolution(size=(5, 5, 2), kernel=(1, 1)).node(),
        Convolution(size=(5, 5, 2), dtype="int8").node(),
        FloatConvolution(size=(5, 5, 2)).node(),
    )
    return tuple(changed(node, 0, shape=(1, 5, 5, 4)) for node in nodes)


def weight_nodes(dtype: str, channels: int, size: int) -> list[Node]:
    """Return a node an op, of an 8-bit type where it has one."""
    spread = Spread(size=(size, size, channels), out_c=channels, dtype=dtype)
    return [spread.node(), matrices(size, channels, "int8", "int8", False)]


def other_nodes() -> dict[str, Node]:
    """Return nodes whose types or shapes take a lowering of their own, by names for people."""
    conv, _, depthwise, _, product, *_ = _quant16(5, 8)
    grouped, _, grouped_float = _grouped()
    return {
        "CONV_2D_int16": conv,
        "DEPTHWISE_CONV_2D_int16": depthwise,
        "FULLY_CONNECTED_int16": product,
        "FULLY_CONNECTED_double": _without_multiplier(8, "int8"),
        "CONV_2D_groups": grouped,
        "CONV_2D_groups_float": grouped_float,
        "TRANSPOSE_CONV_float": Spread(dtype="float32").node(),
        "TRANSPOSE_CONV_int16": Spread(dtype="int16").node(),
        "BATCH_MATMUL_float": matrices(5, 8, "float32", "float32", True),
        "BATCH_MATMUL_int16": matrices(5, 8, "int16", "int8", True),
    }


def matrices(size: int, columns: int, dtype: str, right_dtype: str, adj_y: bool) -> Node:
    """Return a BATCH_MATMUL."""
    scale = None if dtype == "float32" else 0.5
    right = (columns, columns)
    inputs = [t((size, columns), dtype, scale), t(right, right_dtype, scale)]
    return op("BATCH_MATMUL", inputs, [t((size, columns), dtype, scale)], {"adj_y": adj_y})


def _quant16(size: int, channels: int) -> Iterator[Node]:
    conv = Convolution(size=(size, size, channels), out_c=channels, dtype="int16")
    for case in (conv, replace(conv, depth_multiplier=1)):
        node = convolution16(case)
        yield node
        yield replace(node, inputs=(*node.inputs[:2], None))
    source, weights, bias = convolution16(replace(conv, kernel=(1, 1))).inputs
    assert source is not None
    assert weights is not None
    rows = replace(source, shape=(size * size, channels))
    matrix = replace(
        weights,
        shape=(channels, channels),
        data=np.ones((channels, channels), np.int8),
    )
    result = t((size * size, channels), "int16", 0.5)
    for last in (bias, None):
        yield op("FULLY_CONNECTED", [rows, matrix, last], [result])


def _without_multiplier(channels: int, dtype: str) -> Node:
    """Return a FULLY_CONNECTED that only a product of doubles rounds as TFLite does."""
    weights = const(np.ones((channels, channels), dtype), 0.5)
    bias = const(np.full(channels, 2**30, np.int32), 0.25)
    result = t((5, channels), dtype, 49.0 * 2**19)
    return op("FULLY_CONNECTED", [t((5, channels), dtype, 0.5), weights, bias], [result])

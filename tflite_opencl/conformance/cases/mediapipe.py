# SPDX-License-Identifier: Apache-2.0
"""MediaPipe's custom ops, used in segmentation models."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from delegate.inspect import (
    MAX_POOLING,
    MAX_UNPOOLING,
    TRANSPOSE_CONV_BIAS,
    Graph,
    pooling_options,
    transpose_conv_bias_options,
)
from tflite_opencl.conformance.cases._rows import shaped
from tflite_opencl.models.build import (
    Case,
    Shape,
    case,
    constant,
    graph,
    node,
    seeded,
    sizes,
    tensor,
)

# Picture, output channels, window, strides.
_CONVOLUTIONS: tuple[tuple[Shape, int, Shape, Shape], ...] = (
    ((1, 7, 5, 3), 4, (3, 3), (2, 2)),
    ((1, 8, 8, 16), 2, (2, 2), (2, 2)),
    ((2, 4, 6, 5), 33, (4, 3), (2, 1)),
    ((1, 5, 3, 8), 1, (1, 2), (3, 2)),
    ((1, 1, 1, 7), 6, (3, 3), (1, 1)),
)


def cases() -> Iterator[Case]:
    """Yield the cases of Convolution2DTransposeBias."""
    for (shape, channels, taps, strides), padding in itertools.product(
        _CONVOLUTIONS, ("SAME", "VALID")
    ):
        detail = f"in{sizes(shape)}-out{channels}-window{sizes(taps)}-stride{sizes(strides)}"
        given = shape, channels, taps, strides, padding
        name = f"{detail}-{padding.lower()}"
        op = TRANSPOSE_CONV_BIAS
        yield case("transpose_conv_bias", "float32", name, transpose_conv_bias, *given, op=op)


# Picture, window, strides, activation.
_POOLS: tuple[tuple[Shape, tuple[int, int], tuple[int, int], str], ...] = (
    ((1, 8, 6, 3), (2, 2), (2, 2), "NONE"),
    ((2, 5, 7, 16), (2, 2), (2, 2), "RELU"),
    ((1, 9, 8, 5), (3, 2), (3, 2), "RELU6"),
    ((1, 7, 9, 4), (3, 3), (2, 2), "RELU_N1_TO_1"),
    ((1, 11, 4, 1), (4, 3), (1, 2), "NONE"),
)


def pools() -> Iterator[Case]:
    """Yield the cases of MaxPoolingWithArgmax2D, MaxUnpooling2D, and both together."""
    for (shape, window, strides, activation), padding in itertools.product(
        _POOLS, ("SAME", "VALID")
    ):
        given = shape, window, strides, padding, activation
        parts = f"in{sizes(shape)}", f"window{sizes(window)}", f"stride{sizes(strides)}"
        detail = "-".join([*parts, padding.lower(), activation.lower()])
        yield case("max_pooling", "float32", detail, max_pooling, *given, op=MAX_POOLING)
        if window == strides:
            both = f"{detail}-undone"
            yield case("max_pooling", "float32", both, max_pooling, *given, True, op=MAX_UNPOOLING)


def max_pooling(
    shape: Shape,
    window: tuple[int, int],
    strides: tuple[int, int],
    padding: str,
    activation: str = "NONE",
    is_undone: bool = False,
) -> Graph:
    """Return the model of a pool, whose indices are an output, or are used for unpooling."""
    options = pooling_options(padding, strides, window, activation)
    outputs = [tensor((1,) * 4), tensor((1,) * 4)]
    pool = shaped(node(MAX_POOLING, [tensor(shape)], outputs, options, is_custom=True))
    if not is_undone:
        return graph([pool])
    back = pooling_options("VALID", strides, window)
    result = [tensor((1,) * 4)]
    undone = shaped(node(MAX_UNPOOLING, pool.outputs, result, back, is_custom=True))
    return graph([pool, undone])


def transpose_conv_bias(
    shape: Shape, channels: int, taps: Shape, strides: Shape, padding: str
) -> Graph:
    """Return the model of one node. `taps`, `strides`: rows and columns."""
    rng = seeded(shape, channels, taps)
    weights = constant(rng.normal(0, 1, (channels, *taps, shape[3])).astype(np.float32))
    bias = constant(rng.normal(0, 1, channels).astype(np.float32))
    inputs = [tensor(shape), weights, bias]
    options = transpose_conv_bias_options(padding, strides[1], strides[0])
    made = node(TRANSPOSE_CONV_BIAS, inputs, [tensor((1,) * 4)], options, is_custom=True)
    return graph([shaped(made)])

# SPDX-License-Identifier: Apache-2.0
"""The op that MediaPipe adds to TFLite's, and that segmentation models end with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from delegate.inspect import TRANSPOSE_CONV_BIAS, Graph, transpose_conv_bias_options
from tflite_opencl.common.build import (
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
from tflite_opencl.conformance.cases._rows import shaped

# The picture, the channels that come of it, the window, the strides.
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

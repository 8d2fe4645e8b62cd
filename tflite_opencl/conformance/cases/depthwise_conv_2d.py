# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D: channels at the edges of vectors, depth multipliers, strides, dilation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from tflite_opencl.common.build import Case, case
from tflite_opencl.conformance.cases._convolution import KINDS, Convolution, edges, zero_points

_depthwise = partial(Convolution, op="DEPTHWISE_CONV_2D")
_SIZES = ((7, 5, 3), (8, 8, 8), (5, 9, 17), (6, 7, 32), (4, 13, 1), (9, 4, 15))


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for kind in KINDS:
        for convolution in _convolutions(kind):
            if convolution.fits:
                yield case("depthwise_conv_2d", kind, str(convolution), convolution.graph, kind)


def _convolutions(kind: str) -> Iterator[Convolution]:
    for size, kernel, stride, padding in itertools.product(
        _SIZES, ((3, 3), (5, 5), (1, 1), (3, 1)), ((1, 1), (2, 2)), ("SAME", "VALID")
    ):
        yield _depthwise(size=size, kernel=kernel, stride=stride, padding=padding)
    for depth, size in itertools.product((2, 3, 8), ((5, 6, 1), (7, 5, 3), (4, 4, 9))):
        yield _depthwise(size=size, depth_multiplier=depth)
    yield from edges(_depthwise(size=(7, 6, 8)))
    yield from zero_points(_depthwise(size=(6, 5, 8)), kind)
    for dilation in ((2, 2), (3, 1)):
        for padding in ("SAME", "VALID"):
            yield _depthwise(size=(9, 11, 4), dilation=dilation, padding=padding)
    for size in ((1, 1, 1), (1, 1, 65), (1, 17, 4), (33, 1, 5)):
        yield _depthwise(size=size)
    yield _depthwise(size=(3, 3, 8), kernel=(7, 7))
    yield _depthwise(size=(7, 7, 33), kernel=(7, 7), padding="VALID")

# SPDX-License-Identifier: Apache-2.0
"""CONV_2D: shapes at the edges of tiles, kernels, strides, dilation, groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tflite_opencl.common.build import Case, case
from tflite_opencl.conformance.cases._convolution import KINDS, Convolution, edges, zero_points

# h, w, c -> out_c: odd primes, powers of two, one more and one less, a single pixel or channel.
_SHAPES = (
    ((7, 5, 3), 8),
    ((8, 8, 8), 16),
    ((9, 7, 17), 15),
    ((5, 13, 4), 33),
    ((6, 16, 16), 1),
    ((11, 6, 1), 31),
    ((5, 5, 32), 64),
)
_KERNELS = ((1, 1), (3, 3), (5, 5), (1, 3), (3, 1), (2, 2))


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for kind in KINDS:
        for convolution in _convolutions(kind):
            if convolution.fits:
                yield case("conv_2d", kind, str(convolution), convolution.graph, kind)


def _convolutions(kind: str) -> Iterator[Convolution]:
    for (size, out_c), kernel, stride, padding in itertools.product(
        _SHAPES, _KERNELS, ((1, 1), (2, 2)), ("SAME", "VALID")
    ):
        yield Convolution(size=size, out_c=out_c, kernel=kernel, stride=stride, padding=padding)
    yield from edges(Convolution(size=(7, 6, 5)))
    yield from edges(Convolution(size=(6, 4, 16), kernel=(1, 1), out_c=24))
    yield from zero_points(Convolution(size=(6, 7, 3)), kind)
    yield from zero_points(Convolution(size=(4, 7, 9), kernel=(1, 1)), kind)
    for dilation in ((2, 2), (1, 3), (3, 2)):
        for padding in ("SAME", "VALID"):
            yield Convolution(size=(9, 11, 4), dilation=dilation, padding=padding)
    for stride in ((1, 2), (2, 1), (3, 3), (4, 2)):
        yield Convolution(size=(10, 9, 4), stride=stride)
    for size, out_c in (((1, 1, 1), 1), ((1, 1, 129), 7), ((1, 33, 3), 5), ((65, 1, 2), 3)):
        yield Convolution(size=size, kernel=(1, 1), out_c=out_c)
        yield Convolution(size=size, out_c=out_c)
    yield Convolution(size=(4, 4, 6), kernel=(7, 7))  # a kernel larger than the picture
    if kind != "16x8":
        for groups in (2, 4):
            yield Convolution(size=(5, 6, 8), out_c=12, groups=groups)

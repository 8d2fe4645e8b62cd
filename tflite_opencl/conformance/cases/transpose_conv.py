# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV: kernels smaller and larger than the stride, both paddings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from tflite_opencl.common.build import Case, case
from tflite_opencl.conformance.cases._convolution import KINDS, Convolution, zero_points

_transposed = partial(Convolution, op="TRANSPOSE_CONV")


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for kind in KINDS:
        for convolution in _convolutions(kind):
            yield case("transpose_conv", kind, str(convolution), convolution.graph, kind)


def _convolutions(kind: str) -> Iterator[Convolution]:
    for (size, out_c), kernel, stride, padding in itertools.product(
        (((4, 5, 3), 8), ((3, 3, 16), 5), ((1, 1, 7), 1)),
        ((3, 3), (2, 2), (4, 4)),
        ((1, 1), (2, 2), (3, 3)),
        ("SAME", "VALID"),
    ):
        if padding == "VALID" or stride[0] <= kernel[0]:
            yield _transposed(size=size, out_c=out_c, kernel=kernel, stride=stride, padding=padding)
    for base in (_transposed(size=(4, 3, 5), stride=(2, 2)),):
        yield from zero_points(base, kind)
    for multiplier in (2.0**-18, 1 / 3, 1.0, 1.5):
        yield _transposed(size=(4, 3, 5), stride=(2, 2), multiplier=multiplier)
    for fused in ("RELU", "RELU6"):
        yield _transposed(size=(4, 3, 5), stride=(2, 2), fused=fused)
    for batch in (2, 3):
        yield _transposed(size=(3, 4, 5), stride=(2, 2), batch=batch)
    yield _transposed(size=(3, 4, 5), stride=(2, 2), has_bias=False)
    yield _transposed(size=(3, 4, 5), stride=(2, 1), kernel=(3, 2))

# SPDX-License-Identifier: Apache-2.0
"""All cases: a function of a file here yields those of a family, and _FAMILIES names them all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tflite_opencl.common.build import Case
from tflite_opencl.conformance.cases import (
    behaviour,
    binary,
    chains,
    convolutions,
    elementwise,
    movement,
    reductions,
)

# The order is kept: which cases a sample takes depends on it.
_FAMILIES = (
    reductions.products,
    behaviour.cases,
    binary.cases,
    chains.chains,
    chains.computed_shapes,
    convolutions.stored_weights,
    convolutions.conv_2d,
    elementwise.conversions,
    convolutions.depthwise_conv_2d,
    convolutions.fully_connected_layers,
    movement.cases,
    reductions.pools,
    reductions.reductions,
    reductions.resizes,
    elementwise.choices,
    reductions.softmaxes,
    convolutions.teflon,
    convolutions.transpose_conv,
    elementwise.functions,
)


def all_cases() -> Iterator[Case]:
    """Yield every case; no model is built."""
    return itertools.chain.from_iterable(family() for family in _FAMILIES)

# SPDX-License-Identifier: Apache-2.0
"""All cases: a function of a file here yields those of a family, and _FAMILIES names them all."""

from __future__ import annotations

from collections.abc import Iterator

from tflite_opencl.common.build import Case
from tflite_opencl.conformance.cases import (
    behaviour,
    binary,
    chains,
    constants,
    convolutions,
    elementwise,
    movement,
    reductions,
    spatial,
)

# The order is kept: which cases a sample takes depends on it.
_FAMILIES = (
    reductions.products,
    behaviour.cases,
    binary.cases,
    chains.cases,
    constants.cases,
    convolutions.conv_2d,
    elementwise.conversions,
    convolutions.depthwise_conv_2d,
    convolutions.fully_connecteds,
    movement.cases,
    spatial.pools,
    reductions.reductions,
    spatial.resizes,
    elementwise.choices,
    reductions.softmaxes,
    convolutions.teflon,
    convolutions.transpose_conv,
    elementwise.functions,
)


def all_cases() -> Iterator[Case]:
    """Yield every case; no model is built.

    Raises:
        ValueError: two cases have one name.
    """
    seen: set[str] = set()
    for family in _FAMILIES:
        for case in family():
            if case.name in seen:
                raise ValueError(f"two cases are called {case.name}")
            seen.add(case.name)
            yield case

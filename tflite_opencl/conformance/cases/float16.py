# SPDX-License-Identifier: Apache-2.0
"""The float32 cases of other families with FLOAT16 tensors: activations, weights and biases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from delegate.inspect import Graph
from tflite_opencl.conformance.cases import (
    binary,
    chains,
    convolutions,
    elementwise,
    movement,
    pools,
    reductions,
    resizes,
    softmaxes,
)
from tflite_opencl.models.build import Case, in_float16

_FAMILIES = (
    binary.cases,
    chains.chains,
    partial(convolutions.cases, convolutions.conv_2d),
    partial(convolutions.cases, convolutions.depthwise_conv_2d),
    partial(convolutions.cases, convolutions.transpose_conv),
    convolutions.fully_connected_layers,
    elementwise.choices,
    elementwise.functions,
    movement.cases,
    pools.cases,
    reductions.reductions,
    resizes.cases,
    softmaxes.cases,
)
# Their kernels have many variants, selected by size.
_MANY = ("CONV_2D", "DEPTHWISE_CONV_2D", "chain")
# These have no float tensor in float32 either, or floats of several types.
_WITHOUT = frozenset({"FILL", "FLOOR_DIV", "FLOOR_MOD", "ONE_HOT", "RANGE", "SHAPE"})


def cases() -> Iterator[Case]:
    """Yield every ninth case of an op, starting with the first; of convolutions every fifth."""
    seen: Counter[str] = Counter()
    for family in _FAMILIES:
        for each in family():
            if each.kind != "float32" or each.check != "values" or each.op in _WITHOUT:
                continue
            seen[each.op] += 1
            if seen[each.op] % (5 if each.op in _MANY else 9) == 1:
                name = each.name.replace("/float32/", "/float16/", 1)
                yield replace(each, name=name, kind="float16", make=partial(_made, each))


def _made(of: Case) -> Graph:
    return in_float16(of.make())

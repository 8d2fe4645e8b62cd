# SPDX-License-Identifier: Apache-2.0
"""All conformance cases: each module yields those of an op family; _FAMILIES lists them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

from delegate.inspect import Graph
from tflite_opencl.conformance.cases import (
    binary,
    chains,
    composites,
    conversions,
    convolutions,
    detections,
    elementwise,
    float16,
    frequencies,
    frontend,
    hybrid,
    loops,
    mediapipe,
    movement,
    orders,
    pools,
    products,
    recurrent,
    reductions,
    reported,
    resizes,
    rnns,
    shapes,
    softmaxes,
    stablehlo,
    variables,
    volumes,
)
from tflite_opencl.conformance.cases._convolution import ConvCase, fully_connected
from tflite_opencl.conformance.cases._rows import one
from tflite_opencl.conformance.cases.chains import chain_graph
from tflite_opencl.conformance.checks import BEHAVIOURS
from tflite_opencl.models.build import Case, numbers, tensor

_REOPENED = {("conv", "int8"), ("add", "float32"), ("several_outputs", "uint8")}


def _behaviour() -> Iterator[Case]:
    """Yield the behaviour checks, each on the same models."""
    for name, (make, kinds) in _MODELS.items():
        for kind in kinds:
            for check in BEHAVIOURS:
                if check == "reopen_100" and (name, kind) not in _REOPENED:
                    continue  # each takes seconds
                full = f"behaviour/{kind}/{check}-{name}"
                yield Case(full, "behaviour", kind, partial(make, kind), check)


def _add(kind: str) -> Graph:
    scales = (0.1, 0.07, 0.13) if kind != "float32" else (None,) * 3
    left, right, out = (tensor((1, 7, 5, 3), kind, scale) for scale in scales)
    return one("ADD", [left, right], out, {"fused_activation_function": "NONE"})


def _pad(kind: str) -> Graph:
    pads = numbers([[0, 0], [1, 2], [0, 1], [0, 0]])
    return one("PAD", [tensor((1, 7, 5, 3), kind, 0.1), pads], tensor((), kind, 0.1))


_MODELS: dict[str, tuple[Callable[[str], Graph], tuple[str, ...]]] = {
    "conv": (
        ConvCase(size=(7, 5, 3), out_c=5).graph,
        ("uint8", "int8", "int8-per-channel", "float32"),
    ),
    "depthwise": (ConvCase(op="DEPTHWISE_CONV_2D", size=(7, 5, 3)).graph, ("int8",)),
    "add": (_add, ("uint8", "int8", "float32")),
    "pad": (_pad, ("uint8",)),
    "fully_connected": (partial(fully_connected, batch=(1,), in_c=21, out_c=11), ("int8",)),
    "inverted_residual": (partial(chain_graph, "inverted_residual", shape=(1, 7, 9, 5)), ("int8",)),
    "several_outputs": (partial(chain_graph, "several_outputs", shape=(1, 7, 9, 5)), ("uint8",)),
    "reverse_in_the_middle": (
        partial(chain_graph, "reverse_in_the_middle", shape=(1, 5, 5, 3)),
        ("int8",),
    ),
}


# The order is fixed, because samples depend on it.
_FAMILIES = (
    products.cases,
    _behaviour,
    binary.cases,
    chains.chains,
    shapes.computed_shapes,
    composites.cases,
    convolutions.stored_weights,
    partial(convolutions.cases, convolutions.conv_2d),
    conversions.cases,
    partial(convolutions.cases, convolutions.depthwise_conv_2d),
    convolutions.fully_connected_layers,
    movement.cases,
    pools.cases,
    reductions.reductions,
    reductions.ranks,
    resizes.cases,
    elementwise.choices,
    softmaxes.cases,
    convolutions.teflon,
    partial(convolutions.cases, convolutions.transpose_conv),
    elementwise.functions,
    hybrid.layers,
    hybrid.embeddings,
    products.hybrids,
    detections.cases,
    recurrent.svdfs,
    recurrent.lstms,
    stablehlo.cases,
    mediapipe.cases,
    recurrent.both_lstms,
    recurrent.basic_lstms,
    rnns.rnns,
    variables.cases,
    variables.behaviours,
    frequencies.cases,
    mediapipe.pools,
    stablehlo.windows,
    stablehlo.scatters,
    loops.cases,
    float16.cases,
    volumes.cases,
    volumes.pools,
    binary.edges,
    conversions.edges,
    elementwise.edges,
    orders.edges,
    pools.edges,
    products.edges,
    reductions.edges,
    resizes.edges,
    softmaxes.edges,
    volumes.pool_edges,
    frontend.cases,
    reported.cases,
)


def all_cases() -> Iterator[Case]:
    """Yield every case, without building models."""
    return itertools.chain.from_iterable(family() for family in _FAMILIES)

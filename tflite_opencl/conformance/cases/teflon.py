# SPDX-License-Identifier: Apache-2.0
"""The grid that Mesa's test_teflon runs: channels, kernels, sizes, strides, paddings, signs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from delegate.inspect import Graph
from tflite_opencl.common.build import FUSED, Case, graph, node, tensor
from tflite_opencl.conformance.cases._convolution import Convolution

# Source: Mesa's src/gallium/targets/teflon/test_teflon.cpp
_CHANNELS = (1, 32, 120, 128, 160, 256)
_KERNELS = (1, 3, 5)
_SIZES = (3, 5, 8, 80, 112)
# What the reference kernels do in about a second; above that a case is run with --heavy.
_HEAVY = 60_000_000


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for kind in ("uint8", "int8"):
        for size, kernel, in_c, out_c, stride, padding in itertools.product(
            _SIZES, _KERNELS, _CHANNELS, _CHANNELS, (1, 2), ("SAME", "VALID")
        ):
            convolution = Convolution(
                size=(size, size, in_c),
                out_c=out_c,
                kernel=(kernel, kernel),
                stride=(stride, stride),
                padding=padding,
            )
            if convolution.fits:
                yield _case("conv_2d", kind, convolution)
        for size, channels, stride, padding in itertools.product(
            _SIZES, _CHANNELS[1:], (1, 2), ("SAME", "VALID")
        ):
            depthwise = Convolution(
                op="DEPTHWISE_CONV_2D",
                size=(size, size, channels),
                stride=(stride, stride),
                padding=padding,
            )
            yield _case("depthwise_conv_2d", kind, depthwise)
        for size, channels, fused in itertools.product(_SIZES, _CHANNELS, FUSED[:3]):
            detail = f"add-in{size}x{size}x{channels}"
            detail += "" if fused == "NONE" else f"-{fused.lower()}"
            yield Case(
                f"teflon/{kind}/{detail}",
                "ADD",
                kind,
                lambda a=(size, channels, fused, kind): _add(*a),  # type: ignore[misc]
            )


def _case(family: str, kind: str, convolution: Convolution) -> Case:
    return Case(
        f"teflon/{kind}/{family}-{convolution}",
        convolution.op,
        kind,
        lambda: convolution.graph(kind),
        is_heavy=convolution.multiplications > _HEAVY,
    )


def _add(size: int, channels: int, fused: str, kind: str) -> Graph:
    """Return a sum of two convolutions' results, which the hardware adds as one of them."""
    convolution = Convolution(size=(size, size, channels), kernel=(1, 1), out_c=channels)
    if size * size * channels * channels > _HEAVY // 2:
        convolution = replace(convolution, op="DEPTHWISE_CONV_2D")
    left = convolution.node(kind, None)
    right = replace(convolution, has_bias=True).node(kind, left.inputs[0])
    zero = 128 if kind == "uint8" else 0
    out = tensor((1, size, size, channels), kind, 0.4, zero)
    inputs = [left.outputs[0], right.outputs[0]]
    total = node("ADD", inputs, [out], {"fused_activation_function": fused}, 2)
    return graph([left, right, total])

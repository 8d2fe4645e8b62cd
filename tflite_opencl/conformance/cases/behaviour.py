# SPDX-License-Identifier: Apache-2.0
"""How a delegate behaves, whatever it computes: the same models for each check of checks/."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from delegate.inspect import Graph
from tflite_opencl.common.build import Case, graph, node, numbers, tensor
from tflite_opencl.conformance.cases._convolution import Convolution, fully_connected
from tflite_opencl.conformance.cases.chains import chain_graph
from tflite_opencl.conformance.checks import BEHAVIOURS


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for (name, kind), make in _MODELS.items():
        for check in BEHAVIOURS:
            if check == "reopen_100" and (name, kind) not in _REOPENED:
                continue  # each takes seconds
            yield Case(f"behaviour/{kind}/{check}-{name}", "behaviour", kind, make, check)


_REOPENED = {("conv", "int8"), ("add", "float32"), ("several_outputs", "uint8")}


def _conv(kind: str) -> Graph:
    return Convolution(size=(7, 5, 3), out_c=5).graph(kind)


def _depthwise(kind: str) -> Graph:
    return Convolution(op="DEPTHWISE_CONV_2D", size=(7, 5, 3)).graph(kind)


def _add(kind: str) -> Graph:
    shape = (1, 7, 5, 3)
    scales = (0.1, 0.07, 0.13) if kind != "float32" else (None,) * 3
    left, right, out = (tensor(shape, kind, scale) for scale in scales)
    return graph([node("ADD", [left, right], [out], {"fused_activation_function": "NONE"})])


def _pad(kind: str) -> Graph:
    pads = numbers(np.array([[0, 0], [1, 2], [0, 1], [0, 0]]))
    out = tensor((1, 10, 6, 3), kind, 0.1)
    return graph([node("PAD", [tensor((1, 7, 5, 3), kind, 0.1), pads], [out])])


_MODELS: dict[tuple[str, str], Callable[[], Graph]] = {
    ("conv", "uint8"): lambda: _conv("uint8"),
    ("conv", "int8"): lambda: _conv("int8"),
    ("conv", "int8-per-channel"): lambda: _conv("int8-per-channel"),
    ("conv", "float32"): lambda: _conv("float32"),
    ("depthwise", "int8"): lambda: _depthwise("int8"),
    ("add", "uint8"): lambda: _add("uint8"),
    ("add", "int8"): lambda: _add("int8"),
    ("add", "float32"): lambda: _add("float32"),
    ("pad", "uint8"): lambda: _pad("uint8"),
    ("fully_connected", "int8"): lambda: fully_connected("int8", (1,), 21, 11),
    ("inverted_residual", "int8"): lambda: chain_graph("inverted_residual", "int8", (1, 7, 9, 5)),
    ("several_outputs", "uint8"): lambda: chain_graph("several_outputs", "uint8", (1, 7, 9, 5)),
    ("reverse_in_the_middle", "int8"): lambda: chain_graph(
        "reverse_in_the_middle", "int8", (1, 5, 5, 3)
    ),
}

# SPDX-License-Identifier: Apache-2.0
"""Small networks: what joins ops in real models, several outputs, an op that no delegate has."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.common.build import Case, dtype_of, graph, node, numbers, sizes, tensor
from tflite_opencl.conformance.cases._convolution import KINDS, Convolution, weighted_input

# Scale and zero point of layers' results: as trained networks have them, so that values neither
# vanish nor all reach the ends of the range.
_RESULT = {"uint8": (0.03, 123), "int8": (0.03, -5), "int16": (0.00025, 0)}
_RELU6 = {"uint8": (6 / 255, 0), "int8": (6 / 255, -128), "int16": (0.00025, 0)}
_TOTAL = {"uint8": (0.05, 125), "int8": (0.05, -3), "int16": (0.0006, 0)}
_SIZES = ((8, 8, 8), (7, 9, 5), (12, 6, 16), (5, 5, 3))


class _Chain:
    """Nodes in the making, of one kind."""

    def __init__(self, kind: str, shape: Sequence[int]) -> None:
        self.kind, self.dtype = kind, dtype_of(kind)
        self.nodes: list[Node] = []
        self.source = weighted_input(tuple(shape), kind)

    def add(self, step: Node) -> Tensor:
        self.nodes.append(step)
        return step.outputs[0]

    def conv(
        self,
        source: Tensor,
        out_c: int,
        kernel: int = 3,
        stride: int = 1,
        fused: str = "NONE",
        op: str = "CONV_2D",
    ) -> Tensor:
        n, *size = source.shape
        result = (_RELU6 if fused == "RELU6" else _RESULT).get(self.dtype)
        convolution = Convolution(
            op=op, size=(size[0], size[1], size[2]), out_c=out_c, kernel=(kernel, kernel), batch=n,
            stride=(stride, stride), fused=fused, out=result,
        )  # fmt: skip
        return self.add(convolution.node(self.kind, source))

    def depthwise(self, source: Tensor, stride: int = 1, fused: str = "RELU6") -> Tensor:
        return self.conv(source, 8, stride=stride, fused=fused, op="DEPTHWISE_CONV_2D")

    def like(self, source: Tensor, shape: Sequence[int] | None = None) -> Tensor:
        quantization = source.quantization
        if quantization is None:
            return tensor(shape or source.shape, self.dtype)
        return tensor(
            shape or source.shape, self.dtype, quantization.scale[0], quantization.zero_point[0]
        )

    def simple(
        self,
        op: str,
        source: Tensor,
        shape: Sequence[int] | None = None,
        version: int = 0,
        **options: Any,
    ) -> Tensor:
        version = version or {"uint8": 1, "float32": 1, "int8": 2, "int16": 3}[self.dtype]
        return self.add(node(op, [source], [self.like(source, shape)], options, version))

    def pool(self, source: Tensor, op: str = "MAX_POOL_2D") -> Tensor:
        n, h, w, c = source.shape
        return self.simple(
            op, source, (n, -(-h // 2), -(-w // 2), c), padding="SAME", filter_height=2,
            filter_width=2, stride_h=2, stride_w=2, fused_activation_function="NONE",
        )  # fmt: skip

    def total(self, left: Tensor, right: Tensor, op: str = "ADD") -> Tensor:
        out = tensor(left.shape, self.dtype, *_TOTAL.get(self.dtype, (None, 0)))
        options = {"fused_activation_function": "NONE"}
        version = {"uint8": 1, "float32": 1, "int8": 2, "int16": 4 if op == "MUL" else 3}[
            self.dtype
        ]
        return self.add(node(op, [left, right], [out], options, version))

    def mean(self, source: Tensor) -> Tensor:
        n, _, _, c = source.shape
        out = self.like(source, (n, 1, 1, c))
        step = node("MEAN", [source, numbers((1, 2))], [out], {"keep_dims": True}, 2)
        return self.add(step)

    def logistic(self, source: Tensor) -> Tensor:
        fixed = {"uint8": (1 / 256, 0), "int8": (1 / 256, -128), "int16": (2.0**-15, 0)}
        out = tensor(source.shape, self.dtype, *fixed.get(self.dtype, (None, 0)))
        version = {"uint8": 1, "float32": 1, "int8": 2, "int16": 3}[self.dtype]
        return self.add(node("LOGISTIC", [source], [out], {}, version))

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        n, h, w, _ = parts[0].shape
        out = self.like(parts[0], (n, h, w, sum(part.shape[3] for part in parts)))
        options = {"axis": 3, "fused_activation_function": "NONE"}
        version = {"int8": 2, "int16": 3}.get(self.dtype, 1)
        return self.add(node("CONCATENATION", list(parts), [out], options, version))


def _conv_relu_pool(chain: _Chain) -> list[Tensor]:
    return [chain.pool(chain.conv(chain.source, 12, fused="RELU"))]


def _conv_average_softmax(chain: _Chain) -> list[Tensor]:
    made = chain.mean(chain.conv(chain.source, 10, stride=2, fused="RELU6"))
    flat = chain.add(
        node(
            "RESHAPE", [made, numbers((made.shape[0], 10))], [chain.like(made, (made.shape[0], 10))]
        )
    )
    fixed = {"uint8": (1 / 256, 0), "int8": (1 / 256, -128), "int16": (2.0**-15, 0)}
    out = tensor(flat.shape, chain.dtype, *fixed.get(chain.dtype, (None, 0)))
    version = {"uint8": 1, "float32": 1, "int8": 2, "int16": 3}[chain.dtype]
    return [chain.add(node("SOFTMAX", [flat], [out], {"beta": 1.0}, version))]


def _inverted_residual(chain: _Chain) -> list[Tensor]:
    channels = chain.source.shape[3]
    wide = chain.conv(chain.source, 3 * channels, 1, fused="RELU6")
    narrow = chain.conv(chain.depthwise(wide), channels, 1)
    return [chain.total(chain.source, narrow)]


def _strided_residual(chain: _Chain) -> list[Tensor]:
    channels = chain.source.shape[3]
    left = chain.conv(chain.source, 2 * channels, 1, 2)
    right = chain.conv(chain.conv(chain.source, channels, fused="RELU"), 2 * channels, 3, 2)
    return [
        chain.simple("RELU", chain.total(left, right), version=1 if chain.dtype != "int16" else 2)
    ]


def _squeeze_excite(chain: _Chain) -> list[Tensor]:
    made = chain.conv(chain.source, 8, fused="RELU")
    gate = chain.conv(chain.conv(chain.mean(made), 4, 1, fused="RELU"), 8, 1)
    return [chain.total(made, chain.logistic(gate), "MUL")]


def _concat_of_branches(chain: _Chain) -> list[Tensor]:
    made = chain.conv(chain.source, 6, 1)
    window: dict[str, Any] = {"filter_height": 3, "filter_width": 3, "stride_h": 1, "stride_w": 1}
    pooled = chain.simple(
        "MAX_POOL_2D", made, padding="SAME", fused_activation_function="NONE", **window
    )
    return [
        chain.joined(
            [
                made,
                pooled,
                chain.simple(
                    "MAX_POOL_2D",
                    pooled,
                    padding="SAME",
                    fused_activation_function="RELU",
                    **window,
                ),
            ]
        )
    ]


def _diamond(chain: _Chain) -> list[Tensor]:
    made = chain.conv(chain.source, 8)
    return [chain.total(chain.conv(made, 8, 1), chain.depthwise(made))]


def _several_outputs(chain: _Chain) -> list[Tensor]:
    first = chain.conv(chain.source, 8, fused="RELU")
    second = chain.pool(first)
    return [second, first, chain.conv(second, 5, 1)]


def _unsupported_in_the_middle(chain: _Chain) -> list[Tensor]:
    made = chain.conv(chain.source, 8, fused="RELU")
    turned = chain.like(made)
    # Reversed rows: an op that drivers' delegates do not have.
    chain.add(node("REVERSE_V2", [made, numbers([2])], [turned]))
    return [chain.conv(turned, 6, 1)]


def _deep(chain: _Chain) -> list[Tensor]:
    made = chain.source
    for number in range(8):
        made = (
            chain.depthwise(made, fused="NONE")
            if number % 2
            else chain.conv(made, 8, fused="RELU6")
        )
    return [made]


def _pad_conv(chain: _Chain, kernel: int = 3, stride: int = 2) -> list[Tensor]:
    n, h, w, c = chain.source.shape
    padded = chain.like(chain.source, (n, h + 2, w + 2, c))
    pads = numbers(np.array([[0, 0], [1, 1], [1, 1], [0, 0]]))
    version = {"int8": 2, "int16": 2}.get(chain.dtype, 1)
    chain.add(node("PAD", [chain.source, pads], [padded], {}, version))
    return [chain.conv(padded, 8, kernel, stride)]


def _pad_conv_1x1(chain: _Chain) -> list[Tensor]:
    # Without the border it is a product of matrices; with it, it is not.
    return _pad_conv(chain, 1, 1)


def _split_and_join(chain: _Chain) -> list[Tensor]:
    made = chain.conv(chain.source, 8, 1)
    n, h, w, _ = made.shape
    halves = [chain.like(made, (n, h, w, 4)) for _ in range(2)]
    chain.nodes.append(node("SPLIT", [numbers(3), made], halves, {"num_splits": 2}))
    return [chain.joined([halves[1], halves[0]])]


_CHAINS: dict[str, Callable[[_Chain], list[Tensor]]] = {
    "conv_relu_pool": _conv_relu_pool,
    "conv_mean_softmax": _conv_average_softmax,
    "inverted_residual": _inverted_residual,
    "strided_residual": _strided_residual,
    "squeeze_excite": _squeeze_excite,
    "diamond": _diamond,
    "several_outputs": _several_outputs,
    "reverse_in_the_middle": _unsupported_in_the_middle,
    "deep": _deep,
    "pad_conv": _pad_conv,
    "pad_conv_1x1": _pad_conv_1x1,
    "split_and_join": _split_and_join,
    "concat_of_branches": _concat_of_branches,
}


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for name, kind, size, batch in itertools.product(_CHAINS, KINDS, _SIZES, (1, 2)):
        shape = (batch, *size)
        yield Case(
            f"chain/{kind}/{name}-in{sizes(shape)}",
            "chain",
            kind,
            lambda name=name, kind=kind, shape=shape: chain_graph(name, kind, shape),  # type: ignore[misc]
        )


def chain_graph(name: str, kind: str, shape: Sequence[int]) -> Graph:
    """Return one of the networks at this input."""
    chain = _Chain(kind, shape)
    outputs = _CHAINS[name](chain)
    return graph(chain.nodes, [chain.source], outputs)

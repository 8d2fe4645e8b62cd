# SPDX-License-Identifier: Apache-2.0
"""Small networks: op combinations of real models, several outputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.conformance.cases._convolution import KINDS, ConvCase, weighted_input
from tflite_opencl.conformance.cases._rows import UNIT, VERSIONS, step
from tflite_opencl.models.build import (
    Case,
    Shape,
    case,
    constant,
    dtype_of,
    graph,
    numbers,
    seeded,
    sizes,
    tensor,
)

# Scale and zero point of layers' results: as in trained networks, so that values neither
# vanish nor saturate.
_RESULT = {"uint8": (0.03, 123), "int8": (0.03, -5), "int16": (0.00025, 0)}
_RELU6 = {"uint8": (6 / 255, 0), "int8": (6 / 255, -128), "int16": (0.00025, 0)}
_TOTAL = {"uint8": (0.05, 125), "int8": (0.05, -3), "int16": (0.0006, 0)}
_SIZES = ((8, 8, 8), (7, 9, 5), (12, 6, 16), (5, 5, 3))
_PLAIN = {"fused_activation_function": "NONE"}


class _Chain:
    """A graph under construction, of one kind."""

    def __init__(self, kind: str, shape: Shape) -> None:
        self.kind, self.dtype = kind, dtype_of(kind)
        self.nodes: list[Node] = []
        self.source = weighted_input(shape, kind)

    def add(
        self,
        op: str,
        inputs: Sequence[Tensor],
        options: Mapping[str, Any] | None = None,
        version: int | None = None,
        out: Mapping[str, tuple[float, int]] | None = None,
    ) -> Tensor:
        """Add a node and return its output; `out`: its quantisation by type, or the input's."""
        like = tensor((1,), self.dtype, *out.get(self.dtype, (None, 0))) if out else inputs[0]
        version = VERSIONS.get(self.dtype, 1) if version is None else version
        self.nodes.append(step(op, inputs, [like], options, version))
        return self.nodes[-1].outputs[0]

    def conv(
        self,
        source: Tensor,
        out_c: int,
        kernel: int = 3,
        stride: int = 1,
        fused: str = "NONE",
        op: str = "CONV_2D",
    ) -> Tensor:
        n, h, w, c = source.shape
        convolution = ConvCase(
            op=op, size=(h, w, c), out_c=out_c, kernel=(kernel, kernel), batch=n,
            stride=(stride, stride), fused=fused,
            out=(_RELU6 if fused == "RELU6" else _RESULT).get(self.dtype),
        )  # fmt: skip
        self.nodes.append(convolution.node(self.kind, source))
        return self.nodes[-1].outputs[0]

    def depthwise(self, source: Tensor, fused: str = "RELU6") -> Tensor:
        return self.conv(source, 8, fused=fused, op="DEPTHWISE_CONV_2D")

    def pool(self, source: Tensor, window: int = 2, stride: int = 2, fused: str = "NONE") -> Tensor:
        options = {
            "padding": "SAME", "filter_height": window, "filter_width": window, "stride_h": stride,
            "stride_w": stride, "fused_activation_function": fused,
        }  # fmt: skip
        return self.add("MAX_POOL_2D", [source], options)

    def total(self, left: Tensor, right: Tensor) -> Tensor:
        return self.add("ADD", [left, right], _PLAIN, out=_TOTAL)

    def mean(self, source: Tensor) -> Tensor:
        return self.add("MEAN", [source, numbers((1, 2))], {"keep_dims": True}, 2)

    def joined(self, *parts: Tensor) -> Tensor:
        return self.add("CONCATENATION", parts, {"axis": 3, **_PLAIN})


def _conv_relu_pool(chain: _Chain) -> list[Tensor]:
    return [chain.pool(chain.conv(chain.source, 12, fused="RELU"))]


def _conv_mean_softmax(chain: _Chain) -> list[Tensor]:
    made = chain.mean(chain.conv(chain.source, 10, stride=2, fused="RELU6"))
    flat = chain.add("RESHAPE", [made, numbers((made.shape[0], 10))], version=1)
    return [chain.add("SOFTMAX", [flat], {"beta": 1.0}, out=UNIT)]


def _inverted_residual(chain: _Chain) -> list[Tensor]:
    channels = chain.source.shape[3]
    wide = chain.conv(chain.source, 3 * channels, 1, fused="RELU6")
    narrow = chain.conv(chain.depthwise(wide), channels, 1)
    return [chain.total(chain.source, narrow)]


def _strided_residual(chain: _Chain) -> list[Tensor]:
    channels = chain.source.shape[3]
    left = chain.conv(chain.source, 2 * channels, 1, 2)
    right = chain.conv(chain.conv(chain.source, channels, fused="RELU"), 2 * channels, 3, 2)
    made = chain.total(left, right)
    return [chain.add("RELU", [made], version={"int16": 2}.get(chain.dtype, 1))]


def _squeeze_excite(chain: _Chain) -> list[Tensor]:
    made = chain.conv(chain.source, 8, fused="RELU")
    gate = chain.conv(chain.conv(chain.mean(made), 4, 1, fused="RELU"), 8, 1)
    gate = chain.add("LOGISTIC", [gate], out=UNIT)
    version = {"int8": 2, "int16": 4}.get(chain.dtype, 1)
    return [chain.add("MUL", [made, gate], _PLAIN, version, _TOTAL)]


def _concat_of_branches(chain: _Chain) -> list[Tensor]:
    made = chain.conv(chain.source, 6, 1)
    pooled = chain.pool(made, 3, 1)
    return [chain.joined(made, pooled, chain.pool(pooled, 3, 1, "RELU"))]


def _diamond(chain: _Chain) -> list[Tensor]:
    made = chain.conv(chain.source, 8)
    return [chain.total(chain.conv(made, 8, 1), chain.depthwise(made))]


def _several_outputs(chain: _Chain) -> list[Tensor]:
    first = chain.conv(chain.source, 8, fused="RELU")
    second = chain.pool(first)
    return [second, first, chain.conv(second, 5, 1)]


def _reverse_in_the_middle(chain: _Chain) -> list[Tensor]:
    made = chain.conv(chain.source, 8, fused="RELU")
    # Reversed rows: an op that drivers' delegates lack.
    turned = chain.add("REVERSE_V2", [made, numbers([2])], version=1)
    return [chain.conv(turned, 6, 1)]


def _deep(chain: _Chain) -> list[Tensor]:
    made = chain.source
    for _ in range(4):
        made = chain.depthwise(chain.conv(made, 8, fused="RELU6"), fused="NONE")
    return [made]


def _pad_conv(chain: _Chain, kernel: int = 3, stride: int = 2) -> list[Tensor]:
    inputs = [chain.source, numbers([[0, 0], [1, 1], [1, 1], [0, 0]])]
    padded = chain.add("PAD", inputs, {}, {"int8": 2, "int16": 2}.get(chain.dtype, 1))
    return [chain.conv(padded, 8, kernel, stride)]


def _pad_conv_1x1(chain: _Chain) -> list[Tensor]:
    # Without padding it is a matrix product; with padding it is not.
    return _pad_conv(chain, 1, 1)


def _split_and_join(chain: _Chain) -> list[Tensor]:
    made = chain.conv(chain.source, 8, 1)
    split = step("SPLIT", [numbers(3), made], [made, made], {"num_splits": 2})
    chain.nodes.append(split)
    return [chain.joined(*reversed(split.outputs))]


def _swish(chain: _Chain) -> list[Tensor]:
    made = chain.conv(chain.source, 8)
    share = chain.add("LOGISTIC", [made], out=UNIT)
    version = {"int8": 2, "int16": 4}.get(chain.dtype, 1)
    return [chain.pool(chain.add("MUL", [made, share], _PLAIN, version))]


def _batch_norm(chain: _Chain) -> list[Tensor]:
    # Before a convolution no converter can fold it away: DenseNet.
    made = chain.source
    kind = chain.dtype
    rng, channels = seeded(kind, made.shape), made.shape[3:]
    for op, fused in (("MUL", "NONE"), ("ADD", "RELU")):
        if kind == "float32":
            row = constant(rng.normal(1, 0.5, channels).astype(kind))
        else:
            limits = np.iinfo(kind)
            values = rng.integers(limits.min, limits.max, channels, kind, endpoint=True)
            row = constant(values, 2 / int(limits.max), 0 if kind == "int16" else 5)
        options = {"fused_activation_function": fused}
        version = {"int8": 2, "int16": 4 if op == "MUL" else 2}.get(kind, 1)
        made = chain.add(op, [made, row], options, version, _TOTAL)
    return [chain.conv(made, 8, 1)]


def _floats_between(chain: _Chain) -> list[Tensor]:
    # Converters leave an op in floats if they know no quantised form of it.
    made = chain.conv(chain.source, 8)
    row = constant(seeded(made.shape).normal(1, 0.5, made.shape[3:]).astype(np.float32))
    inner = [("MUL", _PLAIN, [row]), ("RELU6", {}, []), ("ABS", {}, [])]
    if chain.dtype != "float32":
        inner = [("DEQUANTIZE", {}, []), *inner]
    for op, options, others in inner:
        version = VERSIONS.get(made.dtype, 1) if op == "DEQUANTIZE" else 1
        chain.nodes.append(step(op, [made, *others], [tensor((1,))], options, version))
        (made,) = chain.nodes[-1].outputs
    return [made if chain.dtype == "float32" else chain.add("QUANTIZE", [made], out=_RESULT)]


_CHAINS: tuple[Callable[[_Chain], list[Tensor]], ...] = (
    _conv_relu_pool,
    _conv_mean_softmax,
    _inverted_residual,
    _strided_residual,
    _squeeze_excite,
    _diamond,
    _several_outputs,
    _reverse_in_the_middle,
    _deep,
    _pad_conv,
    _pad_conv_1x1,
    _split_and_join,
    _concat_of_branches,
    _swish,
    _batch_norm,
    _floats_between,
)
_BY_NAME = {chain.__name__.removeprefix("_"): chain for chain in _CHAINS}


def chains() -> Iterator[Case]:
    """Yield the cases of the networks."""
    for name, kind, size, batch in itertools.product(_BY_NAME, KINDS, _SIZES, (1, 2)):
        shape = (batch, *size)
        yield case(
            "chain", kind, f"{name}-in{sizes(shape)}", chain_graph, name, kind, shape, op="chain"
        )


def chain_graph(name: str, kind: str, shape: Shape) -> Graph:
    """Return one of the networks for this input."""
    chain = _Chain(kind, shape)
    outputs = _BY_NAME[name](chain)
    return graph(chain.nodes, [chain.source], outputs)

# SPDX-License-Identifier: Apache-2.0
"""Builds ops with weights from parameters, with descriptive case names."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.conformance.cases._rows import one, step
from tflite_opencl.models.build import (
    Shape,
    as_int4,
    constant,
    dtype_of,
    graph,
    in_blocks,
    integers,
    numbers,
    seeded,
    sizes,
    stored_as,
    tensor,
)

HYBRID = ("hybrid", "hybrid-per-channel")  # floats quantised at each run, int8 weights
KINDS = ("uint8", "int8", "int8-per-channel", "16x8", "float32")
Zeros = tuple[int, int, int]  # zero points of input, weights, output
_VERSIONS = {  # of 16x8 the second
    "CONV_2D": (3, 4),
    "DEPTHWISE_CONV_2D": (3, 5),
    "TRANSPOSE_CONV": (3, 3),
    "FULLY_CONNECTED": (5, 7),
}
_HYBRID_VERSION = 5  # with per-channel scales
# Standard deviation of a product of random 8-bit values; outputs should use half their range.
_SPREAD, _WANTED = 5400.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvCase:
    """A convolution, depthwise or transposed; defaults are omitted from its name."""

    op: str = "CONV_2D"
    size: tuple[int, int, int] = (7, 5, 3)  # h, w, c
    kernel: tuple[int, int] = (3, 3)
    out_c: int = 8  # of a depthwise one: from the depth multiplier
    depth_multiplier: int = 1
    groups: int = 1
    batch: int = 1
    stride: tuple[int, int] = (1, 1)  # h, w
    dilation: tuple[int, int] = (1, 1)
    padding: str = "SAME"
    fused: str = "NONE"
    zeros: Zeros | None = None
    multiplier: float | None = None  # real: input scale * weight scale / output scale
    has_bias: bool = True
    is_int4: bool = False  # the weights
    # Scale and zero point of the output, to match the next layer; the weights' scale is derived
    # from it. None: the other way round.
    out: tuple[float, int] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        is_depthwise = self.op == "DEPTHWISE_CONV_2D"
        parts = {
            f"in{sizes(self.size)}": True,
            f"k{sizes(self.kernel)}": True,
            f"out{self.out_c}": not is_depthwise,
            f"depth{self.depth_multiplier}": self.depth_multiplier > 1,
            f"groups{self.groups}": self.groups > 1,
            f"batch{self.batch}": self.batch > 1,
            f"stride{_pair(self.stride)}": self.stride != (1, 1),
            f"dilation{_pair(self.dilation)}": self.dilation != (1, 1),
            self.padding.lower(): True,
            self.fused.lower(): self.fused != "NONE",
            "no_bias": not self.has_bias,
            "int4": self.is_int4,
            "zeros{}_{}_{}".format(*self.zeros or "---"): self.zeros is not None,
            f"multiplier{self.multiplier or 0:.4g}": self.multiplier is not None,
        }
        return "-".join(part for part, is_said in parts.items() if is_said)

    @property
    def fits(self) -> bool:
        """Whether the output is not empty."""
        return min(self.out_size()) > 0

    @property
    def multiplications(self) -> int:
        """Number of multiplications."""
        return math.prod((self.batch, *self.out_size(), *self.weights_shape))

    @property
    def out_channels(self) -> int:
        """Channels of the output."""
        is_depthwise = self.op == "DEPTHWISE_CONV_2D"
        return self.size[2] * self.depth_multiplier if is_depthwise else self.out_c

    @property
    def weights_shape(self) -> Shape:
        """Shape of the weights; each output channel has its own scale."""
        if self.op == "DEPTHWISE_CONV_2D":
            return (1, *self.kernel, self.out_channels)
        return (self.out_c, *self.kernel, self.size[2] // self.groups)

    def out_size(self) -> tuple[int, int]:
        """Return the output's height and width."""
        both = []
        for side, kernel, stride, dilation in zip(
            self.size, self.kernel, self.stride, self.dilation, strict=False
        ):
            extent = (kernel - 1) * dilation + 1
            if self.op == "TRANSPOSE_CONV":
                valid = (side - 1) * stride + kernel
                both.append(side * stride if self.padding == "SAME" else valid)
            else:
                both.append(-(-(side if self.padding == "SAME" else side - extent + 1) // stride))
        return both[0], both[1]

    def _rng(self, kind: str) -> np.random.Generator:
        """Return the generator of the weights, whose seed has this class's first name."""
        text = f"({self!r}, {kind!r})".replace(type(self).__name__, "Convolution", 1)
        return np.random.default_rng(zlib.crc32(text.encode()))

    def graph(self, kind: str) -> Graph:
        """Return the graph of this single node."""
        return graph([self.node(kind, None)])

    def node(self, kind: str, source: Tensor | None) -> Node:
        """Return the node on this tensor, or on a new graph input."""
        is_depthwise = self.op == "DEPTHWISE_CONV_2D"
        source = source or weighted_input((self.batch, *self.size), kind, self.zeros)
        weights, bias, out_scale = _weights_and_bias(
            self._rng(kind), self.weights_shape, kind, source, self.zeros, self.multiplier,
            3 if is_depthwise else 0, self.out and self.out[0],
        )  # fmt: skip
        inputs: list[Tensor | None] = [source, weights, bias]
        options: dict[str, Any] = {
            "padding": self.padding,
            "stride_h": self.stride[0],
            "stride_w": self.stride[1],
            "fused_activation_function": self.fused,
        }
        if self.op == "TRANSPOSE_CONV":
            out_shape = (self.batch, *self.out_size(), self.out_channels)
            inputs = [numbers(out_shape), weights, source, bias]
        else:
            options["dilation_h_factor"], options["dilation_w_factor"] = self.dilation
        if is_depthwise:
            options["depth_multiplier"] = self.depth_multiplier
        if not self.has_bias:
            inputs.pop()
        zero = self.out[1] if self.out else _out_zero(kind, self.zeros)
        out = tensor((), dtype_of(kind), out_scale, zero)
        if self.is_int4:
            inputs[1] = as_int4(weights)
        version = _HYBRID_VERSION if kind in HYBRID else _VERSIONS[self.op][kind == "16x8"]
        return step(self.op, inputs, [out], options, version)


def fully_connected(
    kind: str,
    batch: tuple[int, ...],
    in_c: int,
    out_c: int,
    fused: str = "NONE",
    keep_num_dims: bool = False,
    has_bias: bool = True,
    zeros: Zeros | None = None,
    multiplier: float | None = None,
    asymmetric: bool = False,
    stored: str = "int8",
    block: int = 0,
    is_computed: bool = False,
) -> Graph:
    """Return the graph of a single FULLY_CONNECTED.

    `stored`: the type of hybrid weights; `block`: int4 weights per scale; `is_computed`: the
    weights are an input.
    """
    source = weighted_input((*batch, in_c), kind, zeros)
    weights, bias, out_scale = _weights_and_bias(
        seeded(kind, batch, in_c, out_c), (out_c, in_c), kind, source, zeros, multiplier
    )
    out = tensor((), dtype_of(kind), out_scale, _out_zero(kind, zeros))
    options = {"fused_activation_function": fused, "keep_num_dims": keep_num_dims}
    version = _VERSIONS["FULLY_CONNECTED"][kind == "16x8"]
    if kind in HYBRID:
        options["asymmetric_quantize_inputs"], version = asymmetric, 12 if block else 9
    weights = stored_as(weights, stored)
    if block:
        rng = seeded(batch, in_c, out_c, block)
        weights = in_blocks(as_int4(weights), rng.uniform(1e-3, 0.1, (out_c, in_c // block)))
    if is_computed:
        weights = replace(weights, data=None)
    inputs = [source, weights, bias if has_bias else None]
    return one("FULLY_CONNECTED", inputs, out, options, version)


def embedding_lookup(kind: str, shape: Shape, count: int, stored: str) -> Graph:
    """Return a graph of an ARG_MAX whose `count` results index a table."""
    rng = seeded(kind, shape, count, stored)
    scales = rng.uniform(1e-3, 0.1, shape[0] if kind == "hybrid-per-channel" else 1)
    found, table = _found(shape[0], count), constant(integers(rng, shape, "int8"), scales)
    inputs = [found.outputs[0], stored_as(table, stored)]
    version = 3 if stored == "int8" else 4
    return graph([found, step("EMBEDDING_LOOKUP", inputs, [tensor(())], {}, version)])


def gathered_int4(shape: Shape, count: int, op: str, is_reshaped: bool) -> Graph:
    """Return the same with a GATHER from an int4 table, converted to floats by `op`."""
    rng = seeded(shape, count, op)
    table = as_int4(constant(integers(rng, shape, "int8"), 0.05, -3))
    rows, found = replace(table, data=None), _found(shape[0], count)
    nodes = [found, step("GATHER", [table, *found.outputs], [rows], {"axis": 0}, 5)]
    if is_reshaped:
        nodes.append(step("RESHAPE", [*nodes[-1].outputs, numbers((1, count, -1))], [rows]))
    return graph([*nodes, step(op, nodes[-1].outputs, [tensor(())], {}, 6)])


def _found(size: int, count: int) -> Node:
    """Return an ARG_MAX that computes `count` indices below a size."""
    source, places = tensor((count, size), "int8", 0.1), tensor((count,), "int32")
    return step("ARG_MAX", [source, numbers(1)], [places], {"output_type": "int32"}, 2)


def weighted_input(shape: Shape, kind: str, zeros: Zeros | None = None) -> Tensor:
    """Return the input of an op with weights."""
    if dtype_of(kind) == "float32":
        return tensor(shape)
    zero = 0 if kind == "16x8" else 131 if kind == "uint8" else 3
    scale = 0.0625 if kind != "16x8" else 2.0**-12
    return tensor(shape, dtype_of(kind), scale, zeros[0] if zeros else zero)


def _out_zero(kind: str, zeros: Zeros | None) -> int:
    if kind == "16x8" or dtype_of(kind) == "float32":
        return 0
    return zeros[2] if zeros else 123 if kind == "uint8" else -5


def _weights_and_bias(
    rng: np.random.Generator,
    shape: Shape,
    kind: str,
    source: Tensor,
    zeros: Zeros | None,
    multiplier: float | None,
    axis: int = 0,
    out_scale: float | None = None,
) -> tuple[Tensor, Tensor, float | None]:
    """Return random weights and bias, and an output scale that uses the output's range.

    `axis`: of the output channels; `out_scale`: if given, the weights' scale is derived from it.
    """
    count = shape[axis]
    if dtype_of(kind) == "float32":
        bias = constant(rng.standard_normal(count).astype(np.float32))
        if kind not in HYBRID:
            return constant(rng.standard_normal(shape).astype(np.float32)), bias, None
        own = rng.uniform(1e-3, 0.1, count if kind == "hybrid-per-channel" else 1)
        return constant(integers(rng, shape, "int8"), own, axis=axis), bias, None
    is_wide = kind == "16x8"
    assert source.quantization is not None
    in_scale = source.quantization.scale[0]
    # A 16-bit sum is 256 times as large, and so is its range.
    multiplier = multiplier or _WANTED / (_SPREAD * math.sqrt(math.prod(shape) // count))
    weight_scale = 0.03 if out_scale is None else out_scale * multiplier / in_scale
    scales: Any = weight_scale
    if kind in ("int8-per-channel", "16x8"):
        scales = (weight_scale * rng.uniform(0.05, 1, count)).astype(np.float32)
    weights = integers(rng, shape, "uint8" if kind == "uint8" else "int8")
    most = int(min(2.0**29, (2.0**14 if is_wide else 2.0**6) / multiplier)) + 1
    sums = rng.integers(-most, most, count).astype(np.int64 if is_wide else np.int32)
    weight_zero = zeros[1] if zeros else 135 if kind == "uint8" else 0
    return (
        constant(weights, scales, weight_zero, axis=axis),
        constant(sums, np.float32(in_scale) * np.float32(scales)),
        in_scale * weight_scale / multiplier,
    )


def _pair(values: tuple[int, int]) -> str:
    return str(values[0]) if values[0] == values[1] else f"{values[0]}x{values[1]}"

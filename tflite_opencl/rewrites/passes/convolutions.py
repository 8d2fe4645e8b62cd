# SPDX-License-Identifier: Apache-2.0
"""Shared by convolution passes: requirements, dense weights, window geometry.

The requirements raise Left, with the reason why the node is left unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Node, Quantization, Tensor
from tflite_opencl.rewrites.changes import NoMatch, new_tensor, quanta

Weights = NDArray[Any]
_OPTIONS = (  # of both kinds of convolution
    *("padding", "stride_w", "stride_h", "dilation_w_factor", "dilation_h_factor"),
    *("fused_activation_function", "quantized_bias_type"),
)
_MOST_SCALE = 1e10  # beyond it, squared sums exceed the range of floats
MOST_WEIGHTS = 1 << 27  # elements of dense weights; larger files would suit few devices


@dataclass(frozen=True, slots=True)
class SpatialAxis:
    """The window's movement along height or width; sizes are in pixels."""

    size: int  # of the input
    out: int  # of the output
    kernel: int
    stride: int
    dilation: int
    before: int  # padding above or on the left

    @property
    def extent(self) -> int:
        """Number of pixels that the window covers."""
        return (self.kernel - 1) * self.dilation + 1


@dataclass(frozen=True, slots=True, eq=False)
class Conv2D:
    """A CONV_2D or a DEPTHWISE_CONV_2D."""

    node: Node
    source: Tensor
    weights: Tensor
    bias: Tensor | None
    result: Tensor

    @property
    def is_depthwise(self) -> bool:
        """Whether each output channel reads a single input channel."""
        return self.node.op == "DEPTHWISE_CONV_2D"

    @property
    def in_c(self) -> int:
        """Number of input channels."""
        return self.source.shape[3]

    @property
    def out_c(self) -> int:
        """Number of output channels."""
        return self.result.shape[3]

    @property
    def weight_scales(self) -> NDArray[np.float64]:
        """The scales of quantised weights: (1 or o,)."""
        assert self.weights.quantization is not None
        return np.array(self.weights.quantization.scale, np.float64)

    @property
    def weight_zero(self) -> int:
        """The weights' zero point; TFLite uses 0 for int8 weights, regardless of the file."""
        is_int8 = self.weights.dtype == "int8" or self.weights.quantization is None
        return 0 if is_int8 else quanta(self.weights)[1]

    def axes(self) -> tuple[SpatialAxis, SpatialAxis]:
        """Return the window's movement along height and width.

        Raises:
            Left: a rank, stride, dilation, padding or size that TFLite rejects.
        Source: tflite/kernels/padding.h ComputePaddingHeightWidth
        """
        if not all(map(is_picture, (self.source, self.weights, self.result))):
            raise NoMatch("tensors that are no pictures of a known size")
        options = self.node.options
        found = []
        for dimension, letter in ((1, "h"), (2, "w")):
            stride = options.get(f"stride_{letter}", 1)
            dilation = options.get(f"dilation_{letter}_factor", 1)
            if min(stride, dilation) < 1:
                raise NoMatch(f"stride {stride}, dilation {dilation}")
            size, out = self.source.shape[dimension], self.result.shape[dimension]
            axis = SpatialAxis(size, out, self.weights.shape[dimension], stride, dilation, 0)
            if options.get("padding") == "SAME":
                expected = -(-size // stride)
                before = max(0, (expected - 1) * stride + axis.extent - size) // 2
            elif options.get("padding") == "VALID":
                expected, before = (size + stride - axis.extent) // stride, 0
            else:
                raise NoMatch(f"padding {options.get('padding')}")
            if out != expected:
                raise NoMatch(f"an output of {out} pixels where the window gives {expected}")
            found.append(replace(axis, before=before))
        return found[0], found[1]

    def weights_and_reads(self) -> tuple[Weights, NDArray[np.int64]]:
        """Return the weights by output channel, and the input channels that each of these reads.

        Shapes:
            depthwise (1, kh, kw, o) -> (o, kh, kw, 1); grouped (o, kh, kw, i) stay; reads: (o, i)
        """
        values = np.asarray(self.weights.data)
        if self.is_depthwise:
            values = np.moveaxis(values, 3, 0)[:, 0, :, :, None]
        own = values.shape[3]
        group = np.arange(self.out_c) // (self.out_c // (self.in_c // own))
        return values, group[:, None] * own + np.arange(own)

    def dense_weights(self) -> Weights:
        """Return any convolution's weights in the layout of a CONV_2D without groups.

        Weights of input channels that an output does not read are the zero point, adding nothing.

        Shapes:
            depthwise (1, kh, kw, i * m) or grouped (o, kh, kw, i / groups) -> (o, kh, kw, i)
        """
        values, reads = self.weights_and_reads()
        dense = np.full((*values.shape[:3], self.in_c), self.weight_zero, values.dtype)
        for channel, inputs in enumerate(reads):
            dense[channel][:, :, inputs] = values[channel]
        return dense

    def dense_tensor(self, name: str, values: Weights) -> Tensor:
        """Return new weights of a convolution, with output channels first."""
        assert self.weights.quantization is not None
        old = self.weights.quantization
        zeros = (self.weight_zero,) * len(old.scale)  # TFLite's CONV_2D rejects others for int8
        scales = replace(old, axis=0, zero_point=zeros)
        name = f"{self.weights.name}/{name}"
        return new_tensor(name, values.shape, self.weights.dtype, scales, values)

    def as_conv_2d(self, source: Tensor, weights: Tensor, **options: Any) -> Node:
        """Return this as a CONV_2D with another input, weights and options, and the same output.

        TFLite's CONV_2D requires a bias, which DEPTHWISE_CONV_2D may omit: it gets zeros.
        """
        node = self.node
        kept = {name: node.options[name] for name in _OPTIONS if name in node.options}
        # Source: tflite/tools/versioning/op_version.cc
        version = {"int8": 3, "int16": 4}.get(source.dtype, 1)
        return replace(
            node,
            op="CONV_2D",
            version=version if self.is_depthwise else node.version,
            inputs=(source, weights, self._zeros() if self.bias is None else self.bias),
            options={**kept, **options},
        )

    def _zeros(self) -> Tensor:
        by = self.weight_scales.astype(np.float32) * np.float32(quanta(self.source)[0])
        zeros = np.zeros(self.out_c, np.int64 if self.source.dtype == "int16" else np.int32)
        quantization = Quantization(tuple(by.tolist()), (0,) * len(by))
        name = f"{self.result.name}/bias"
        return new_tensor(name, zeros.shape, zeros.dtype.name, quantization, zeros)

    def require_treatable(self, graph: Graph) -> None:
        """Require that the weights of a convolution can be rewritten.

        This requires an 8-bit quantised input, output and constant weights, or 16-bit
        activations and 8-bit weights.
        """
        source, weights, bias, result = self.source, self.weights, self.bias, self.result
        if weights.data is None or (bias is not None and bias.data is None):
            raise NoMatch("weights or a bias that are computed")
        if any(tensor in graph.changeable for tensor in self.node.inputs):
            raise NoMatch("weights or a bias that a caller may set")
        if weights.is_sparse or (bias is not None and bias.is_sparse):
            raise NoMatch("sparse weights or a sparse bias")
        if source.dtype == "float32":
            hybrid = "hybrid: float32 activations" if weights.dtype != "float32" else "float32"
            raise NoMatch(f"{hybrid}; only quantised activations are treated")
        kinds = (source.dtype, weights.dtype, result.dtype)
        if kinds not in (("uint8",) * 3, ("int8",) * 3, ("int16", "int8", "int16")):
            raise NoMatch(
                f"{source.dtype} activations and {weights.dtype} weights to {result.dtype}"
            )
        if bias is not None and bias.dtype not in ("int32", "int64"):
            raise NoMatch(f"a bias of {bias.dtype}")
        self._require_shapes(graph)
        for tensor in (source, result):
            require_one_scale(tensor)
        if not has_scales(weights, 1, self.out_c):
            count = len(weights.quantization.scale) if weights.quantization else 0
            raise NoMatch(f"{count} scales and their zero points for {self.out_c} channels")

    def _require_shapes(self, graph: Graph) -> None:
        weights = self.weights
        for tensor in (self.source, weights, self.result):
            if not is_picture(tensor):
                raise NoMatch(
                    f"{tensor.name!r} has the shape {list(tensor.shape)}, which is not known"
                )
        for tensor in (self.source, self.result):
            require_fixed_picture(graph, tensor, f"{tensor.name!r}")
        in_c, out_c = self.in_c, self.out_c
        if self.is_depthwise:
            fits = weights.shape[0] == 1 and weights.shape[3] == out_c and out_c % in_c == 0
        else:
            fits = weights.shape[0] == out_c and in_c % weights.shape[3] == 0
        if not fits:
            raise NoMatch(f"{in_c} channels in, {out_c} out and weights {list(weights.shape)}")
        if not self.is_depthwise and out_c % (in_c // weights.shape[3]):
            raise NoMatch(f"{in_c // weights.shape[3]} groups do not divide {out_c} channels")
        if out_c * in_c * weights.shape[1] * weights.shape[2] > MOST_WEIGHTS:
            raise NoMatch(f"dense weights would have more than {MOST_WEIGHTS} elements")
        if self.bias is not None and self.bias.shape != (out_c,):
            raise NoMatch(f"a bias of the shape {list(self.bias.shape)} for {out_c} channels")
        self.axes()

    def require_no_use_of_zeros(self) -> None:
        """Require that zero pixels may be skipped in a convolution's sums.

        Quantised zeros add nothing. In floats, 0.0 times an infinite weight is NaN, and
        hybrid convolutions quantise their inputs.
        """
        source, weights = self.source, self.weights
        if source.dtype in ("uint8", "int8", "int16"):
            return
        if source.dtype != "float32" or weights.dtype != "float32":
            raise NoMatch(f"{source.dtype} activations and {weights.dtype} weights")
        if weights.data is None or not np.isfinite(weights.data).all():
            raise NoMatch("float32 weights that are not known to be finite")


def convolution_of(node: Node) -> Conv2D | None:
    """Return a convolution with the tensors that TFLite requires; None: not a convolution."""
    if node.op not in ("CONV_2D", "DEPTHWISE_CONV_2D") or node.is_custom:
        return None
    if len(node.inputs) not in (2, 3) or len(node.outputs) != 1:
        return None
    source, weights, bias = (*node.inputs, None)[:3]
    if source is None or weights is None:
        return None
    return Conv2D(node, source, weights, bias, node.outputs[0])


def has_scales(tensor: Tensor, *counts: int) -> bool:
    """Whether the number of scales is one of `counts`, with as many valid zero points."""
    quantization = tensor.quantization
    if quantization is None or len(quantization.scale) not in counts:
        return False
    if len(quantization.scale) != len(quantization.zero_point):
        return False
    limits = np.iinfo(tensor.dtype)
    zeros_fit = all(limits.min <= zero <= limits.max for zero in quantization.zero_point)
    return zeros_fit and all(0 < scale < _MOST_SCALE for scale in quantization.scale)


def require_one_scale(tensor: Tensor) -> None:
    """Require that a tensor has a single scale and zero point."""
    if not has_scales(tensor, 1):
        raise NoMatch(f"{tensor.name!r} has not one scale and zero point of its type")


def is_picture(tensor: Tensor) -> bool:
    """Whether a tensor has the four dimensions NHWC, none of them empty."""
    return len(tensor.shape) == 4 and min(tensor.shape) > 0


def require_fixed_picture(graph: Graph, tensor: Tensor, what: str) -> None:
    """Require that height, width and channels of an NHWC tensor are the same in every run.

    `what` begins the reason if they are not.
    """
    # Without a signature of its own, a tensor's shape follows from the graph's inputs.
    by = [tensor] if tensor.shape_signature else graph.inputs
    if any(min(each.shape_signature[1:], default=1) <= 0 for each in by):
        raise NoMatch(f"{what} has a height, a width or channels that may change")

# SPDX-License-Identifier: Apache-2.0
"""What passes on convolutions share: which are quantised and constant, dense weights, windows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Node, Quantization, Tensor
from tflite_opencl.rewrites.editing import new_tensor

Weights = NDArray[Any]
_OPTIONS = (  # of both kinds of convolution
    "padding",
    "stride_w",
    "stride_h",
    "fused_activation_function",
    "dilation_w_factor",
    "dilation_h_factor",
    "quantized_bias_type",
)
_MOST_SCALE = 1e10  # of numbers; beyond it squares of sums leave the range of floats
MOST_WEIGHTS = 1 << 27  # elements of dense weights; more would be a file that few devices take


@dataclass(frozen=True, slots=True)
class Axis:
    """How a window slides along the height or the width; all sizes in pixels."""

    size: int  # of the input
    out: int  # of the output
    kernel: int
    stride: int
    dilation: int
    before: int  # padding above or on the left

    @property
    def extent(self) -> int:
        """How many pixels the window covers."""
        return (self.kernel - 1) * self.dilation + 1


def is_convolution(node: Node) -> bool:
    """Whether a node is a CONV_2D or a DEPTHWISE_CONV_2D with the tensors that TFLite wants."""
    return (
        node.op in ("CONV_2D", "DEPTHWISE_CONV_2D")
        and not node.is_custom
        and len(node.inputs) in (2, 3)
        and None not in node.inputs[:2]
        and len(node.outputs) == 1
    )


def source_and_weights(node: Node) -> tuple[Tensor, Tensor]:
    """Return the first two inputs of a convolution, which has them."""
    source, weights = node.inputs[:2]
    assert source is not None
    assert weights is not None
    return source, weights


def reason_to_leave(graph: Graph, node: Node) -> str | None:
    """Return why the weights of a convolution cannot be rewritten; None where they can.

    They can where the input, the output and constant weights are quantised integers of 8 bits, or
    the activations are of 16 and the weights of 8.
    """
    (source, weights), result = source_and_weights(node), node.outputs[0]
    bias = node.inputs[2] if len(node.inputs) == 3 else None
    if weights.data is None or (bias is not None and bias.data is None):
        return "weights or a bias that are computed"
    if any(tensor in graph.changeable for tensor in node.inputs):
        return "weights or a bias that a caller may set"
    if weights.is_sparse or (bias is not None and bias.is_sparse):
        return "sparse weights or a sparse bias"
    if source.dtype == "float32":
        hybrid = "hybrid: float32 activations" if weights.dtype != "float32" else "float32"
        return f"{hybrid}; only quantised activations are treated"
    kinds = (source.dtype, weights.dtype, result.dtype)
    if kinds not in (("uint8",) * 3, ("int8",) * 3, ("int16", "int8", "int16")):
        return f"{source.dtype} activations and {weights.dtype} weights to {result.dtype}"
    if bias is not None and bias.dtype not in ("int32", "int64"):
        return f"a bias of {bias.dtype}"
    return _reason_of_shapes(graph, node) or _reason_of_scales(node)


def has_one_scale(tensor: Tensor) -> bool:
    """Whether a tensor's codes stand for numbers by one scale and one zero point of its type."""
    quantization = tensor.quantization
    return quantization is not None and len(quantization.scale) == 1 and _is_sound(tensor)


def _is_sound(tensor: Tensor) -> bool:
    quantization = tensor.quantization
    if quantization is None or len(quantization.scale) != len(quantization.zero_point):
        return False
    limits = np.iinfo(tensor.dtype)
    zeros_fit = all(limits.min <= zero <= limits.max for zero in quantization.zero_point)
    return zeros_fit and all(0 < scale < _MOST_SCALE for scale in quantization.scale)


def _reason_of_scales(node: Node) -> str | None:
    (source, weights), result = source_and_weights(node), node.outputs[0]
    for tensor in (source, result):
        if not has_one_scale(tensor):
            return f"{tensor.name!r} has not one scale and zero point of its type"
    scales = weights.quantization.scale if weights.quantization else ()
    if len(scales) not in (1, result.shape[3]) or not _is_sound(weights):
        return f"{len(scales)} scales and their zero points for {result.shape[3]} channels"
    return None


def _reason_of_shapes(graph: Graph, node: Node) -> str | None:
    (source, weights), result = source_and_weights(node), node.outputs[0]
    for tensor in (source, weights, result):
        if len(tensor.shape) != 4 or min(tensor.shape) < 1:
            return f"{tensor.name!r} has the shape {list(tensor.shape)}, which is not known"
    for tensor in (source, result):
        if not has_fixed_picture(graph, tensor):
            return f"{tensor.name!r} has a height, a width or channels that may change"
    out_c = result.shape[3]
    depthwise = node.op == "DEPTHWISE_CONV_2D"
    in_c = source.shape[3]
    if depthwise and (weights.shape[0] != 1 or weights.shape[3] != out_c or out_c % in_c):
        return f"{in_c} channels in, {out_c} out and weights {list(weights.shape)}"
    if not depthwise and (weights.shape[0] != out_c or in_c % weights.shape[3]):
        return f"{in_c} channels in, {out_c} out and weights {list(weights.shape)}"
    if not depthwise and out_c % (in_c // weights.shape[3]):
        return f"{in_c // weights.shape[3]} groups do not divide {out_c} channels"
    if out_c * in_c * weights.shape[1] * weights.shape[2] > MOST_WEIGHTS:
        return f"dense weights would have more than {MOST_WEIGHTS} elements"
    bias = node.inputs[2] if len(node.inputs) == 3 else None
    if bias is not None and bias.shape != (out_c,):
        return f"a bias of the shape {list(bias.shape)} for {out_c} channels"
    try:
        axes(node)
    except ValueError as error:
        return str(error)
    return None


def has_fixed_picture(graph: Graph, tensor: Tensor) -> bool:
    """Whether the height, width and channels of an NHWC tensor are the same in every run."""
    if tensor.shape_signature:
        return min(tensor.shape_signature[1:], default=1) > 0
    # Without a signature of its own, a tensor has what follows from the graph's inputs.
    return all(min(each.shape_signature[1:], default=1) > 0 for each in graph.inputs)


def same_quanta(one: Tensor, other: Tensor) -> bool:
    """Whether equal codes of two tensors stand for equal numbers."""
    if one.dtype != other.dtype or (one.quantization is None) != (other.quantization is None):
        return False
    ours, theirs = one.quantization, other.quantization
    if ours is None or theirs is None:
        return True
    return (ours.scale, ours.zero_point) == (theirs.scale, theirs.zero_point)


def reason_against_zeros(node: Node) -> str | None:
    """Return why zeros in the picture may not be left out of a convolution's sums; None: they may.

    Quantised zeros add nothing. Of floats 0.0 times a weight that is infinite adds NaN, and hybrid
    convolutions quantise what they read.
    """
    source, weights = source_and_weights(node)
    if source.dtype in ("uint8", "int8", "int16"):
        return None
    if source.dtype != "float32" or weights.dtype != "float32":
        return f"{source.dtype} activations and {weights.dtype} weights"
    if weights.data is None or not np.isfinite(weights.data).all():
        return "float32 weights that are not known to be finite"
    return None


def axes(node: Node) -> tuple[Axis, Axis]:
    """Return how a convolution's window slides along the height and along the width.

    Raises:
        ValueError: a rank, a stride, a dilation, a padding or sizes that TFLite refuses.
    Source: tflite/kernels/padding.h ComputePaddingHeightWidth
    """
    (source, weights), result = source_and_weights(node), node.outputs[0]
    if any(len(each.shape) != 4 or min(each.shape) < 1 for each in (source, weights, result)):
        raise ValueError("tensors that are no pictures of a known size")
    found = []
    for dimension, letter in ((1, "h"), (2, "w")):
        stride = node.options.get(f"stride_{letter}", 1)
        dilation = node.options.get(f"dilation_{letter}_factor", 1)
        if min(stride, dilation) < 1:
            raise ValueError(f"stride {stride}, dilation {dilation}")
        size, out = source.shape[dimension], result.shape[dimension]
        axis = Axis(size, out, weights.shape[dimension], stride, dilation, 0)
        if node.options.get("padding") == "SAME":
            expected = -(-size // stride)
            before = max(0, (expected - 1) * stride + axis.extent - size) // 2
        elif node.options.get("padding") == "VALID":
            expected, before = (size + stride - axis.extent) // stride, 0
        else:
            raise ValueError(f"padding {node.options.get('padding')}")
        if out != expected:
            raise ValueError(f"an output of {out} pixels where the window gives {expected}")
        found.append(replace(axis, before=before))
    return found[0], found[1]


def dense_weights(node: Node) -> Weights:
    """Return the weights of any convolution as a CONV_2D without groups has them.

    A channel's weights for the channels it does not read are the zero point, which adds nothing.

    Shapes:
        depthwise (1, kh, kw, i * m) or grouped (o, kh, kw, i / groups) -> (o, kh, kw, i)
    """
    source, weights = source_and_weights(node)
    values = np.asarray(weights.data)
    in_c = source.shape[3]
    if node.op == "DEPTHWISE_CONV_2D":
        values = np.moveaxis(values, 3, 0)[:, 0, :, :, None]  # (o, kh, kw, 1)
    out_c, height, width, own = values.shape
    if own == in_c:
        return np.ascontiguousarray(values)
    dense = np.full((out_c, height, width, in_c), weight_zero(weights), values.dtype)
    for channel in range(out_c):
        first = channel // (out_c // (in_c // own)) * own
        dense[channel, :, :, first : first + own] = values[channel]
    return dense


def weight_zero(weights: Tensor) -> int:
    """Return the code of the weight 0; TFLite takes 0 in int8 weights, whatever the file says."""
    quantization = weights.quantization
    if weights.dtype == "int8" or quantization is None:
        return 0
    return quantization.zero_point[0]


def dense_tensor(node: Node, name: str, values: Weights) -> Tensor:
    """Return new weights of a convolution, whose output channels now come first."""
    weights = source_and_weights(node)[1]
    scales = weights.quantization
    assert scales is not None
    made = replace(scales, axis=0)
    return new_tensor(f"{weights.name}/{name}", values.shape, weights.dtype, made, values)


def conv_2d(node: Node, source: Tensor, weights: Tensor, **options: Any) -> Node:
    """Return a convolution as a CONV_2D of another input, weights and options, to the same output.

    TFLite's CONV_2D wants a bias, which a DEPTHWISE_CONV_2D may go without: it gets zeros.
    """
    bias = node.inputs[2] if len(node.inputs) == 3 else None
    kept = {name: node.options[name] for name in _OPTIONS if name in node.options}
    # Source: tflite/tools/versioning/op_version.cc
    version = {"int8": 3, "int16": 4}.get(source.dtype, 1)
    return replace(
        node,
        op="CONV_2D",
        version=node.version if node.op == "CONV_2D" else version,
        inputs=(source, weights, _zeros(node, source, weights) if bias is None else bias),
        options={**kept, **options},
    )


def _zeros(node: Node, source: Tensor, weights: Tensor) -> Tensor:
    assert source.quantization is not None
    assert weights.quantization is not None
    scale = np.float32(source.quantization.scale[0]) * np.array(
        weights.quantization.scale, np.float32
    )
    zeros = np.zeros(weights.shape[0], np.int64 if source.dtype == "int16" else np.int32)
    return new_tensor(
        f"{node.outputs[0].name}/bias",
        zeros.shape,
        zeros.dtype.name,
        Quantization(tuple(scale.tolist()), (0,) * len(scale)),
        zeros,
    )

# SPDX-License-Identifier: Apache-2.0
"""TFLite's 8-bit arithmetic in numpy: the reference on systems without TFLite.

Bit-exact with ai-edge-litert's reference kernels. Imports from `delegate` only the fixed-point
rules and the functions that fold shapes and indices, so that the two cannot
diverge. Products are summed in doubles, which represent these integers exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Node, Tensor, fixed_point, integers
from tflite_opencl.interpreters.numpy_softmax import softmax

Array = NDArray[Any]
Doubles = NDArray[np.float64]
_EIGHT_BITS = ("uint8", "int8")
_LEFT_SHIFT = 20  # of ADD's operands. Source: tflite/kernels/add.cc


class NoNumpyForm(RuntimeError):
    """A node that is not implemented here; the text names it."""


def compute(node: Node, inputs: Sequence[Array | None]) -> Array:
    """Return the single output of a node.

    `inputs`: each in its shape; None: the node omits it.
    Raises: NoNumpyForm: as `require`.
    """
    require(node)
    return (_of_indices if integers.is_known(node) else _FORMS[node.op].compute)(node, inputs)


def require(node: Node) -> None:
    """Check that a node is implemented here. Raises: NoNumpyForm: it is not."""
    if integers.is_known(node):
        return
    form = _FORMS.get(node.op)
    if form is None or len(node.outputs) != 1:
        raise NoNumpyForm(f"node {node.index} ({node.op}): numpy's reference has no such op")
    values = [*node.inputs[: form.operands], *node.outputs]
    for tensor in values:
        if tensor is None or tensor.dtype not in _EIGHT_BITS or not tensor.quantization:
            kind = "none" if tensor is None else tensor.dtype
            words = f"{kind}, and numpy's reference knows quantised uint8 and int8"
            raise NoNumpyForm(f"node {node.index} ({node.op}): {words}")
    if not form.rescales and len({_scale_and_zero(tensor) for tensor in values}) > 1:
        raise NoNumpyForm(f"node {node.index} ({node.op}): the scale or zero point changes")
    if node.options.get("fused_activation_function", "NONE") not in integers.FUSED_BOUNDS:
        raise NoNumpyForm(f"node {node.index} ({node.op}): an activation that is no clamp")
    if node.options.get("weights_format", "DEFAULT") != "DEFAULT":
        raise NoNumpyForm(f"node {node.index} ({node.op}): shuffled weights")


def _of_indices(node: Node, inputs: Sequence[Array | None]) -> Array:
    """Compute shapes or indices. Raises: NoNumpyForm: TFLite fails, or its result is unknown."""
    given = tuple(t and replace(t, data=v) for t, v in zip(node.inputs, inputs, strict=True))
    values = integers.computed(replace(node, inputs=given), [v for v in inputs if v is not None])
    if values is None:
        raise NoNumpyForm(f"node {node.index} ({node.op}): numpy's reference has no such form")
    return values


def _scale_and_zero(tensor: Tensor | None) -> tuple[float, int]:
    assert tensor is not None
    assert tensor.quantization is not None
    return tensor.quantization.scale[0], tensor.quantization.zero_point[0]


def _real(tensor: Tensor | None, values: Array | None) -> Doubles:
    """Return values minus their zero point."""
    assert values is not None
    return values.astype(np.float64) - _scale_and_zero(tensor)[1]


def _operands(node: Node, inputs: Sequence[Array | None]) -> tuple[Doubles, Doubles]:
    """Return a product's values and weights; convolutions ignore the zero point of int8's."""
    source, weights = node.inputs[:2]
    if node.op != "FULLY_CONNECTED" and weights is not None and weights.dtype == "int8":
        return _real(source, inputs[0]), np.asarray(inputs[1], np.float64)
    return _real(source, inputs[0]), _real(weights, inputs[1])


def _clamped(node: Node, values: Array) -> Array:
    """Return values within the range of the output's type and of the node's activation.

    Source: tflite/kernels/kernel_util.cc CalculateActivationRangeQuantized
    """
    (result,) = node.outputs
    limits, (scale, zero) = np.iinfo(result.dtype), _scale_and_zero(result)
    ends = [int(limits.min), int(limits.max)]
    fused = integers.FUSED_BOUNDS[node.options.get("fused_activation_function", "NONE")]
    for place, real in enumerate(fused):
        if real is not None:
            bound = zero + int(_rounded(np.float32(real) / np.float32(scale)))
            ends[place] = min(max(bound, int(limits.min)), int(limits.max))
    least, most = ends
    return np.clip(values, least, most).astype(result.dtype).reshape(result.shape)


def _rounded(values: Any) -> Any:
    """Return the nearest integers, ties away from zero."""
    return np.sign(values) * np.floor(np.abs(values) + 0.5)


def _requantised(node: Node, sums: Array) -> Array:
    """Scale the int32 sums of a convolution to the output.

    Shapes: (..., channels)
    Source: tflite/kernels/kernel_util.cc PopulateConvolutionQuantizationParams (int8: a double
    product a channel), GetQuantizedConvolutionMultipler (uint8: a float product)
    """
    source, weights = node.inputs[:2]
    assert weights is not None
    assert weights.quantization is not None
    (result,) = node.outputs
    (in_scale, _), (out_scale, zero) = _scale_and_zero(source), _scale_and_zero(result)
    scaled = np.empty(sums.shape, np.int64)
    scales = weights.quantization.scale
    for channel in range(sums.shape[-1]):
        scale = scales[channel if len(scales) > 1 else 0]
        product = in_scale * scale
        if result.dtype == "uint8":
            product = float(np.float32(in_scale) * np.float32(scale))
        pair = fixed_point.quantize_multiplier(product / out_scale)
        own = sums[..., channel].astype(np.int64)
        scaled[..., channel] = fixed_point.multiply_by_quantized_multiplier(own, *pair)
    return _clamped(node, scaled + zero)


def _taps(node: Node, values: Doubles, size: tuple[int, int], fill: float) -> list[Doubles]:
    """Return the input value at each position of a window, row by row; out of bounds: `fill`.

    Shapes: (n, h, w, c) -> (n, oh, ow, c) for each position in the window
    Source: tflite/kernels/padding.h ComputePaddingWithOffset
    """
    options, (_, out_h, out_w, _) = node.options, node.outputs[0].shape
    spans, pads = [], [(0, 0)]
    for axis, (out, taps, letter) in enumerate(
        zip((out_h, out_w), size, ("h", "w"), strict=True), start=1
    ):
        stride, apart = options[f"stride_{letter}"], options.get(f"dilation_{letter}_factor", 1)
        needed = (out - 1) * stride + (taps - 1) * apart + 1
        total = max(needed - values.shape[axis], 0) if options["padding"] == "SAME" else 0
        pads.append((total // 2, max(needed - values.shape[axis] - total // 2, 0)))
        spans.append(
            [slice(at * apart, at * apart + (out - 1) * stride + 1, stride) for at in range(taps)]
        )
    padded = np.pad(values, [*pads, (0, 0)], constant_values=fill)
    return [padded[:, rows, columns] for rows in spans[0] for columns in spans[1]]


def _bias(inputs: Sequence[Array | None]) -> Array | float:
    bias = inputs[2] if len(inputs) > 2 else None
    return 0.0 if bias is None else bias.astype(np.float64)


def _conv_2d(node: Node, inputs: Sequence[Array | None]) -> Array:
    """Source: tflite/kernels/internal/reference/conv.h, integer_ops/conv.h."""
    values, weights = _operands(node, inputs)
    out_c, high, wide, in_c = weights.shape
    if values.shape[3] != in_c:
        raise NoNumpyForm(f"node {node.index} ({node.op}): groups of channels")
    by_tap = weights.reshape(out_c, high * wide, in_c)
    taps = _taps(node, values, (high, wide), 0.0)
    sums = sum(taken @ by_tap[:, at].T for at, taken in enumerate(taps))
    return _requantised(node, sums + _bias(inputs))


def _depthwise(node: Node, inputs: Sequence[Array | None]) -> Array:
    """Source: tflite/kernels/internal/reference/depthwiseconv_uint8.h, integer_ops."""
    values, weights = _operands(node, inputs)
    _, high, wide, out_c = weights.shape
    taps = _taps(node, values, (high, wide), 0.0)
    by_tap, each = weights.reshape(-1, out_c), out_c // values.shape[3]
    sums = sum(np.repeat(taken, each, axis=3) * by_tap[at] for at, taken in enumerate(taps))
    return _requantised(node, sums + _bias(inputs))


def _fully_connected(node: Node, inputs: Sequence[Array | None]) -> Array:
    """Source: tflite/kernels/internal/reference/integer_ops/fully_connected.h, a double product."""
    values, weights = _operands(node, inputs)
    sums = values.reshape(-1, weights.shape[1]) @ weights.T + _bias(inputs)
    (result,), matrix = node.outputs, node.inputs[1]
    assert matrix is not None
    assert matrix.quantization is not None
    (in_scale, _), (out_scale, zero) = map(_scale_and_zero, (node.inputs[0], result))
    reals = np.array([in_scale * scale / out_scale for scale in matrix.quantization.scale])
    return _clamped(node, _rounded(sums * reals) + zero)


def _average_pool(node: Node, inputs: Sequence[Array | None]) -> Array:
    """Source: tflite/kernels/internal/reference/pooling.h, integer_ops/pooling.h."""
    (values,) = inputs
    assert values is not None
    size = node.options["filter_height"], node.options["filter_width"]
    sums = sum(_taps(node, values.astype(np.float64), size, 0.0))
    counts = sum(_taps(node, np.ones(values.shape), size, 0.0))
    return _clamped(node, _rounded(sums / counts))


def _max_pool(node: Node, inputs: Sequence[Array | None]) -> Array:
    """Source: tflite/kernels/internal/reference/pooling.h, integer_ops/pooling.h."""
    (values,) = inputs
    assert values is not None
    size = node.options["filter_height"], node.options["filter_width"]
    taps = _taps(node, values.astype(np.float64), size, -math.inf)
    return _clamped(node, np.maximum.reduce(taps))


def _add(node: Node, inputs: Sequence[Array | None]) -> Array:
    """Source: tflite/kernels/add.cc PrepareGeneralQuantized, internal/reference/add.h."""
    scales = [_scale_and_zero(tensor)[0] for tensor in node.inputs]
    out_scale, zero = _scale_and_zero(node.outputs[0])
    twice = 2 * max(scales)
    terms = []
    for tensor, values, scale in zip(node.inputs, inputs, scales, strict=True):
        lifted = _real(tensor, values).astype(np.int64) << _LEFT_SHIFT
        pair = fixed_point.quantize_multiplier(scale / twice)
        terms.append(fixed_point.multiply_by_quantized_multiplier(lifted, *pair))
    pair = fixed_point.quantize_multiplier(twice / ((1 << _LEFT_SHIFT) * out_scale))
    total = fixed_point.multiply_by_quantized_multiplier(terms[0] + terms[1], *pair)
    return _clamped(node, total + zero)


def _concatenation(node: Node, inputs: Sequence[Array | None]) -> Array:
    return np.concatenate([each for each in inputs if each is not None], node.options["axis"])


def _pad(node: Node, inputs: Sequence[Array | None]) -> Array:
    """Source: tflite/kernels/pad.cc: pads with the zero point."""
    values, sizes = inputs
    assert values is not None
    assert sizes is not None
    zero = _scale_and_zero(node.outputs[0])[1]
    return np.pad(values, [*map(tuple, sizes.tolist())], constant_values=zero)


def _reshape(node: Node, inputs: Sequence[Array | None]) -> Array:
    return np.asarray(inputs[0]).reshape(node.outputs[0].shape)


def _softmax(node: Node, inputs: Sequence[Array | None]) -> Array:
    (values,), (result,) = inputs, node.outputs
    assert values is not None
    least = int(np.iinfo(result.dtype).min)
    if _scale_and_zero(result) != (2.0**-8, least):
        raise NoNumpyForm(f"node {node.index} ({node.op}): of another output than TFLite's")
    quanta = softmax(values, node.options["beta"] * _scale_and_zero(node.inputs[0])[0])
    return _clamped(node, quanta + least)


class _NumpyForm(NamedTuple):
    compute: Callable[[Node, Sequence[Array | None]], Array]
    operands: int | None  # the number of inputs that are quantised; None: all
    rescales: bool  # TFLite's kernel takes operands of another scale than its output


_FORMS: Mapping[str, _NumpyForm] = {
    "ADD": _NumpyForm(_add, None, rescales=True),
    "AVERAGE_POOL_2D": _NumpyForm(_average_pool, 1, rescales=False),
    "CONCATENATION": _NumpyForm(_concatenation, None, rescales=False),
    "CONV_2D": _NumpyForm(_conv_2d, 2, rescales=True),
    "DEPTHWISE_CONV_2D": _NumpyForm(_depthwise, 2, rescales=True),
    "FULLY_CONNECTED": _NumpyForm(_fully_connected, 2, rescales=True),
    "MAX_POOL_2D": _NumpyForm(_max_pool, 1, rescales=False),
    "PAD": _NumpyForm(_pad, 1, rescales=False),
    "RESHAPE": _NumpyForm(_reshape, 1, rescales=False),
    "SOFTMAX": _NumpyForm(_softmax, 1, rescales=True),
}

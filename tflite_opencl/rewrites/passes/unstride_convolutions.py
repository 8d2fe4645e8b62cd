# SPDX-License-Identifier: Apache-2.0
"""A strided convolution becomes SPACE_TO_DEPTH and a CONV_2D of stride 1.

    x (n, h, w, c) -CONV_2D or DEPTHWISE_CONV_2D, stride s-> y
    becomes
    x -PAD-> (n, h', w', c) -SPACE_TO_DEPTH, s-> (n, h'/s, w'/s, s * s * c) -CONV_2D-> y

The pixels of a block of s x s become channels. The weight of the window's pixel s * q + r becomes
the weight of pixel r in block q; the other new weights are the zero point,
which adds nothing, so the pass is exact. Depthwise and grouped weights become dense, because a
block's pixels are channels read by the same output channel.

The new convolution pads SAME if that matches the old padding. Otherwise, and if the size is
not a multiple of s, PAD adds the zero point around the picture, and the convolution is VALID.

For targets without strides: etnaviv's NPU uses this form (Mesa, etnaviv_ml_nn.c,
`strided_to_normal`). It costs weights and multiply-adds for pixels outside the old window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.changes import Change, NoMatch, Notes, changed, new_tensor
from tflite_opencl.rewrites.passes.convolutions import (
    MOST_WEIGHTS,
    Conv2D,
    SpatialAxis,
    Weights,
    convolution_of,
)

# The op versions that introduced int8. Source: tflite/tools/versioning/op_version.cc
_VERSIONS = {"int8": 2, "uint8": 1}


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The movement of a window of blocks along one axis."""

    kernel: int  # in blocks
    first: int  # offset of the old window in the new one, in pixels
    before: int  # pixels that PAD adds
    after: int


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph without strided quantised convolutions; the same object if it has none."""
    # Shared by convolutions with the same input: (tensor, stride, pads) -> its blocks.
    made: dict[tuple[object, ...], Tensor] = {}

    def change(node: Node) -> Change | None:
        conv = convolution_of(node)
        if conv is None or _strides(conv) == (1, 1):
            return None
        conv.require_treatable(graph)
        _require_unstridable(conv)
        return Change("CONV_2D of stride 1", {node: _unstrided(conv, made)})

    return changed(graph, notes, change)


def _strides(conv: Conv2D) -> tuple[int, int]:
    return conv.node.options.get("stride_h", 1), conv.node.options.get("stride_w", 1)


def _require_unstridable(conv: Conv2D) -> None:
    """Require that the strides of a rewritable convolution can be removed."""
    if conv.source.dtype == "int16":
        raise NoMatch("int16: the reference kernels have no SPACE_TO_DEPTH of int16")
    height, width = _strides(conv)
    if height != width:
        raise NoMatch(f"strides {height}x{width}: SPACE_TO_DEPTH has one size for both")
    blocks = [_padded(axis) for axis in conv.axes()]
    area = blocks[0].kernel * blocks[1].kernel * height * width
    if conv.out_c * conv.in_c * area > MOST_WEIGHTS:
        raise NoMatch(f"the weights would have more than {MOST_WEIGHTS} elements")


def _unstrided(conv: Conv2D, made: dict[tuple[object, ...], Tensor]) -> list[Node]:
    """Return the replacement nodes of a strided convolution."""
    padding, blocks = _windows(conv.axes())
    stride = _strides(conv)[0]
    pads = tuple((each.before, each.after) for each in blocks)
    steps: list[Node] = []
    key = (conv.source, stride, pads)
    if key not in made:
        made[key] = _to_depth(conv, stride, pads, steps)
    packed = conv.dense_tensor("blocks", _block_weights(conv, blocks))
    ones = ("stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor")
    options = {"padding": padding, **dict.fromkeys(ones, 1)}
    return [*steps, conv.as_conv_2d(made[key], packed, **options)]


def _windows(both: Sequence[SpatialAxis]) -> tuple[str, list[_Blocks]]:
    """Return the padding of the new convolution, and its windows along height and width."""
    padded = [_padded(axis) for axis in both]
    if not any(each.before or each.after for each in padded):
        return "VALID", padded
    same = [window for axis in both if (window := _same(axis)) is not None]
    return ("SAME", same) if len(same) == len(padded) else ("VALID", padded)


def _to_depth(
    conv: Conv2D, stride: int, pads: tuple[tuple[int, int], ...], steps: list[Node]
) -> Tensor:
    """Append a PAD, if needed, and a SPACE_TO_DEPTH; return the result."""
    source, name = conv.source, conv.result.name
    batch, height, width, channels = source.shape
    version = _VERSIONS[source.dtype]
    if np.any(pads):
        height, width = height + sum(pads[0]), width + sum(pads[1])
        amounts = np.array([(0, 0), *pads, (0, 0)], np.int32)
        amounts_tensor = new_tensor(f"{name}/pad_amounts", (4, 2), "int32", data=amounts)
        padded = _like(source, f"{name}/pad", (batch, height, width, channels))
        steps.append(Node(-1, "PAD", version, (source, amounts_tensor), (padded,)))
        source = padded
    shape = (batch, height // stride, width // stride, stride * stride * channels)
    blocks = _like(source, f"{name}/space_to_depth", shape)
    options = {"block_size": stride}
    steps.append(Node(-1, "SPACE_TO_DEPTH", version, (source,), (blocks,), options))
    return blocks


def _like(source: Tensor, name: str, shape: tuple[int, ...]) -> Tensor:
    """Return a computed tensor with the same quantisation and kind of batch."""
    signature = (-1, *shape[1:]) if source.shape_signature[:1] == (-1,) else ()
    return new_tensor(name, shape, source.dtype, source.quantization, None, signature)


def _same(axis: SpatialAxis) -> _Blocks | None:
    """Return the window whose SAME padding matches the old one; None if there is none."""
    stride = axis.stride
    if axis.size % stride or axis.out != axis.size // stride:
        return None
    least = -(-axis.extent // stride)
    for kernel in (least, least + 1, least + 2):
        # SAME adds that many blocks before the picture, which are padding completely.
        first = (kernel - 1) // 2 * stride - axis.before
        if 0 <= first <= kernel * stride - axis.extent:
            return _Blocks(kernel, first, 0, 0)
    return None


def _padded(axis: SpatialAxis) -> _Blocks:
    """Return the window that begins at the start of the padded picture."""
    stride = axis.stride
    kernel = -(-axis.extent // stride)
    blocks = -(-(axis.size + axis.before) // stride)
    # Pixels outside the old window widen the new one, with zero weights.
    kernel = max(kernel, blocks - axis.out + 1)
    after = (axis.out + kernel - 1) * stride - axis.size - axis.before
    return _Blocks(kernel, 0, axis.before, after)


def _block_weights(conv: Conv2D, blocks: Sequence[_Blocks]) -> Weights:
    """Return dense weights for blocks of pixels.

    Shapes:
        (o, kh, kw, c) -> (o, blocks high, blocks wide, s * s * c)
    """
    dense = conv.dense_weights()
    stride = _strides(conv)[0]
    (rows, columns) = (
        each.first + np.arange(axis.kernel) * axis.dilation
        for each, axis in zip(blocks, conv.axes(), strict=True)
    )
    out_c, _, _, in_c = dense.shape
    high, wide = (each.kernel for each in blocks)
    pixels = np.full((out_c, high * stride, wide * stride, in_c), conv.weight_zero, dense.dtype)
    pixels[:, rows[:, None], columns] = dense
    split = pixels.reshape(out_c, high, stride, wide, stride, in_c)
    packed = split.transpose(0, 1, 3, 2, 4, 5).reshape(out_c, high, wide, stride * stride * in_c)
    return np.ascontiguousarray(packed)

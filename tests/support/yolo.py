# SPDX-License-Identifier: Apache-2.0
"""YOLO v8n and v11n as exported to int8, with their heads and random weights.

Sources: ultralytics/ultralytics, cfg/models/v8/yolov8.yaml and 11/yolo11.yaml, nn/modules/block.py
and head.py; nodes as onnx2tf writes them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.network import Network
from delegate.inspect import Graph, Tensor
from tflite_opencl.models.build import constant, node, numbers, tensor

_CLASSES, _BINS = 80, 16  # of COCO; of the distribution of a side's distance
_PROBABILITIES = (1 / 256, -128)  # scale and zero point


def yolo(version: int, side: int = 640) -> Graph:
    """Return version 8 or 11: picture (1, side, side, 3) -> (1, 4 + classes, boxes), float32."""
    layers = _Layers(version)
    picture = tensor((1, side, side, 3), limits=(0.0, 1.0))
    x = layers.add("QUANTIZE", [picture], tensor(picture.shape, "int8", 1 / 255, -128))
    x = layers.conv(layers.conv(x, 16, 3, 2), 32, 3, 2)
    wide = 1 if version == 8 else 2
    x = layers.block(x, 32 * wide, 1, is_early=True)
    eighth = x = layers.block(layers.conv(x, 64, 3, 2), 64 * wide, 3 - wide, is_early=True)
    sixteenth = x = layers.block(layers.conv(x, 128, 3, 2), 128, 3 - wide, is_deep=True)
    x = layers.block(layers.conv(x, 256, 3, 2), 256, 1, is_deep=True)
    last = layers.pyramid(x, 256)
    if version == 11:
        last = layers.attention(last, 256)
    middle = layers.block(layers.joined([layers.larger(last), sixteenth]), 128, 1, is_head=True)
    fine = layers.block(layers.joined([layers.larger(middle), eighth]), 64, 1, is_head=True)
    x = layers.joined([layers.conv(fine, 64, 3, 2), middle])
    middle = layers.block(x, 128, 1, is_head=True)
    x = layers.joined([layers.conv(middle, 128, 3, 2), last])
    coarse = layers.block(x, 256, 1, is_head=True, is_deep=True)
    layers.boxes([fine, middle, coarse], side)
    return layers.graph(f"yolo{version}n_{side} int8")


class _Layers(Network):
    """A network whose convolutions end in SiLU; all linear tensors have one scale."""

    def __init__(self, version: int) -> None:
        super().__init__("int8")
        self._version = version

    def like(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return replace(x, shape=shape)

    def conv(self, x: Tensor, out_c: int, side: int = 1, stride: int = 1, **more: Any) -> Tensor:
        """Add a convolution and SiLU; with stride 2 all sides are padded by one pixel."""
        is_linear = more.pop("is_linear", False)
        if stride == 2:
            _, height, width, depth = x.shape
            lines = numbers([[0, 0], [1, 1], [1, 1], [0, 0]])
            x = self.add("PAD", [x, lines], self.like(x, (1, height + 2, width + 2, depth)))
        result = self.convolution(x, out_c, side, stride, activation="NONE", holds="linear", **more)
        if stride == 2:  # VALID, because a PAD precedes it
            shape = (1, height // 2, width // 2, out_c)
            last = self.nodes.pop()
            result = self.add(
                last.op, [each for each in last.inputs if each], self.like(result, shape),
                **{**last.options, "padding": "VALID"},
            )  # fmt: skip
        if is_linear:
            return result
        share = self.add("LOGISTIC", [result], tensor(result.shape, "int8", *_PROBABILITIES))
        return self.pair("MUL", result, share, result)

    def pair(self, op: str, x: Tensor, y: Tensor, like: Tensor) -> Tensor:
        shape = np.broadcast_shapes(x.shape, y.shape)
        return self.add(op, [x, y], self.like(like, shape), fused_activation_function="NONE")

    def larger(self, x: Tensor) -> Tensor:
        _, height, width, depth = x.shape
        result = self.like(x, (1, 2 * height, 2 * width, depth))
        size = numbers([2 * height, 2 * width])
        return self.add("RESIZE_NEAREST_NEIGHBOR", [x, size], result, half_pixel_centers=True)

    def residual(self, x: Tensor, inner: int, is_added: bool = True) -> Tensor:
        result = self.conv(self.conv(x, inner, 3), x.shape[3], 3)
        return self.pair("ADD", x, result, x) if is_added else result

    def block(
        self,
        x: Tensor,
        out_c: int,
        count: int,
        is_early: bool = False,
        is_head: bool = False,
        is_deep: bool = False,
    ) -> Tensor:
        """Add a C2f of version 8, or a C3k2 of version 11."""
        is_newer = self._version == 11
        width = out_c // 4 if is_newer and is_early else out_c // 2
        parts = self.halves(self.conv(x, 2 * width))
        for _ in range(count):
            if is_newer and is_deep:
                parts.append(self.three(parts[-1], width))
            else:
                inner = width // 2 if is_newer else width
                parts.append(self.residual(parts[-1], inner, is_newer or not is_head))
        return self.conv(self.joined(parts), out_c)

    def three(self, x: Tensor, width: int) -> Tensor:
        """Add a C3k: two residuals beside a convolution."""
        left = self.conv(x, width // 2)
        for _ in range(2):
            left = self.residual(left, width // 2)
        return self.conv(self.joined([left, self.conv(x, width // 2)]), width)

    def pyramid(self, x: Tensor, out_c: int) -> Tensor:
        """Add an SPPF: a chain of three poolings, concatenated."""
        parts = [self.conv(x, out_c // 2)]
        for _ in range(3):
            parts.append(self.pool("MAX_POOL_2D", parts[-1], 5, 1, "SAME"))
        return self.conv(self.joined(parts), out_c)

    def turned(self, x: Tensor, *order: int) -> Tensor:
        result = self.like(x, tuple(x.shape[axis] for axis in order))
        return self.add("TRANSPOSE", [x, numbers(order)], result)

    def slices(self, x: Tensor, sizes: list[int]) -> list[Tensor]:
        """Add a SPLIT_V of the last dimension."""
        parts = [self.like(x, (*x.shape[:-1], size)) for size in sizes]
        inputs = [x, numbers(sizes), numbers(len(x.shape) - 1)]
        self.nodes.append(node("SPLIT_V", inputs, parts, {"num_splits": len(sizes)}))
        return parts

    def attention(self, x: Tensor, out_c: int) -> Tensor:
        """Add a C2PSA of one unit: attention between the places of half the channels."""
        left, y = self.halves(self.conv(x, out_c))
        width, (_, height, breadth, _) = out_c // 2, x.shape
        heads, places, key = width // 64, height * breadth, 32
        each = self.conv(y, width + 2 * heads * key, is_linear=True)
        apart = self.reshaped(each, (1, places, heads, 2 * key + 64))
        query, keys, values = self.slices(self.turned(apart, 0, 2, 1, 3), [key, key, 64])
        scores = self.like(x, (1, heads, places, places))
        scores = self.add("BATCH_MATMUL", [query, keys], scores, adj_x=False, adj_y=True)
        scaled = self.pair("MUL", scores, constant(np.int8([127]), key**-0.5 / 127), x)
        result = self.add(
            "BATCH_MATMUL", [self.softmax(scaled), values], self.like(x, values.shape)
        )
        shape = (1, height, breadth, width)
        result = self.reshaped(self.turned(result, 0, 2, 1, 3), shape)
        beside = self.reshaped(self.turned(values, 0, 2, 1, 3), shape)
        beside = self.conv(beside, width, 3, is_depthwise=True, is_linear=True)
        result = self.conv(self.pair("ADD", result, beside, x), width, is_linear=True)
        y = self.pair("ADD", y, result, x)
        wide = self.conv(self.conv(y, 2 * width), width, is_linear=True)
        return self.conv(self.joined([left, self.pair("ADD", y, wide, x)]), out_c)

    def boxes(self, maps: list[Tensor], side: int) -> None:
        """Add the head: distances are expectations over bins, class scores are LOGISTIC."""
        outputs = []
        for x in maps:
            near = self.conv(self.conv(x, 64, 3), 64, 3)
            own = self.conv(near, 4 * _BINS, is_linear=True)
            far = x
            for _ in range(2):
                if self._version == 11:
                    far = self.conv(self.conv(far, far.shape[3], 3, is_depthwise=True), _CLASSES)
                else:
                    far = self.conv(far, _CLASSES, 3)
            far = self.conv(far, _CLASSES, is_linear=True)
            places = x.shape[1] * x.shape[2]
            shape = (1, places, 4 * _BINS + _CLASSES)
            outputs.append(self.reshaped(self.joined([own, far]), shape))
        bins, classes = self.slices(self.joined(outputs, 1), [4 * _BINS, _CLASSES])
        count = bins.shape[1]
        shares = self.softmax(self.reshaped(bins, (1, count, 4, _BINS)))
        weights = constant(np.arange(_BINS, dtype=np.int8).reshape(1, 1, 1, _BINS), [1.0], axis=0)
        bias = constant(np.zeros(1, np.int32), [1 / 256], axis=0)
        ambiguities = tensor((1, count, 4, 1), "int8", 0.06, -128)
        options = {"padding": "VALID", "stride_w": 1, "stride_h": 1}
        ambiguities = self.add("CONV_2D", [shares, weights, bias], ambiguities, **options)
        before, after = self.slices(self.reshaped(ambiguities, (1, count, 4)), [2, 2])
        spots, strides = _grid([x.shape[1] for x in maps], side)
        like = tensor((), "int8", side / 8 / 127 * 1.5, 0)
        ends = [self.pair("SUB", spots, before, like), self.pair("ADD", spots, after, like)]
        half = constant(np.int8([127]), 0.5 / 127)
        middle = self.pair("MUL", self.pair("ADD", ends[0], ends[1], like), half, like)
        sizes = self.pair("SUB", ends[1], ends[0], like)
        of_picture = tensor((), "int8", 1.5 / 127, 0)
        boxes = self.pair("MUL", self.joined([middle, sizes], 2), strides, of_picture)
        likely = self.add("LOGISTIC", [classes], tensor(classes.shape, "int8", *_PROBABILITIES))
        again = self.add("QUANTIZE", [likely], self.like(of_picture, likely.shape))
        whole = self.turned(self.joined([boxes, again], 2), 0, 2, 1)
        self.add("DEQUANTIZE", [whole], tensor(whole.shape))


def _grid(sides: list[int], side: int) -> tuple[Tensor, Tensor]:
    """Return the centres of all cells, in cells, and the size of a cell, of 1."""
    middles, strides = [], []
    for count in sides:
        y, x = np.meshgrid(*[np.arange(count) + 0.5] * 2, indexing="ij")
        middles.append(np.stack([x, y], -1).reshape(-1, 2))
        strides.append(np.full((count * count, 1), 1 / count))
    tensors = []
    for values in (np.concatenate(middles), np.concatenate(strides)):
        scale = np.float32(values.max() / 127)
        tensors.append(constant(np.rint(values / scale).astype(np.int8)[None], scale))
    return tensors[0], tensors[1]

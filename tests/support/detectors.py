# SPDX-License-Identifier: Apache-2.0
"""BlazeFace and EfficientDet-Lite0 with their published shapes and random weights.

Sources: arXiv 1907.05047, figure 3, and MediaPipe's short-range model; google/automl,
efficientdet/hparams_config.py and backbone/efficientnet_lite_builder.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.network import Network
from delegate.inspect import Graph, Tensor, flexbuffer_of
from tflite_opencl.models.build import constant, node, numbers, tensor

# BlazeFace's blocks: channels and stride; the finer map comes after the first _FINER.
_BLAZE = (
    (24, 1), (28, 1), (32, 2), (36, 1), (42, 1), (48, 2), (56, 1), (64, 1), (72, 1), (80, 1),
    (88, 1), (96, 2), (96, 1), (96, 1), (96, 1), (96, 1),
)  # fmt: skip
_FINER = 11
# EfficientNet-Lite0's stages: units, window, stride, expansion, channels.
_STAGES = (
    (1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192), (1, 3, 1, 6, 320),
)  # fmt: skip
_WIDTH, _LAYERS, _REPEATS = 64, 3, 3  # channels, layers of the pyramid, convolutions of a head
_KINDS, _COCO, _MOST = 9, 90, 25


class _Float16Weights(Network):
    """A float32 network whose weights are float16 constants with a DEQUANTIZE each."""

    def __init__(self) -> None:
        super().__init__("float32")

    def stored(self, x: Tensor) -> Tensor:
        assert x.data is not None
        halves = constant(x.data.astype(np.float16))
        return self.add("DEQUANTIZE", [halves], tensor(x.shape))

    def _weights(
        self, x: Tensor, shape: tuple[int, ...], terms: int, outputs: int
    ) -> tuple[Tensor, Tensor]:
        weights, bias = super()._weights(x, shape, terms, outputs)
        return self.stored(weights), self.stored(bias)


class _Int8(Network):
    """An int8 network; `gain` scales the weights of the layers that are added next."""

    def __init__(self) -> None:
        super().__init__("int8")
        self.gain = 1.0

    def _weights(
        self, x: Tensor, shape: tuple[int, ...], terms: int, outputs: int
    ) -> tuple[Tensor, Tensor]:
        weights, bias = super()._weights(x, shape, terms, outputs)
        return self._scaled(weights), self._scaled(bias)

    def _scaled(self, x: Tensor) -> Tensor:
        assert x.quantization is not None
        scales = tuple(float(np.float32(each * self.gain)) for each in x.quantization.scale)
        return replace(x, quantization=replace(x.quantization, scale=scales))


def blazeface(side: int = 128) -> Graph:
    """Return the face detector: picture (1, side, side, 3) -> scores, boxes with key points."""
    network = _Float16Weights()
    picture = tensor((1, side, side, 3), limits=(-1.0, 1.0))
    x = network.convolution(picture, 24, 5, 2, activation="RELU")
    maps = []
    for number, (out_c, stride) in enumerate(_BLAZE, 1):
        y = network.convolution(x, x.shape[3], 3, stride, is_depthwise=True, activation="NONE")
        y = network.convolution(y, out_c, activation="NONE")
        if stride == 2:
            x = network.pool("MAX_POOL_2D", x, 2, 2)
        if more := out_c - x.shape[3]:
            lines = numbers([[0, 0], [0, 0], [0, 0], [0, more]])
            x = network.add("PAD", [x, lines], replace(x, shape=y.shape))
        added = network.tensor(y.shape)
        x = network.add("ADD", [y, x], added, fused_activation_function="RELU")
        if number in (_FINER, len(_BLAZE)):
            maps.append(x)
    for values in (1, 16):  # a score for each box; its centre, size and six key points
        parts = []
        for x, kinds in zip(maps, (2, 6), strict=True):
            predicted = network.convolution(x, kinds * values, activation="NONE")
            boxes = x.shape[1] * x.shape[2] * kinds
            parts.append(network.reshaped(predicted, (1, boxes, values)))
        network.joined(parts, axis=1)
    return network.graph(f"blazeface_{side}")


def efficientdet_lite0(side: int = 320) -> Graph:
    """Return the int8 detector: uint8 picture (1, side, side, 3) -> boxes, classes, scores."""
    network = _Int8()
    picture = tensor((1, side, side, 3), "uint8", 1 / 128, 127)
    x = network.add("QUANTIZE", [picture], network.tensor(picture.shape, "picture"))
    maps = _pyramid(network, _backbone(network, x))
    heads: dict[int, list[Tensor]] = {}
    for values in (4, _COCO):
        for x in maps:
            for _ in range(_REPEATS):
                x = _separable(network, x, _WIDTH, "RELU6", "activation")
            network.gain = 0.15  # otherwise most scores are 1, and boxes lie outside the picture
            x = _separable(network, x, _KINDS * values, "NONE", "linear")
            network.gain = 1.0
            boxes = x.shape[1] * x.shape[2] * _KINDS
            heads.setdefault(values, []).append(network.reshaped(x, (1, boxes, values)))
    codes, scores = (network.joined(each, axis=1) for each in heads.values())
    shares = network.add("LOGISTIC", [scores], network.tensor(scores.shape, "shares"))
    real = [network.add("DEQUANTIZE", [each], tensor(each.shape)) for each in (codes, shares)]
    options = flexbuffer_of(
        max_detections=_MOST, max_classes_per_detection=1, detections_per_class=100,
        use_regular_nms=False, nms_score_threshold=0.0, nms_iou_threshold=0.5, num_classes=_COCO,
        y_scale=1.0, x_scale=1.0, h_scale=1.0, w_scale=1.0,
    )  # fmt: skip
    ends = [tensor(shape) for shape in ((1, _MOST, 4), (1, _MOST), (1, _MOST), (1,))]
    anchors = constant(_anchors([x.shape[1] for x in maps]))
    op = "TFLite_Detection_PostProcess"
    network.nodes.append(node(op, [*real, anchors], ends, options, is_custom=True))
    return network.graph(f"efficientdet_lite0_{side} int8")


def _backbone(network: Network, x: Tensor) -> list[Tensor]:
    """Add EfficientNet-Lite0; return its last feature maps of strides 8, 16 and 32."""
    x = network.convolution(x, 32, 3, 2)
    maps = []
    for number, (units, side, stride, expansion, out_c) in enumerate(_STAGES):
        for unit in range(units):
            before, step = x, 1 if unit else stride
            if expansion > 1:
                x = network.convolution(x, expansion * x.shape[3])
            x = network.convolution(x, x.shape[3], side, step, is_depthwise=True)
            x = network.convolution(x, out_c, activation="NONE", holds="linear")
            if unit:
                x = network.add("ADD", [x, before], network.tensor(x.shape, "linear"))
        if number in (2, 4, 6):
            maps.append(x)
    return maps


def _pyramid(network: Network, features: list[Tensor]) -> list[Tensor]:
    """Add the BiFPN: feature maps of five sizes are fused top-down, then bottom-up."""

    def narrow(x: Tensor) -> Tensor:
        if x.shape[3] == _WIDTH:
            return x
        return network.convolution(x, _WIDTH, activation="NONE", holds="linear")

    def fused(*parts: Tensor) -> Tensor:
        first, *others = parts
        for number, other in enumerate(others, 1):
            is_last = number == len(others)
            result = network.tensor(first.shape, "activation" if is_last else "linear")
            function = "RELU6" if is_last else "NONE"
            first = network.add("ADD", [first, other], result, fused_activation_function=function)
        return _separable(network, first, _WIDTH, "NONE", "linear")

    def larger(x: Tensor, like: Tensor) -> Tensor:
        size = numbers(like.shape[1:3])
        result = replace(x, shape=(*like.shape[:3], _WIDTH))
        return network.add("RESIZE_NEAREST_NEIGHBOR", [x, size], result, half_pixel_centers=True)

    def smaller(x: Tensor) -> Tensor:
        return network.pool("MAX_POOL_2D", x, 3, 2, "SAME")

    maps = [*features, smaller(narrow(features[-1]))]
    maps.append(smaller(maps[-1]))
    for _ in range(_LAYERS):
        down = [maps[-1]]
        for x in maps[-2::-1]:
            down.append(fused(narrow(x), larger(down[-1], x)))
        down.reverse()
        up = [down[0]]
        for level in range(1, 4):
            up.append(fused(narrow(maps[level]), down[level], smaller(up[-1])))
        maps = [*up, fused(maps[4], smaller(up[-1]))]
    return maps


def _separable(network: Network, x: Tensor, out_c: int, activation: str, holds: str) -> Tensor:
    x = network.convolution(x, x.shape[3], 3, is_depthwise=True, activation="NONE", holds="linear")
    return network.convolution(x, out_c, activation=activation, holds=holds)


def _anchors(sides: list[int]) -> NDArray[np.float32]:
    """Return the anchors, nine a cell (three sizes, three aspect ratios): centre, height, width."""
    anchors = []
    for side in sides:
        middles = (np.arange(side) + 0.5) / side
        kinds = [
            (3 * 2 ** (octave / 3) / side / root, 3 * 2 ** (octave / 3) / side * root)
            for octave in range(3)
            for root in (1.0, 2**0.5, 0.5**0.5)
        ]
        y, x, kind = np.meshgrid(middles, middles, np.arange(_KINDS), indexing="ij")
        heights, widths = np.array(kinds).T
        anchors.append(np.stack([y, x, heights[kind], widths[kind]], -1).reshape(-1, 4))
    return np.concatenate(anchors).astype(np.float32)

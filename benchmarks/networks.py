# SPDX-License-Identifier: Apache-2.0
"""Networks with random weights, for their speed: the structures of published ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.network import Network
from delegate.inspect import Graph, Tensor
from tflite_opencl.models.build import numbers

WIDTHS = (0.25, 0.5, 0.75, 1.0)
RESOLUTIONS = (128, 160, 192, 224)
CLASSES = 1001

# Output channels at width 1 and stride of each depthwise and 1x1 pair.
# Source: MobileNets (arXiv 1704.04861), table 1.
_PAIRS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1),
    (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip
# Expansion, output channels, count and first stride of V2's bottlenecks.
# Source: MobileNetV2 (arXiv 1801.04381), table 2.
_BOTTLENECKS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip
# The first convolution's channels and side; channels of each fire module's 1x1 before and of
# either half after it; None: a pooling.
# Source: SqueezeNet (arXiv 1602.07360) is version 1.0; its authors' repository has 1.1.
_Fires = tuple[tuple[int, int] | None, ...]
_SQUEEZENETS: Mapping[str, tuple[int, int, _Fires]] = {
    "1.0": (96, 7, (
        None, (16, 64), (16, 64), (32, 128),
        None, (32, 128), (48, 192), (48, 192), (64, 256), None, (64, 256),
    )),
    "1.1": (64, 3, (
        None, (16, 64), (16, 64), None, (32, 128), (32, 128),
        None, (48, 192), (48, 192), (64, 256), (64, 256),
    )),
}  # fmt: skip
# Channels and units of each stage at width 1. Source: ShuffleNet V2 (arXiv 1807.11164), table 5.
_STAGES = ((116, 4), (232, 8), (464, 4))
# Channels, of the first unit of each group, stride, window, expansion, then how many more units
# with a residual and an expansion of 4; the first three groups expand by dense convolutions.
# Source: tensorflow/models, research/slim/nets/mobilenet/mobilenet_v3.py, V3_EDGETPU at 0.75.
_GROUPS = (
    (16, 1, 3, 1, 0), (24, 2, 3, 8, 3), (40, 2, 3, 8, 3),
    (72, 2, 3, 8, 3), (72, 1, 3, 8, 3), (120, 2, 5, 8, 3), (144, 1, 3, 8, 0),
)  # fmt: skip
_DENSE_GROUPS = 3
# Of SSD: channels of the 1x1 before, and of the 3x3 of stride 2, of each layer behind MobileNet.
# Source: tensorflow/models, research/object_detection, models/ssd_mobilenet_v1_feature_extractor.py
# and anchor_generators/multiple_grid_anchor_generator.py; classes of COCO.
_EXTRA = ((256, 512), (128, 256), (128, 256), (64, 128))
_SMALLEST, _LARGEST = 0.2, 0.95  # sides of anchors, of the picture's
_COCO, _DETECTIONS = 90, 10


def mobilenet_v1(width: float, resolution: int) -> Graph:
    """Return the uint8 network, per tensor as the official quantised ones are.

    Shapes: picture (1, resolution, resolution, 3) -> shares (1, 1001)
    Raises: ValueError: `resolution` is no multiple of 32.
    """
    if resolution % 32:
        raise ValueError(f"resolution {resolution}: only multiples of 32 halve five times")
    network = Network()
    picture = network.tensor((1, resolution, resolution, 3), "picture")
    _pool_and_classify(network, v1_features(network, width, picture)[-1], 2)
    return network.graph(f"mobilenet_v1_{width}_{resolution}")


def ssd_mobilenet_v1(resolution: int = 300) -> Graph:
    """Return the uint8 detector of width 1 with its post-processing.

    Shapes: picture (1, resolution, resolution, 3) -> boxes (1, 10, 4), classes and scores (1, 10),
        their number (1,)
    """
    network = Network()
    picture = network.tensor((1, resolution, resolution, 3), "picture")
    features = v1_features(network, 1.0, picture)
    x = features[-1]
    maps = [features[10], x]  # behind the eleventh pair, and the last
    for squeezed, out_c in _EXTRA:
        x = network.convolution(network.convolution(x, squeezed), out_c, 3, 2)
        maps.append(x)
    codes, scores = [], []
    for x, kinds in zip(maps, (3, 6, 6, 6, 6, 6), strict=True):
        boxes = x.shape[1] * x.shape[2] * kinds
        each = network.convolution(x, 4 * kinds, activation="NONE", holds="codes")
        codes.append(network.reshaped(each, (1, boxes, 1, 4)))
        each = network.convolution(x, (_COCO + 1) * kinds, activation="NONE", holds="logits")
        scores.append(network.reshaped(each, (1, boxes, _COCO + 1)))
    joined = network.joined(scores, axis=1)
    shares = network.add("LOGISTIC", [joined], network.tensor(joined.shape, "shares"))
    joined = network.joined(codes, axis=1)
    alone = replace(joined, shape=(1, joined.shape[1], 4))
    alone = network.add("SQUEEZE", [joined], alone, squeeze_dims=[2])
    network.detections(alone, shares, _anchors([x.shape[1] for x in maps]), _DETECTIONS)
    return network.graph(f"ssd_mobilenet_v1_{resolution}")


def v1_features(network: Network, width: float, picture: Tensor) -> list[Tensor]:
    """Add MobileNet V1 up to its pooling, and return what each of its pairs computes."""

    def channels(at_width_1: int) -> int:
        return max(8, int(at_width_1 * width))

    x = network.convolution(picture, channels(32), 3, 2)
    results = []
    for out_c, stride in _PAIRS:
        x = network.convolution(x, x.shape[3], 3, stride, is_depthwise=True)
        x = network.convolution(x, channels(out_c))
        results.append(x)
    return results


def _anchors(sides: Sequence[int]) -> NDArray[np.float32]:
    """Return the anchors of square maps of these sides: (n, 4), centers, heights and widths."""
    scales = [*np.linspace(_SMALLEST, _LARGEST, len(sides)), 1.0]
    results = []
    for number, side in enumerate(sides):
        scale, between = scales[number], np.sqrt(scales[number] * scales[number + 1])
        # Scale and ratio of width to height.
        kinds = [(scale, ratio) for ratio in (1.0, 2.0, 1 / 2, 3.0, 1 / 3)] + [(between, 1.0)]
        if number == 0:
            kinds = [(0.1, 1.0), (scale, 2.0), (scale, 1 / 2)]
        sizes = np.array(
            [(scale / np.sqrt(ratio), scale * np.sqrt(ratio)) for scale, ratio in kinds]
        )
        middles = (np.arange(side) + 0.5) / side
        y, x, kind = np.meshgrid(middles, middles, np.arange(len(kinds)), indexing="ij")
        results.append(np.stack([y, x, *sizes[kind].transpose(3, 0, 1, 2)], axis=-1).reshape(-1, 4))
    return np.concatenate(results).astype(np.float32)


def mobilenet_v2(resolution: int = 224) -> Graph:
    """Return MobileNet V2 of width 1 in float32.

    Shapes: picture (1, resolution, resolution, 3) -> shares (1, 1001)
    """
    network = Network("float32")
    x = network.convolution(network.tensor((1, resolution, resolution, 3)), 32, 3, 2)
    for expansion, out_c, count, first_stride in _BOTTLENECKS:
        for number in range(count):
            before, stride = x, 1 if number else first_stride
            if expansion > 1:
                x = network.convolution(x, expansion * x.shape[3])
            x = network.convolution(x, x.shape[3], 3, stride, is_depthwise=True)
            x = network.convolution(x, out_c, activation="NONE")
            if number:
                x = network.add("ADD", [x, before], network.tensor(x.shape))
    _pool_and_classify(network, network.convolution(x, 1280), 1)
    return network.graph(f"mobilenet_v2_1.0_{resolution}")


def squeezenet(resolution: int = 224, version: str = "1.1", dtype: str = "uint8") -> Graph:
    """Return SqueezeNet in uint8 or float32: 3x3 convolutions, concatenations, no depthwise ones.

    Shapes: picture (1, resolution, resolution, 3) -> shares (1, 1, 1, 1000)
    """
    first, side, fires = _SQUEEZENETS[version]
    network = Network(dtype)
    x = network.tensor((1, resolution, resolution, 3), "picture")
    x = network.convolution(x, first, side, 2, activation="RELU")
    for fire in fires:
        if fire is None:
            x = network.pool("MAX_POOL_2D", x, 3, 2)
            continue
        squeezed, expanded = fire
        x = network.convolution(x, squeezed, activation="RELU")
        halves = [network.convolution(x, expanded, side, activation="RELU") for side in (1, 3)]
        x = network.joined(halves)
    x = network.convolution(x, 1000, activation="RELU")
    network.softmax(network.pool("AVERAGE_POOL_2D", x, x.shape[1], x.shape[1]))
    return network.graph(f"squeezenet_{version}_{resolution}")


def shufflenet_v2(resolution: int = 224) -> Graph:
    """Return ShuffleNet V2 1.0 in int8: a unit splits the channels, joins and shuffles them.

    Shapes: picture (1, resolution, resolution, 3) -> shares (1, 1000)
    """
    network = Network("int8")

    def depthwise(x: Tensor, stride: int) -> Tensor:
        return network.convolution(
            x, x.shape[3], 3, stride, is_depthwise=True, activation="NONE", holds="linear"
        )

    def shuffled(left: Tensor, right: Tensor) -> Tensor:
        """Join two tensors, and take the channels of either one in turn."""
        x = network.joined([left, right])
        batch, height, width, half = left.shape
        pairs = network.reshaped(x, (batch, height, width, 2, half))
        turned = network.tensor((batch, height, width, half, 2))
        turned = network.add("TRANSPOSE", [pairs, numbers((0, 1, 2, 4, 3))], turned)
        return network.reshaped(turned, x.shape)

    x = network.convolution(network.tensor((1, resolution, resolution, 3), "picture"), 24, 3, 2)
    x = network.pool("MAX_POOL_2D", x, 3, 2, "SAME")
    for out_c, units in _STAGES:
        half = out_c // 2
        left = network.convolution(depthwise(x, 2), half)
        right = depthwise(network.convolution(x, half), 2)
        x = shuffled(left, network.convolution(right, half))
        for _ in range(units - 1):
            left, right = network.halves(x)
            right = depthwise(network.convolution(right, half), 1)
            x = shuffled(left, network.convolution(right, half))
    _classify(network, network.convolution(x, 1024))
    return network.graph(f"shufflenet_v2_1.0_{resolution} int8")


def mobilenet_edgetpu(resolution: int = 224) -> Graph:
    """Return MobileNet EdgeTPU 0.75 in int8: its first units expand by dense 3x3 convolutions.

    Shapes: picture (1, resolution, resolution, 3) -> shares (1, 1000)
    """
    network = Network("int8")
    x = network.convolution(network.tensor((1, resolution, resolution, 3), "picture"), 24, 3, 2)
    for place, (out_c, stride, side, expansion, more) in enumerate(_GROUPS):
        for unit in range(1 + more):
            source, inner = x, x.shape[3] * (4 if unit else expansion)
            step = 1 if unit else stride
            if place < _DENSE_GROUPS:
                x = network.convolution(x, inner, side, step)
            else:
                x = network.convolution(x, inner)
                x = network.convolution(x, inner, side, step, is_depthwise=True)
            x = network.convolution(x, out_c, activation="NONE", holds="linear")
            if unit:
                x = network.add("ADD", [x, source], network.tensor(x.shape, "linear"))
    _classify(network, network.convolution(x, 1280))
    return network.graph(f"mobilenet_edgetpu_0.75_{resolution} int8")


def _pool_and_classify(network: Network, x: Tensor, stride: int) -> None:
    """Add a pooling of all pixels, and a convolution to the classes."""
    x = network.pool("AVERAGE_POOL_2D", x, x.shape[1], stride)
    x = network.convolution(x, CLASSES, activation="NONE", holds="logits")
    network.softmax(network.reshaped(x, (1, CLASSES)))


def _classify(network: Network, x: Tensor) -> None:
    """Add the mean of each channel, and a fully connected layer."""
    mean = network.tensor((1, x.shape[3]))
    mean = network.add("MEAN", [x, numbers((1, 2))], mean, keep_dims=False)
    network.softmax(network.fully_connected(mean, 1000))

# SPDX-License-Identifier: Apache-2.0
"""Streaming and windowed models of speech and sounds, with random weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.network import Network
from benchmarks.networks import v1_features
from delegate.inspect import Graph, Node, Tensor
from tests.support.hybrid import NONE, Hybrid
from tests.support.model import const, graph_of, op, t
from tests.support.subgraphs import write_subgraphs
from tests.support.variables import beginning, handle
from tflite_opencl.conformance.cases.frequencies import log_mel_nodes
from tflite_opencl.conformance.cases.recurrent import lstm


def keywords() -> Graph:
    """Return the SVDF keyword spotter: 40 features of a step -> probabilities of 12 words.

    Source: tensorflow/examples/speech_commands/models.py, create_low_latency_svdf_model
    """
    layers = Hybrid(np.random.default_rng(0), is_asymmetric=False)
    bands, units, rank, memory = 40, 1280, 2, 98
    step, filters = t((1, bands)), units * rank
    state = t((1, memory * filters), name="state", is_variable=True)
    times = const(layers.rng.integers(-127, 128, (filters, memory)).astype(np.int8), 0.002)
    inputs = [step, layers.weights(filters, bands), times, layers.floats(units), state]
    options = {"rank": rank, "fused_activation_function": "RELU"}
    x = layers.add("SVDF", inputs, (1, units), **options)
    for width in (256, 256, 12):
        x = layers.dense(x, width)
    x = layers.add("SOFTMAX", [x], x.shape, beta=1.0)
    return graph_of(layers.nodes, [step], [x])


def keyword_lstm(cells: int = 118) -> Graph:
    """Return the int8 LSTM keyword spotter: 49 steps of 10 features -> probabilities of 12 words.

    Source: arXiv 1711.07128, "Basic LSTM" of the smallest size (ARM's ML-KWS-for-MCU)
    """
    network = Network("int8")
    (node,) = lstm("int8", (1, 49, 10, cells), "plain").nodes
    (steps,) = node.outputs
    network.nodes.append(node)
    ends = [const(np.array(each, np.int32)) for each in ((0, -1, 0), (0,) * 3, (1,) * 3)]
    masks = {"begin_mask": 5, "end_mask": 5, "shrink_axis_mask": 2}
    last = replace(steps, shape=(1, cells))
    last = network.add("STRIDED_SLICE", [steps, *ends], last, **masks)
    network.softmax(network.fully_connected(last, 12))
    return network.graph("keyword lstm")


def dtln(bins: int = 257) -> Graph:
    """Return DTLN's first stage: magnitudes of a step's frequencies -> the same without noise.

    Source: arXiv 2005.07551, section 2: two LSTMs of 128 cells, a layer and a sigmoid as the mask
    """
    layers = Hybrid(np.random.default_rng(0), is_asymmetric=False)
    step = t((1, 1, bins))
    x = layers.lstm(layers.lstm(step, 128), 128)
    x = layers.dense(layers.reshaped(x, (1, 128)), bins)
    mask = layers.add("LOGISTIC", [x], x.shape)
    mask = layers.reshaped(mask, step.shape)
    x = layers.add("MUL", [step, mask], step.shape, **NONE)
    return graph_of(layers.nodes, [step], [x])


def wake_word(strides: int = 3, bands: int = 40) -> bytes:
    """Return a streaming int8 wake word detector: features of some steps -> a probability.

    Each layer keeps earlier steps in a variable. Windows and sizes are those of
    github.com/kahrendt/microWakeWord, "mixednet" with its default settings.
    """
    layers = _Streaming(np.random.default_rng(0))
    features = layers.values((1, strides, bands))
    x = layers.joined(layers.reshaped(features, (1, strides, 1, bands)), 5)
    x = layers.convolution(x, 32, 5)
    for windows in ((5,), (7, 11), (9, 15), (23,)):
        x = layers.convolution(layers.mixed(layers.joined(x, max(windows)), windows), 64)
    x = layers.joined(x, 5)
    x = layers.dense(layers.reshaped(x, (1, 5 * 64)))
    share = t((1, 1), "int8", 1 / 256, -128)
    layers.add("LOGISTIC", [x], share)
    result = layers.add("QUANTIZE", [share], t((1, 1), "uint8", 1 / 256, 0))
    once = op("CALL_ONCE", [], [], {"init_subgraph_index": 1})
    main = graph_of([once, *layers.nodes], [features], [result])
    return write_subgraphs(main, beginning(layers.kept))


@dataclass(slots=True)
class _Streaming:
    """The nodes of a streaming int8 model in construction."""

    rng: np.random.Generator
    nodes: list[Node] = field(default_factory=list)
    kept: dict[str, NDArray[np.int8]] = field(default_factory=dict)

    def add(
        self, name: str, inputs: Sequence[Tensor | None], output: Tensor, **options: object
    ) -> Tensor:
        newer = {"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "RESHAPE": 1}
        self.nodes.append(op(name, inputs, [output], options, newer.get(name, 2)))
        return output

    def values(self, shape: tuple[int, ...]) -> Tensor:
        return t(shape, "int8", 0.05, -20)

    def reshaped(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        size = const(np.array(shape, np.int32))
        return self.add("RESHAPE", [x, size], self.values(shape), new_shape=shape)

    def last(self, x: Tensor, steps: int) -> Tensor:
        """Return the last steps of (1, n, 1, c)."""
        ends = [const(np.array(each, np.int32)) for each in ((0, -steps, 0, 0), (0,) * 4, (1,) * 4)]
        options = {"begin_mask": 13, "end_mask": 15}
        result = self.values((1, steps, 1, x.shape[3]))
        return self.add("STRIDED_SLICE", [x, *ends], result, **options)

    def joined(self, x: Tensor, steps: int) -> Tensor:
        """Return the last `steps` steps: some of a variable, then x; update the variable."""
        before = (1, steps - x.shape[1], 1, x.shape[3])
        node, resource = handle(f"stream {len(self.kept)}")
        self.kept[f"stream {len(self.kept)}"] = np.full(before, -20, np.int8)
        old = self.values(before)
        self.nodes += [node, op("READ_VARIABLE", [resource], [old])]
        whole = self.values((1, steps, 1, x.shape[3]))
        self.add("CONCATENATION", [old, x], whole, axis=1, **NONE)
        self.nodes.append(op("ASSIGN_VARIABLE", [resource, self.last(whole, before[1])], []))
        return whole

    def mixed(self, x: Tensor, windows: tuple[int, ...]) -> Tensor:
        """Return MixConv: a depthwise convolution for each part of the channels and window."""
        parts, channels = [x], x.shape[3] // len(windows)
        if len(windows) > 1:
            parts = [self.values((*x.shape[:3], channels)) for _ in windows]
            sizes = const(np.full(len(windows), channels, np.int32))
            inputs = [x, sizes, const(np.array(3, np.int32))]
            self.nodes.append(op("SPLIT_V", inputs, parts, {"num_splits": len(windows)}, 2))
        results = []
        for part, window in zip(parts, windows, strict=True):
            seen = part if window == part.shape[1] else self.last(part, window)
            weights = self.weights((1, window, 1, channels), window, 3)
            options = {"padding": "VALID", "stride_w": 1, "stride_h": 1, "depth_multiplier": 1}
            result = self.values((1, 1, 1, channels))
            inputs = [seen, *weights]
            results.append(self.add("DEPTHWISE_CONV_2D", inputs, result, **options, **NONE))
        if len(results) == 1:
            return results[0]
        shape = (1, 1, 1, x.shape[3])
        return self.add("CONCATENATION", results, self.values(shape), axis=3, **NONE)

    def convolution(self, x: Tensor, channels: int, window: int = 1) -> Tensor:
        weights = self.weights((channels, window, 1, x.shape[3]), window * x.shape[3])
        options = {"padding": "VALID", "stride_w": 1, "stride_h": 1}
        options["fused_activation_function"] = "RELU"
        return self.add("CONV_2D", [x, *weights], self.values((1, 1, 1, channels)), **options)

    def dense(self, x: Tensor) -> Tensor:
        weights = self.weights((1, x.shape[1]), x.shape[1])
        return self.add("FULLY_CONNECTED", [x, *weights], self.values((1, 1)), **NONE)

    def weights(self, shape: tuple[int, ...], terms: int, axis: int = 0) -> tuple[Tensor, Tensor]:
        """Return per-channel weights and their bias; `terms`: of each sum."""
        codes = self.rng.integers(-127, 128, shape).astype(np.int8)
        count = 1 if len(shape) == 2 else shape[axis]  # FULLY_CONNECTED has one scale
        scales = (self.rng.uniform(0.5, 1.5, count) / (40 * math.sqrt(terms))).astype(np.float32)
        bias = self.rng.integers(-200, 200, shape[axis]).astype(np.int32)
        return const(codes, scales, axis=axis), const(bias, np.float32(0.05) * scales)


def yamnet() -> Graph:
    """Return YAMNet without its front end: a log-mel spectrogram (1, 96, 64, 1) -> 521 classes."""
    network = Network("float32")
    return _yamnet(network, network.tensor((1, 96, 64, 1)))


def yamnet_of_waves() -> Graph:
    """Return YAMNet: 0.975 s of sound (15600,) -> 521 classes.

    Frames of 400 samples overlap by 240, so that each is five parts of 80, as in tf.signal.frame.
    Source: tensorflow/models, research/audioset/yamnet/features.py
    """
    network = Network("float32")
    parts = network.reshaped(network.tensor((15_600,)), (195, 80))
    places = 2 * np.arange(96)[:, None] + np.arange(5)
    x = network.add("GATHER", [parts, const(places.astype(np.int32))], t((96, 5, 80)), axis=0)
    x = network.reshaped(x, (96, 400))
    window = const(np.hanning(401)[:-1].astype(np.float32))
    x = network.add("MUL", [x, window], t(x.shape), **NONE)
    x = network.add("PAD", [x, const(np.array([[0, 0], [0, 112]], np.int32))], t((96, 512)))
    for node in log_mel_nodes(x, 512, 64):
        x = network.add(node.op, [*node.inputs], node.outputs[0], **node.options)
    return _yamnet(network, network.reshaped(x, (1, 96, 64, 1)))


def _yamnet(network: Network, x: Tensor) -> Graph:
    """Source: tensorflow/models, research/audioset/yamnet/yamnet.py: MobileNet V1 of width 1."""
    x = v1_features(network, 1.0, x)[-1]
    mean = network.tensor((1, x.shape[3]))
    mean = network.add("MEAN", [x, const(np.array([1, 2], np.int32))], mean, keep_dims=False)
    x = network.fully_connected(mean, 521)
    network.add("LOGISTIC", [x], network.tensor(x.shape))
    return network.graph("yamnet")

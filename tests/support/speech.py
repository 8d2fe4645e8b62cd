# SPDX-License-Identifier: Apache-2.0
"""Models of speech and sounds that take a step at a run, or a piece: their weights are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.network import Network
from benchmarks.networks import v1_features
from delegate.inspect import Graph, Node, Tensor
from tests.support.model import const, graph_of, op, t

NONE = {"fused_activation_function": "NONE"}


@dataclass(slots=True)
class _Layers:
    """The nodes of a model with int8 weights and float32 values, as they are added."""

    rng: np.random.Generator
    nodes: list[Node] = field(default_factory=list)

    def add(
        self,
        name: str,
        inputs: Sequence[Tensor | None],
        output: Tensor,
        version: int = 1,
        **options: object,
    ) -> Tensor:
        self.nodes.append(op(name, inputs, [output], options, version))
        return output

    def weights(self, *shape: int) -> Tensor:
        """Return int8 weights of one scale, whose products are about as large as their inputs."""
        values = np.clip(40 * self.rng.standard_normal(shape), -127, 127).astype(np.int8)
        return const(values, 1 / (40 * math.sqrt(shape[-1])))

    def floats(self, count: int) -> Tensor:
        return const((0.05 * self.rng.standard_normal(count)).astype(np.float32))

    def dense(self, x: Tensor, width: int, activation: str = "NONE") -> Tensor:
        inputs = [x, self.weights(width, x.shape[-1]), self.floats(width)]
        options = {"asymmetric_quantize_inputs": False, "keep_num_dims": False}
        options["fused_activation_function"] = activation
        return self.add("FULLY_CONNECTED", inputs, t((x.shape[0], width)), 9, **options)

    def lstm(self, x: Tensor, cells: int) -> Tensor:
        """Return the outputs of a layer that remembers from run to run: (1, steps, cells)."""
        number = len(self.nodes)
        hidden, cell = (
            t((1, cells), name=f"{what}{number}", is_variable=True) for what in ("hidden", "cell")
        )
        matrices = [self.weights(cells, depth) for depth in (x.shape[-1], cells) for _ in "ifco"]
        biases = [self.floats(cells) for _ in "ifco"]
        inputs = [x, *matrices, *[None] * 3, *biases, *[None] * 2, hidden, cell, *[None] * 4]
        options = {"fused_activation_function": "TANH", "cell_clip": 10.0, "time_major": False}
        return self.add(
            "UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, t((1, x.shape[1], cells)), 2, **options
        )

    def reshaped(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return self.add("RESHAPE", [x, const(np.array(shape, np.int32))], t(shape), new_shape=shape)


def keywords() -> Graph:
    """Return the keyword spotter of an SVDF: a step's 40 features -> shares of 12 words.

    Source: tensorflow/examples/speech_commands/models.py, create_low_latency_svdf_model
    """
    layers, bands, units, rank, memory = _Layers(np.random.default_rng(0)), 40, 1280, 2, 98
    step, filters = t((1, bands)), units * rank
    state = t((1, memory * filters), name="state", is_variable=True)
    times = const(layers.rng.integers(-127, 128, (filters, memory)).astype(np.int8), 0.002)
    inputs = [step, layers.weights(filters, bands), times, layers.floats(units), state]
    options = {"rank": rank, "fused_activation_function": "RELU"}
    x = layers.add("SVDF", inputs, t((1, units)), 2, **options)
    for width in (256, 256, 12):
        x = layers.dense(x, width)
    x = layers.add("SOFTMAX", [x], t(x.shape), beta=1.0)
    return graph_of(layers.nodes, [step], [x])


def dtln(bins: int = 257) -> Graph:
    """Return DTLN's first stage: the sizes of a step's frequencies, less its noise.

    Source: arXiv 2005.07551, section 2: two LSTMs of 128 cells, a layer and a sigmoid as the mask
    """
    layers = _Layers(np.random.default_rng(0))
    step = t((1, 1, bins))
    x = layers.lstm(layers.lstm(step, 128), 128)
    x = layers.dense(layers.reshaped(x, (1, 128)), bins)
    mask = layers.add("LOGISTIC", [x], t(x.shape))
    mask = layers.reshaped(mask, step.shape)
    x = layers.add("MUL", [step, mask], t(step.shape), **NONE)
    return graph_of(layers.nodes, [step], [x])


def yamnet() -> Graph:
    """Return YAMNet without its front end: a log-mel picture (1, 96, 64, 1) -> 521 classes.

    Source: tensorflow/models, research/audioset/yamnet/yamnet.py: MobileNet V1 of width 1
    """
    network = Network("float32")
    x = v1_features(network, 1.0, network.tensor((1, 96, 64, 1)))[-1]
    mean = network.tensor((1, x.shape[3]))
    mean = network.add("MEAN", [x, const(np.array([1, 2], np.int32))], mean, keep_dims=False)
    x = network.fully_connected(mean, 521)
    network.add("LOGISTIC", [x], network.tensor(x.shape))
    return network.graph("yamnet")

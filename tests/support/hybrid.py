# SPDX-License-Identifier: Apache-2.0
"""A builder of hybrid models: float32 tensors and int8 weights, as converters write them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from delegate.inspect import Node, Tensor
from delegate.launch import Constant, Launch
from tests.support.model import const, op, t


def assert_packed_once(launches: Sequence[Launch], *names: str) -> None:
    """Assert that the constants of these names pack to the same bytes in each launch."""
    for name in names:
        packed = []
        for launch in launches:
            constant = launch.params[name]
            assert isinstance(constant, Constant)
            packed.append(constant.pack())
            assert packed[-1].nbytes == constant.size_bytes
        assert all(each.tobytes() == packed[0].tobytes() for each in packed)


NONE = {"fused_activation_function": "NONE"}
# The first version of an op with hybrid weights, if it is not 1.
_VERSIONS = {
    "BATCH_MATMUL": 4,
    "DEPTHWISE_CONV_2D": 6,
    "EMBEDDING_LOOKUP": 3,
    "FULLY_CONNECTED": 9,
    "SVDF": 2,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 2,
}


@dataclass(slots=True)
class Hybrid:
    """The nodes of a model in construction, with random weights."""

    rng: np.random.Generator
    is_asymmetric: bool = True  # rows of inputs are quantised with a zero point
    nodes: list[Node] = field(default_factory=list)

    def add(
        self, name: str, inputs: Sequence[Tensor | None], shape: tuple[int, ...], **options: object
    ) -> Tensor:
        """Add a node, and return its float32 output."""
        result = t(shape)
        self.nodes.append(op(name, inputs, [result], options, _VERSIONS.get(name, 1)))
        return result

    def floats(self, *shape: int, about: float = 0.0) -> Tensor:
        return const((about + 0.05 * self.rng.standard_normal(shape)).astype(np.float32))

    def weights(self, *shape: int) -> Tensor:
        """Return int8 weights of one scale, such that products are about as large as inputs."""
        values = np.clip(40 * self.rng.standard_normal(shape), -127, 127).astype(np.int8)
        return const(values, 1 / (40 * math.sqrt(shape[-1])))

    def reshaped(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return self.add("RESHAPE", [x, const(np.array(shape, np.int32))], shape, new_shape=shape)

    def dense(self, x: Tensor, width: int) -> Tensor:
        """Return the outputs of a FULLY_CONNECTED. Shapes: (rows, depth) -> (rows, width)"""
        inputs = [x, self.weights(width, x.shape[-1]), self.floats(width)]
        options = {**NONE, "asymmetric_quantize_inputs": self.is_asymmetric, "keep_num_dims": False}
        return self.add("FULLY_CONNECTED", inputs, (x.shape[0], width), **options)

    def lstm(self, x: Tensor, cells: int) -> Tensor:
        """Return the outputs of a stateful LSTM. Shapes: (1, steps, depth) -> (1, steps, cells)"""
        number = len(self.nodes)
        hidden, cell = (
            t((1, cells), name=f"{what}{number}", is_variable=True) for what in ("hidden", "cell")
        )
        matrices = [self.weights(cells, depth) for depth in (x.shape[-1], cells) for _ in "ifco"]
        biases = [self.floats(cells) for _ in "ifco"]
        inputs = [x, *matrices, *[None] * 3, *biases, *[None] * 2, hidden, cell, *[None] * 4]
        options = {"fused_activation_function": "TANH", "cell_clip": 10.0, "time_major": False}
        shape = (1, x.shape[1], cells)
        return self.add("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, shape, **options)

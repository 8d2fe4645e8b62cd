# SPDX-License-Identifier: Apache-2.0
"""RFFT2D, and the feature extraction of audio models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.conformance.cases._rows import one, step
from tflite_opencl.models.build import (
    Case,
    Shape,
    case,
    constant,
    graph,
    numbers,
    seeded,
    sizes,
    tensor,
)

_TRANSFORMS: tuple[tuple[Shape, tuple[int, int]], ...] = (
    ((1, 512), (1, 512)),
    ((9, 1, 400), (1, 512)),
    ((2, 3, 1, 1024), (1, 1024)),
    ((5, 2), (4, 2)),
    ((3, 8, 16), (8, 16)),
    ((2, 5, 40), (16, 32)),
    ((3, 64), (1, 64)),
    ((100, 3), (128, 4)),
    ((2, 33, 17), (32, 64)),
)
_PARTS = ("COMPLEX_ABS", "REAL", "IMAG")


def cases() -> Iterator[Case]:
    """Yield transforms, their parts, and both together as in audio models."""
    for shape, lengths in _TRANSFORMS:
        detail = f"in{sizes(shape)}-by{sizes(lengths)}"
        yield case("rfft2d", "float32", detail, _transform, shape, lengths)
        for part in _PARTS:
            words = f"{detail}-{part.lower()}"
            yield case("rfft2d", "float32", words, _transform, shape, lengths, part)
    for part in _PARTS:
        for shape in ((3,), (1, 257), (2, 5, 7, 9), (70, 129)):
            yield case(part.lower(), "float32", f"in{sizes(shape)}", _part, part, shape)
    for frames, length in ((3, 400), (96, 512)):
        yield case("rfft2d", "float32", f"log_mel_{frames}x{length}", log_mel, frames, length)


def _transform(shape: Shape, lengths: tuple[int, int], part: str = "") -> Graph:
    found = _frequencies(tensor(shape), lengths)
    if not part:
        return graph([found])
    return graph([found, step(part, found.outputs, [tensor(())])])


def _frequencies(source: Tensor, lengths: tuple[int, int]) -> Node:
    return step("RFFT2D", [source, numbers(lengths)], [tensor((), "complex64")])


def _part(part: str, shape: Shape) -> Graph:
    return one(part, [tensor(shape, "complex64")], tensor(()))


def log_mel(frames: int, length: int, bands: int = 64) -> Graph:
    """Return a model of audio frames -> log energies of frequency bands."""
    wide = 1 << (length - 1).bit_length()
    return graph(log_mel_nodes(tensor((frames, length)), wide, bands))


def log_mel_nodes(source: Tensor, wide: int, bands: int) -> list[Node]:
    """Return the nodes that compute bands of frames; the bands overlap, and are random."""
    frames, length = source.shape
    nodes: list[Node] = []

    def add(op: str, inputs: list[Tensor | None], dtype: str = "float32", **options: Any) -> Tensor:
        nodes.append(step(op, inputs, [tensor((), dtype)], options))
        return nodes[-1].outputs[0]

    def reshaped(x: Tensor, shape: Shape) -> Tensor:
        return add("RESHAPE", [x, numbers(shape)], x.dtype, new_shape=shape)

    x = reshaped(source, (frames, 1, length))
    x = add("RFFT2D", [x, numbers((1, wide))], "complex64")
    x = add("COMPLEX_ABS", [reshaped(x, (frames, wide // 2 + 1))])
    weights = seeded(length, bands).uniform(0, 1, (bands, wide // 2 + 1))
    x = add("FULLY_CONNECTED", [x, constant(weights.astype(np.float32)), None])
    x = add("ADD", [x, constant(np.float32(0.001))])
    add("LOG", [x])
    return nodes

# SPDX-License-Identifier: Apache-2.0
"""Which mean and deviation count: those asked for, of the file, usual for the head, or 127.5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from delegate.inspect import read_model
from label_image.decode_outputs import Meaning
from label_image.embedded_metadata import EmbeddedMetadata
from label_image.heads.view import View
from tests.support.scenes import constant_model
from tflite_opencl.pictures.image import to_input

YOLO, POINTS, ROW = (1, 6, 84), (1, 1, 17, 3), (1, 10)
OWN = EmbeddedMetadata(mean=(1, 2, 3), std=(4,))
CASES: list[tuple[Any, ...]] = [
    (YOLO, {}, (0,), (255,)),
    (POINTS, {}, (0,), (1,)),
    (ROW, {}, (127.5,), (127.5,)),
    (YOLO, {"embedded": OWN}, (1, 2, 3), (4,)),
    (YOLO, {"mean": 5}, (5,), (255,)),
    (ROW, {"mean": 5, "std": 6, "embedded": OWN}, (5,), (6,)),
    (YOLO, {"mean": 0.0, "embedded": OWN}, (0,), (4,)),
]


@pytest.mark.parametrize(("shape", "facts", "mean", "std"), CASES)
def test_the_first_that_says_it_counts(
    shape: tuple[int, ...], facts: dict[str, Any], mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    graph = read_model(constant_model(np.zeros(shape, np.float32)))
    view = View(
        graph, graph.outputs, graph.inputs[0], embedded=facts.pop("embedded", EmbeddedMetadata())
    )
    found = Meaning(view, **facts).format
    assert (tuple(found.mean), tuple(found.std)) == (mean, std)
    pixels = np.full((2, 2, 3), 9, np.uint8)
    made = to_input(pixels, found.shape, found.dtype, found.mean, found.std)
    assert np.allclose(made[0, 0, 0], (9 - np.array(mean)) / np.array(std))

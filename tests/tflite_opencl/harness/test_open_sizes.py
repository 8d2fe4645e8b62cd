# SPDX-License-Identifier: Apache-2.0
"""Dynamic sizes of inputs: from flags, files, the picture, or 224."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from delegate.inspect import Graph, infer, read_model
from tests.support.model import graph_of, op, t
from tests.support.open_sizes import OPEN, open_classifier
from tests.support.without_tflite import needs_tflite
from tflite_opencl.console.errors import UsageError
from tflite_opencl.harness.open_sizes import runs, with_file_shapes, with_picture_size
from tflite_opencl.interpreters.runtime import runtime_if_any


def of_input(*signature: int) -> Graph:
    shape = tuple(max(1, size) for size in signature)
    source = t(shape, "float32", name="x", shape_signature=signature)
    return graph_of([op("ABS", [source], [t(shape, shape_signature=signature)])])


@pytest.fixture
def picture(tmp_path: Path) -> str:
    path = tmp_path / "p.png"
    Image.new("RGB", (30, 20)).save(path)
    return str(path)


@pytest.mark.parametrize(
    ("signature", "shape"),
    [
        (OPEN, (1, 20, 30, 3)),
        ((-1, -1, -1, 3), (1, 20, 30, 3)),
        ((1, 3, -1, -1), (1, 3, 20, 30)),
        ((1, -1, 30, 1), (1, 20, 30, 1)),
        ((4, -1, -1, 4), (4, 20, 30, 4)),
    ],
)
def test_size_applies_to_dynamic_dimensions(
    signature: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    new_graph = with_picture_size(of_input(*signature), (20, 30))
    assert (new_graph.inputs[0].shape, new_graph.inputs[0].shape_signature) == (shape, ())
    assert infer(new_graph).outputs[0].shape == shape


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ((1, 20, 31, 3), "--input_size: no input of the model is a picture"),
        ((-1, 20, 31, 3), "--input_size: no input of the model is a picture"),
        ((1, -1), "--input_size: no input of the model is a picture"),
        ((1, -1, 31, 3), "--input_size 20x30: the model's input is 1x[?]x31x3"),
    ],
)
def test_size_of_static_dimension_is_refused(signature: tuple[int, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        with_picture_size(of_input(*signature), (20, 30))


def test_default_is_picture_size_or_224(picture: str, caplog: pytest.LogCaptureFixture) -> None:
    graph = of_input(*OPEN)
    assert with_picture_size(graph, None, picture).inputs[0].shape == (1, 20, 30, 3)
    assert not caplog.records
    with caplog.at_level(logging.INFO, "tflite_opencl"):
        for path in (None, "-", "no such file"):
            assert with_picture_size(graph, None, path).inputs[0].shape == (1, 224, 224, 3)
        new_graph = with_picture_size(graph, None, picture, can_run=lambda sized: False)
    assert new_graph.inputs[0].shape == (1, 224, 224, 3)
    assert caplog.messages[0] == (
        "the model leaves its height and width open: 224x224 is taken (--input_size)"
    )
    assert "open, and does not run at the picture's 20x30: 224x224 is taken" in caplog.messages[-1]
    fixed = of_input(1, 8, 8, 3)
    assert with_picture_size(fixed, None, picture) is fixed


def test_shapes_from_files(tmp_path: Path) -> None:
    files = []
    for number, shape in enumerate(((1, 5, 7, 3), (1, 5, 7, 4), (5, 7, 3))):
        np.save(tmp_path / f"{number}.npy", np.zeros(shape, np.float32))
        files.append(("x", str(tmp_path / f"{number}.npy")))
    graph = of_input(*OPEN)
    assert with_file_shapes(graph, files[:1]).inputs[0].shape == (1, 5, 7, 3)
    for file in (*files[1:], ("x", "no such file")):  # reported when it is read
        assert with_file_shapes(graph, [file]).inputs[0].shape == (1, 1, 1, 3)
    assert with_picture_size(graph, None, files=files[:1]).inputs[0].shape == (1, 1, 1, 3)


@needs_tflite
def test_size_that_runs() -> None:
    model, runtime = open_classifier(least=8), runtime_if_any()
    graph = read_model(model)
    assert runs(with_picture_size(graph, (8, 9)), model, runtime)
    assert not runs(with_picture_size(graph, (7, 9)), model, runtime)
    assert not runs(with_picture_size(graph, (1 << 15, 1 << 14)), model, runtime)

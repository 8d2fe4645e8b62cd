# SPDX-License-Identifier: Apache-2.0
"""Models that take several pictures at once, and pictures with alpha; what takes no picture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from delegate import DeviceInfo
from label_image import Classifier
from tests.support.command import Run
from tests.support.model import chain_model, op, t
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite

ONE = ("-m", "model.tflite", "-l", "labels.txt")
RED, GREEN, BLUE = (f"pictures/{name}/{name}.png" for name in ("red", "green", "blue"))
SHARED = "the model takes 2 pictures at once, and the last one fills what is left"


def averages(batch: int, channels: int = 3) -> bytes:
    """Return a model of so many pictures, which gives each channel's average."""
    pixels = t((batch, 4, 4, channels), "uint8", 1.0, name="pixels")
    pooled, rows = t((batch, 1, 1, channels), "uint8", 1.0), t((batch, channels), "uint8", 1.0)
    size = {"stride_w": 4, "stride_h": 4, "filter_width": 4, "filter_height": 4}
    return chain_model(
        [
            op("AVERAGE_POOL_2D", [pixels], [pooled], {"padding": "VALID", **size}),
            op("RESHAPE", [pooled], [rows], {"new_shape": [batch, channels]}),
        ]
    )


@pytest.fixture
def of_two(pictures: Path) -> Path:
    (pictures / "model.tflite").write_bytes(averages(2))
    return pictures


def best(rows: list[str]) -> list[str]:
    """Return the name of the best class of each row."""
    return [row.rpartition(" ")[2] for row in rows]


@slow
@needs_tflite
def test_each_picture_of_a_batch_has_its_row(of_two: Path, run: Run) -> None:
    ran = run(*ONE, "--image", RED, GREEN, BLUE, RED)
    assert (ran.code, best(ran.out)) == (0, ["red", "green", "blue", "red"])
    assert ran.beginning("WARN") == []
    ran = run(*ONE, "--image", RED, GREEN, BLUE)
    assert (ran.code, best(ran.out)) == (0, ["red", "green", "blue"])
    assert ran.beginning("WARN") == [f"WARN: {SHARED}"]


@slow
@needs_tflite
def test_opencl_gives_the_same_rows(of_two: Path, device: DeviceInfo, run: Run) -> None:
    words = ("--use_gpu", "--device", str(device.index), "--tune", "off")
    for more in ([], ["--batch", "4"], ["--compare", "all"], ["--isolate"]):
        ran = run(*ONE, *words, *more, "--image", RED, GREEN, BLUE)
        assert (ran.code, best(ran.out)) == (0, ["red", "green", "blue"])
    ran = run(*ONE, *words, "--image", RED, "--json", "one.json")
    assert ran.code == 0
    assert "equal to TFLite's reference kernels: 0 quanta" in ran.table


@needs_tflite
def test_one_picture_fills_the_batch_and_all_rows_are_shown(of_two: Path, run: Run) -> None:
    ran = run(*ONE, "--image", GREEN, "--json", "one.json", "--output_dir", "outputs")
    (line,) = ran.beginning("WARN")
    assert "the model takes 2 pictures at once, and each of them is this one" in line
    rows = ["INFO: 0.8: 1 green", "INFO: 0.4: 2 blue", "INFO: 0.2: 0 red"]
    heads = [f"INFO: picture {number} of the batch:" for number in (1, 2)]
    first = ran.lines.index(heads[0])
    assert ran.lines[first : first + 8] == [heads[0], *rows, heads[1], *rows]
    batch = json.loads((of_two / "one.json").read_text())["cpu"]["batch"]
    assert [each["results"][0]["label"] for each in batch] == ["green", "green"]
    (written,) = (of_two / "outputs").glob("*.npy")
    assert np.load(written).shape == (2, 3)


@needs_tflite
def test_a_class_of_python_takes_any_number(of_two: Path) -> None:
    with Classifier("model.tflite", labels=["red", "green", "blue"]) as classify:
        found = classify([RED, GREEN, BLUE])
        assert [rows[0].label for rows in found] == ["red", "green", "blue"]
        assert classify(BLUE)[0].label == "blue"


@slow
@needs_tflite
def test_the_fourth_channel_gets_alpha(files: Path, run: Run) -> None:
    (files / "model.tflite").write_bytes(averages(1, channels=4))
    (files / "labels.txt").write_text("red\ngreen\nblue\nalpha\n")
    Image.new("RGBA", (4, 4), (51, 204, 102, 153)).save(files / "clear.png")
    for name, alpha in (("clear.png", "0.6"), ("picture.bmp", "1")):
        for more in ([], ["clear.png"]):  # here, and in a child that decodes
            ran = run(*ONE, "-r", "4", "--json", "all.json", name, *more)
            assert ran.code == 0
            document = json.loads((files / "all.json").read_text())
            results = document["pictures"][0]["results"] if more else document["cpu"]["results"]
            found = {each["index"]: f"{each['score']:.2g}" for each in results}
            assert found == {0: "0.2", 1: "0.8", 2: "0.4", 3: alpha}
    with Classifier("model.tflite", labels="labels.txt") as classify:
        assert {row.index: round(row.score, 2) for row in classify("clear.png")}[3] == 0.6


@pytest.mark.parametrize(
    ("shape", "words", "why"),
    [
        ((1, 4, 4, 7), [], "(1x4x4x7 uint8): it has 7 channels, and pictures have 1, 3 or 4"),
        ((1, 48), [], "(1x48 uint8): it has no height and width"),
        ((1, 4, 4, 3), ["--input", "0=x.npy"], "(1x4x4x3 uint8): --input gives its values"),
    ],
)  # fmt: skip
def test_a_picture_that_no_input_takes_is_an_error(
    shape: tuple[int, ...], words: list[str], why: str, files: Path, run: Run
) -> None:
    pixels = t(shape, "uint8", 1.0, name="pixels")
    flat = t((1, 48), "uint8", 1.0)
    model = chain_model([op("RESHAPE", [pixels], [flat], {"new_shape": [1, 48]})])
    (files / "model.tflite").write_bytes(model)
    np.save(files / "x.npy", np.zeros(shape, np.uint8))
    ran = run("-m", "model.tflite", "--image", "picture.bmp", *words)
    assert ran.code == 255
    assert ran.lines[-1] == f"ERROR: --image: no input takes a picture: pixels {why}"

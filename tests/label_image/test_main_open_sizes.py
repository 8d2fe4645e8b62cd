# SPDX-License-Identifier: Apache-2.0
"""Commands and classes on a model that leaves its height and width open."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from delegate import DeviceInfo, Model
from label_image import Classifier
from tests.support.command import Run
from tests.support.open_sizes import open_classifier
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl.command import main

WORDS = ("-m", "model.tflite", "-l", "labels.txt", "-b", "0", "-s", "255")
TAKEN = "INFO: the model leaves its height and width open: 224x224 is taken (--input_size)"


@pytest.fixture
def of_any_size(pictures: Path) -> Path:
    (pictures / "model.tflite").write_bytes(open_classifier())
    return pictures


def gpu(device: DeviceInfo) -> tuple[str, ...]:
    return ("--use_gpu", "--device", str(device.index), "--tune", "off")


@needs_tflite
@pytest.mark.parametrize("is_planar", [False, True])
def test_a_picture_has_its_own_size_or_what_is_asked_for(
    of_any_size: Path, run: Run, is_planar: bool
) -> None:
    (of_any_size / "model.tflite").write_bytes(open_classifier(is_planar=is_planar))
    Image.new("RGB", (30, 20), (51, 204, 102)).save("wide.png")
    for words, size in (([], (20, 30)), (["--input_size", "8x5"], (8, 5))):
        ran = run(*WORDS, "-i", "wide.png", *words, "--verbose", "1")
        assert (ran.code, ran.beginning(TAKEN)) == (0, [])
        assert ran.lines[-3].endswith("1 green")
        elements = 3 * size[0] * size[1]
        assert any(f"image, {4 * elements}, 1, " in line for line in ran.lines)


@needs_tflite
def test_a_size_that_cannot_run_becomes_224(of_any_size: Path, run: Run) -> None:
    (of_any_size / "model.tflite").write_bytes(open_classifier(least=8))
    ran = run(*WORDS, "-i", "picture.bmp")  # of 4 x 4
    assert ran.code == 0
    assert any("does not run at the picture's 4x4: 224x224 is taken" in x for x in ran.lines)
    ran = run(*WORDS, "-i", "picture.bmp", "--input_size", "224")
    assert (ran.code, "'224' is not HEIGHTxWIDTH, as 224x224" in ran.err[0]) == (64, True)


@slow
@needs_tflite
def test_opencl_runs_it(of_any_size: Path, device: DeviceInfo, run: Run) -> None:
    for more in ([], ["--isolate"]):
        ran = run(*WORDS, *gpu(device), "-i", "picture.bmp", "--input_size", "6x5", *more)
        assert ran.code == 0
        assert ran.lines[ran.lines.index("INFO: invoked") :]
        assert "floats" in ran.table
    ran = run(*WORDS, *gpu(device), "--batch", "2", "-i", "pictures")
    assert (ran.code, ran.beginning(TAKEN)) == (0, [TAKEN])
    assert sorted(row.rpartition(" ")[2] for row in ran.out) == ["blue", "green", "red"]


def test_a_model_in_python_is_given_shapes(of_any_size: Path, device: DeviceInfo) -> None:
    pixels = np.random.default_rng(1).random((1, 5, 6, 3)).astype(np.float32)
    ambiguities = pixels.mean(axis=(1, 2))
    wanted = np.exp(ambiguities) / np.exp(ambiguities).sum()
    for name in ("image", 0):
        with Model("model.tflite", device.index, shapes={name: (1, 5, 6, 3)}, tune="off") as model:
            assert model.input_details[0].shape == (1, 5, 6, 3)
            assert np.allclose(model.run(pixels)[0], wanted, atol=1e-6)
    for shapes, why in (
        ({"nothing": (1,)}, "no input 'nothing': image"),
        ({"image": (5, 6)}, "is no shape of it"),
    ):
        with pytest.raises(ValueError, match=why):
            Model("model.tflite", device.index, shapes=shapes, tune="off")


@needs_tflite
def test_a_class_of_python_takes_a_size(
    of_any_size: Path, caplog: pytest.LogCaptureFixture
) -> None:
    labels = ["red", "green", "blue"]
    with Classifier("model.tflite", labels=labels, mean=0, std=255, size=(5, 6)) as classify:
        assert classify("picture.bmp")[0].label == "green"
    with caplog.at_level(logging.INFO, "tflite_opencl"):
        Classifier("model.tflite", labels=labels).close()
    assert "224x224 is taken" in caplog.text


@slow
@needs_tflite
def test_run_and_compare_take_it(
    of_any_size: Path, device: DeviceInfo, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("x.npy", np.random.default_rng(1).random((1, 5, 6, 3)).astype(np.float32))
    words = ["--device", str(device.index), "--tune", "off", "--input", "image=x.npy"]
    assert main(["run", "model.tflite", *words, "--output", "out"]) == 0
    assert np.load("out/scores.npy").shape == (1, 3)
    paths = ["--paths", f"cpu,opencl:{device.index}", "--tune", "off", "-c", "1", "-w", "0"]
    assert main(["compare", "model.tflite", "--input_size", "5x6", *paths]) == 0
    assert "failed" not in capsys.readouterr().out

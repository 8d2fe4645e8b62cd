# SPDX-License-Identifier: Apache-2.0
"""label_image's classes in Python: pictures in, results out, on the CPU and on devices."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import label_image
from delegate import DeviceInfo, ModelError, NoDeviceError, Unsupported
from label_image import Classifier, Detector, PictureError, Poses, RunError, Segmenter
from label_image.scene import Area, Class, Detection, Sides
from tests.support.command import Run, pooling_model
from tests.support.isolated import children
from tests.support.metadata import with_metadata
from tests.support.model import chain_model, op, t
from tests.support.scenes import constant_model, detector, segmenter
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite

GREEN, BLUE = (51, 204, 102), (0, 51, 153)
MODEL = pooling_model(t((1, 4, 4, 3), "uint8", 1.0, 0))
NAMES = ["red", "green", "blue"]
BEST = [Class("green", 0.8, 1), Class("blue", 0.4, 2), Class("red", 0.2, 0)]
SHARES = [
    Detection("green", 0.8, Sides(0, 0, 20, 20), 0),
    Detection("blue", 0.6, Sides(20, 0, 40, 20), 1),
]


def half() -> Image.Image:
    """Return a picture, green on the left and blue on the right."""
    picture = Image.new("RGB", (40, 20), GREEN)
    picture.paste(BLUE, (20, 0, 40, 20))
    return picture


def rounded(found: list[Any]) -> list[Any]:
    """Return classes and things with scores of few digits."""
    kinds = {Class: lambda each, score: Class(each.label, score, each.index)}
    kinds[Detection] = lambda each, score: Detection(each.label, score, each.box, each.index)
    return [kinds[type(each)](each, round(each.score, 4)) for each in found]


def test_a_picture_may_be_given_in_many_ways(tmp_path: Path) -> None:
    green = Image.new("RGB", (9, 7), GREEN)
    path = tmp_path / "green.png"
    green.save(path)
    alpha = green.copy()
    alpha.putalpha(255)
    (tmp_path / "model.tflite").write_bytes(MODEL)
    with Classifier(tmp_path / "model.tflite", labels=NAMES) as classify:
        assert classify.device == "CPU"
        assert classify.verdicts == ()
        for picture in (path, str(path), path.read_bytes(), green, np.asarray(green), alpha,
                        np.asarray(alpha)):  # fmt: skip
            assert rounded(classify(picture)) == BEST
        assert [rounded(each) for each in classify([green, path])] == [BEST, BEST]
        assert classify([]) == []
        gray = np.full((5, 5), 102, np.uint8)
        assert {round(each.score, 4) for each in classify(gray)} == {0.4}
        assert {round(each.score, 4) for each in classify(gray[..., np.newaxis])} == {0.4}


def test_without_labels_a_class_is_its_number() -> None:
    green = Image.new("RGB", (4, 4), GREEN)
    assert [each.label for each in Classifier(MODEL)(green)] == ["1", "2", "0"]


def test_labels_and_numbers_of_the_model_are_used() -> None:
    model = with_metadata(
        pooling_model(t((1, 4, 4, 3), "float32")),
        [{"name": "image", "mean": [0], "std": [255]}],
        [{"files": [("l.txt", "axis labels", "")]}],
        {"l.txt": b"r\ng\nb\n"},
    )
    green = Image.new("RGB", (4, 4), GREEN)
    assert rounded(Classifier(model)(green)) == [
        Class("g", 0.8, 1), Class("b", 0.4, 2), Class("r", 0.2, 0)
    ]  # fmt: skip
    scores = [each.score for each in Classifier(model, std=51, threshold=1.5)(green)]
    assert scores == [4, 2]


def test_a_detector_on_the_cpu_and_on_a_device(device: DeviceInfo) -> None:
    labels = ["green", "blue"]
    assert rounded(Detector(detector(), labels=labels)(half())) == SHARES
    with Detector(detector(), labels=labels, device=device.index, tune="off") as detect:
        assert detect.device == device.name
        assert all(each.is_taken for each in detect.verdicts)
        assert [rounded(each) for each in detect([half(), half()])] == [SHARES, SHARES]


def test_a_batch_on_a_device_is_what_the_cpu_gives(device: DeviceInfo) -> None:
    rng = np.random.default_rng(1)
    pictures = [rng.integers(0, 256, (6, 5, 3)).astype(np.uint8) for _ in range(5)]
    expected = Classifier(MODEL, labels=NAMES)(pictures)
    with Classifier(MODEL, device=device.index, labels=NAMES, batch=2, tune="off") as classify:
        assert all(each.is_taken for each in classify.verdicts)
        assert classify(pictures) == expected
        assert classify(pictures[3]) == expected[3]


@pytest.mark.device
def test_every_device_takes_some(every_device: None) -> None:
    pictures = [np.full((4, 4, 3), value, np.uint8) for value in range(40)]
    with Classifier(MODEL, device="all", batch=2, tune="off") as classify:
        assert classify(pictures) == Classifier(MODEL)(pictures)


@pytest.fixture
def every_device() -> None:
    """Skip where there is no device."""
    from delegate import list_devices

    try:
        list_devices()
    except NoDeviceError as error:
        pytest.skip(str(error))


def test_a_mask_has_the_picture_s_size() -> None:
    mask = Segmenter(segmenter(), labels=["red", "green"])(half())
    assert mask.classes.shape == (20, 40)
    assert (mask.classes[:, :20] == 1).all()
    assert (mask.classes[:, 20:] == 2).all()
    assert mask.areas == [Area("green", 0.5, 1), Area("2", 0.5, 2)]


def test_a_pose_has_named_points() -> None:
    points: NDArray[np.float32] = np.zeros((1, 1, 17, 3), np.float32)
    points[0, 0, 0] = (0.5, 0.25, 0.75)
    (pose,) = Poses(constant_model(points))(half())
    nose = pose.points[0]
    assert (nose.name, nose.score, nose.x, nose.y) == ("nose", 0.75, 10, 10)


def test_the_kind_of_a_task_may_be_said() -> None:
    rows = np.zeros((1, 6, 84), np.float32)
    rows[0, :, 40] = (0.5, 0.5, 0.5, 1.5, 0.125, 0.75)
    expected = [Detection("1", 0.75, Sides(10, 0, 30, 20), 1)]
    assert Detector(constant_model(rows), task="detection:yolo8")(half()) == expected
    assert Detector(constant_model(rows), threshold=0.8)(half()) == []
    with pytest.raises(ValueError, match="'pose' is no task of Detector"):
        Detector(constant_model(rows), task="pose")
    with pytest.raises(RunError, match="no detection:centernet is in the outputs, 1x6x84 float32"):
        Detector(constant_model(rows), task="detection:centernet")


def test_the_command_gives_the_same(files: Path, run: Run) -> None:
    rng = np.random.default_rng(2)
    Image.fromarray(rng.integers(0, 256, (9, 7, 3)).astype(np.uint8)).save("noise.png")
    ran = run("-m", "model.tflite", "-i", "noise.png", "-l", "labels.txt")
    found = Classifier("model.tflite", labels="labels.txt")("noise.png")
    assert ran.lines[-3:] == [f"INFO: {each.score:g}: {each.index} {each.label}" for each in found]


def not_a_picture() -> list[Any]:
    flat = np.zeros((4, 4, 2), np.uint8)
    return [b"", b"no picture", flat, np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8), 7]


@pytest.mark.parametrize("picture", not_a_picture(), ids=["0", "1", "2", "3", "4", "5"])
def test_what_is_no_picture_is_a_picture_error(picture: Any) -> None:
    with pytest.raises(PictureError) as caught:
        Classifier(MODEL)(picture)
    assert len(str(caught.value).splitlines()) == 1


def test_errors_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"Failed to mmap model no\.tflite: No such file"):
        Classifier("no.tflite")
    with pytest.raises(ModelError, match=r"not a \.tflite model"):
        Classifier(b"x" * 100)
    with pytest.raises(RunError, match=r"Labels file no\.txt not found"):
        Classifier(MODEL, labels="no.txt")
    with pytest.raises(RunError, match=r"no detection is in the outputs, 1x3 uint8: they may be"):
        Detector(MODEL)
    with pytest.raises(FileNotFoundError):
        Classifier(MODEL)(tmp_path / "no.png")
    with pytest.raises(RunError, match="no input of the model takes one picture"):
        Classifier(chain_model([op("RELU", [t((1, 640))], [t((1, 640))])]))
    with pytest.raises(NoDeviceError):
        Classifier(MODEL, device="no such device")


def test_a_device_that_runs_nothing_is_an_error(device: DeviceInfo) -> None:
    source, found = t((1, 4, 4, 3), "float32"), t((1, 4, 4, 3), "float32")
    model = chain_model([op("LOCAL_RESPONSE_NORMALIZATION", [source], [found])])
    assert Segmenter(model)(half()).classes.shape == (20, 40)
    with pytest.raises(Unsupported, match="LOCAL_RESPONSE_NORMALIZATION is not implemented"):
        Segmenter(model, device=device.index)


@slow
@needs_tflite
def test_after_three_deaths_the_cpu_runs_all_of_it(
    device: DeviceInfo, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a model that OpenCL runs in part: nobody takes TFLite's kernels for OpenCL's."""
    source, middle, found = (t((1, 4, 4, 3), "float32") for _ in range(3))
    model = chain_model(
        [
            op("RELU", [source], [middle]),
            op("LOCAL_RESPONSE_NORMALIZATION", [middle], [found]),
        ]
    )
    with Segmenter(model, device=device.index, tune="off", isolate=True) as segment:
        wanted = segment(half()).classes
        assert segment.device == device.name
        for _ in range(3):
            for child in children():
                os.kill(child, signal.SIGKILL)
            with pytest.raises(RunError, match="died with SIGKILL"):
                segment(half())
            np.testing.assert_array_equal(segment(half()).classes, wanted)
        assert (segment.device, segment.verdicts) == ("CPU", ())
    (warning,) = [each for each in caplog.messages if "the CPU runs the model" in each]
    assert "ended 3 times within 60 s" in warning


def test_a_closed_one_may_be_closed_again() -> None:
    classify = Classifier(MODEL)
    classify.close()
    classify.close()


@slow
def test_the_names_come_when_they_are_asked_for() -> None:
    code = (
        "import sys, label_image\n"
        "assert 'delegate' not in sys.modules and 'numpy' not in sys.modules\n"
        "assert label_image.Detector.__name__ == 'Detector'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert set(label_image.__all__) <= {*dir(label_image), *label_image.__all__}
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = label_image.Nothing


def test_upright_as_the_picture_says() -> None:
    picture = half()
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    content = io.BytesIO()
    picture.save(content, "PNG", exif=exif)
    labels = ["green", "blue"]
    found = Detector(detector(), labels=labels)(content.getvalue())
    assert [(each.label, each.box.left) for each in found] == [("green", 20), ("blue", 0)]

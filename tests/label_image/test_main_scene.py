# SPDX-License-Identifier: Apache-2.0
"""The command with detectors, segmenters and inputs in other orders, on one and many pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from delegate import DeviceInfo, NoDeviceError, OpenCLDelegate
from tests.support.command import Run
from tests.support.model import chain_model, op, t
from tests.support.scenes import constant_model, detector, segmenter
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl import __version__

WORDS = ("-m", "model.tflite", "-l", "labels.txt")
GREEN, BLUE = (51, 204, 102), (0, 51, 153)
BOXES = [
    "INFO: 0.8: 0 green, left 0, top 0, right 20, bottom 20",
    "INFO: 0.6: 1 blue, left 20, top 0, right 40, bottom 20",
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with half.png, green on the left and blue on the right, and go there."""
    monkeypatch.chdir(tmp_path)
    picture = Image.new("RGB", (40, 20), GREEN)
    picture.paste(BLUE, (20, 0, 40, 20))
    picture.save("half.png")
    Path("labels.txt").write_text("green\nblue\n")
    return tmp_path


def pixels_of(name: str) -> NDArray[np.uint8]:
    with Image.open(name) as image:
        return np.asarray(image)


def infos(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith(("INFO: 0.", "INFO: 5", "INFO: output"))]


@pytest.mark.parametrize(
    ("left_out", "delegated"), [("TFLite_Detection_PostProcess", 3), ("none", 4)]
)
def test_a_detector(
    here: Path, run: Run, device: DeviceInfo, left_out: str, delegated: int
) -> None:
    Path("model.tflite").write_bytes(detector())
    ran = run(
        *WORDS, "-i", "half.png", "--use_gpu", "--device", str(device.index), "--json", "a.json",
        "--output_image", "drawn.png", "--tune", "off", "--min_nodes_per_partition", "1",
        *(("--exclude_ops", left_out) if delegated == 3 else ()),
    )  # fmt: skip
    assert ran.code == 0
    assert infos(ran.lines) == BOXES
    assert "INFO: the picture is in drawn.png" in ran.lines
    document = json.loads(Path("a.json").read_text())
    assert document["gpu"]["detections"] == document["cpu"]["detections"]
    assert [each["label"] for each in document["gpu"]["detections"]] == ["green", "blue"]
    assert document["gpu"]["delegated"] == delegated
    before, after = map(pixels_of, ("half.png", "drawn.png"))
    assert (before != after).any()


def test_a_segmenter(here: Path, run: Run, device: DeviceInfo) -> None:
    Path("model.tflite").write_bytes(segmenter())
    ran = run(
        *WORDS, "-i", "half.png", "--use_gpu", "--device", str(device.index), "--json", "a.json",
        "--output_image", "drawn.png", "--tune", "off",
    )  # fmt: skip
    assert ran.code == 0
    assert infos(ran.lines) == ["INFO: 50.0 %: 1 blue", "INFO: 50.0 %: 2"]
    document = json.loads(Path("a.json").read_text())
    assert document["gpu"]["segments"] == [
        {"index": 1, "label": "blue", "share": 0.5},
        {"index": 2, "label": None, "share": 0.5},
    ]
    assert pixels_of("drawn.png").shape == (20, 40, 3)


@needs_tflite
def test_without_a_device_the_cpu_finds_the_same(
    here: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoDelegate(OpenCLDelegate):
        def __init__(self, *_: object, **__: object) -> None:
            raise NoDeviceError("no OpenCL platform was found")

    monkeypatch.setattr("tflite_opencl.interpreters.interpreter.OpenCLDelegate", NoDelegate)
    Path("model.tflite").write_bytes(detector())
    ran = run(*WORDS, "-i", "half.png", "--use_gpu", "--output_image", "drawn.png")
    assert ran.code == 2
    assert infos(ran.lines) == BOXES
    assert Path("drawn.png").is_file()


@slow
def test_lines_of_json_for_several_pictures(here: Path, run: Run) -> None:
    Path("model.tflite").write_bytes(detector())
    words = (*WORDS, "half.png", "none.png", "half.png", "-r", "2")
    ran = run(*words, "--json_lines", "-")
    assert ran.code == 255
    first, missing, last = map(json.loads, ran.out)
    assert (first["schema"], first["tflite_opencl"]) == (1, __version__)
    assert first["model"] == "model.tflite"
    assert first == last
    assert [each["label"] for each in first["detections"]] == ["green", "blue"]
    assert first["detections"][1]["box"] == {"left": 20, "top": 0, "right": 40, "bottom": 20}
    assert missing["error"] == "input file none.png not found"
    ran = run(*words, "--json_lines", "a.jsonl", "--json", "a.json")
    assert [json.loads(line) for line in Path("a.jsonl").read_text().splitlines()] == [
        first, missing, last
    ]  # fmt: skip
    assert json.loads(Path("a.json").read_text())["pictures"][0]["detections"]
    assert ran.out[0] == (
        "half.png\t0.8: 0 green, left 0, top 0, right 20, bottom 20"
        "\t0.6: 1 blue, left 20, top 0, right 40, bottom 20"
    )


@slow
def test_a_picture_in_pytorchs_order(here: Path, run: Run, device: DeviceInfo) -> None:
    planar, sums = t((1, 3, 4, 4), "float32"), t((1, 3), "float32")
    axes = t((2,), "int32", data=np.array([2, 3], np.int32))
    nodes = [op("MEAN", [planar, axes], [sums], {"keep_dims": False})]
    Path("model.tflite").write_bytes(chain_model(nodes))
    Image.new("RGB", (9, 7), (255, 51, 0)).save("red.png")
    words = ("-m", "model.tflite", "-l", "labels.txt", "-b", "0", "-s", "255", "--tune", "off")
    Path("labels.txt").write_text("red\ngreen\nblue\n")
    ran = run(*words, "-i", "red.png", "--use_gpu", "--device", str(device.index))
    assert ran.code == 0
    assert infos(["".join(line) for line in ran.lines])[0].startswith("INFO: 0.2: 1 green")
    several = run(*words, "red.png", "half.png")
    assert several.code == 0
    assert [row.split("\t")[1].split(":")[1] for row in several.out] == [" 0 red", " 2 blue"]


def test_boxes_as_coco_and_csv_and_what_was_expected(here: Path, run: Run) -> None:
    Path("model.tflite").write_bytes(detector())
    content = {
        "images": [{"id": 3, "file_name": "half.png"}],
        "annotations": [{"image_id": 3, "category_id": 40, "bbox": [0, 0, 20, 20]}],
        "categories": [{"id": 40, "name": "green"}, {"id": 50, "name": "blue"}],
    }
    Path("e.json").write_text(json.dumps(content))
    words = ("--coco", "c.json", "--csv", "c.csv", "--expect", "e.json", "--json", "a.json")
    ran = run(*WORDS, "-i", "half.png", *words)
    assert ran.code == 0
    (row,) = ran.out
    assert row.startswith("half.png\t0.8: 0 green, left 0, top 0, right 20, bottom 20\t0.6: 1 blue")
    green, blue = json.loads(Path("c.json").read_text())
    assert (green["image_id"], green["category_id"], green["bbox"]) == (3, 40, [0, 0, 20, 20])
    assert (blue["category_id"], blue["bbox"]) == (50, [20, 0, 20, 20])
    table = Path("c.csv").read_text().splitlines()
    assert table[0] == "image,index,label,score,left,top,right,bottom"
    assert [line.split(",")[2] for line in table[1:]] == ["green", "blue"]
    assert json.loads(Path("a.json").read_text())["expected"]["map"] == pytest.approx(1.0)
    assert "mAP@[.5:.95] 1.0000, mAP@.5 1.0000" in " ".join(ran.lines)


@pytest.mark.parametrize(
    ("words", "row"),
    [
        (["--classes", "BLUE"], "0.6: 1 blue, left 20, top 0, right 40, bottom 20"),
        (["--classes", "0,x"], ""),
        (["--threshold", "0.7", "-r", "9"], "0.8: 0 green, left 0, top 0, right 20, bottom 20"),
        (["--threshold", "0.9"], "nothing is found"),
    ],
)
def test_what_is_shown_can_be_chosen(here: Path, run: Run, words: list[str], row: str) -> None:
    Path("model.tflite").write_bytes(detector())
    ran = run(*WORDS, "half.png", "--batch", "1", *words)
    if not row:
        assert ran.code == 64
        assert ran.lines[-1].startswith("ERROR: --classes: there is no class x")
        return
    assert (ran.code, ran.out) == (0, [f"half.png\t{row}"])
    one = run(*WORDS, "-i", "half.png", *words)
    assert f"INFO: {row}" in one.lines


@pytest.mark.parametrize("words", [["-i", "half.png"], ["half.png", "--batch", "1"]])
def test_output_dir_has_the_picture_with_results_drawn(
    here: Path, run: Run, words: list[str]
) -> None:
    Path("model.tflite").write_bytes(segmenter())
    folder = Path("out") if len(words) == 2 else Path("out", "000001_half.png")
    assert run(*WORDS, *words, "--output_dir", "out").code == 0
    assert {"drawn.jpg", "mask.png"} < {path.name for path in folder.iterdir()}
    assert pixels_of(str(folder / "drawn.jpg")).shape == (20, 40, 3)
    mask = pixels_of(str(folder / "mask.png"))
    assert (mask == np.repeat([[1] * 20 + [2] * 20], 20, axis=0)).all()
    assert run(*WORDS, *words, "--output_dir", "out", "--classes", "2").code == 0
    assert {0, 2} == set(pixels_of(str(folder / "mask.png")).flat)


def yolo_rows() -> NDArray[np.float32]:
    """Return a v8's outputs for 64 x 64 pixels: a thing in the middle, of the second class."""
    rows = np.zeros((1, 6, 84), np.float32)
    rows[0, :, 40] = (0.5, 0.5, 0.5, 1.5, 0.125, 0.75)
    return rows


def test_a_yolo_is_read_whatever_runs_it(here: Path, run: Run, device: DeviceInfo) -> None:
    Path("model.tflite").write_bytes(constant_model(yolo_rows()))
    ran = run(
        *WORDS, "-i", "half.png", "--use_gpu", "--device", str(device.index), "--json", "a.json",
        "--output_image", "drawn.png", "--tune", "off",
    )  # fmt: skip
    assert ran.code == 0
    assert infos(ran.lines) == ["INFO: 0.75: 1 blue, left 10, top 0, right 30, bottom 20"]
    document = json.loads(Path("a.json").read_text())
    assert document["gpu"]["delegated"] == 3
    assert document["gpu"]["detections"] == document["cpu"]["detections"]
    assert (pixels_of("half.png") != pixels_of("drawn.png")).any()
    line = "INFO: pixels for detection:yolo8: mean 0, standard deviation 255"
    assert ran.beginning(line)
    several = run(*WORDS, "half.png", "half.png", "--task", "detection:yolo8", "-b", "0")
    assert several.beginning(line) == []
    assert several.out == ["half.png\t0.75: 1 blue, left 10, top 0, right 30, bottom 20"] * 2
    refused = run(*WORDS, "-i", "half.png", "--task", "pose")
    assert refused.code == 255
    assert refused.lines[-1] == (
        "ERROR: no pose is in the outputs, 1x6x84 float32: they may be "
        "detection:yolox, detection:yolo8"
    )


def test_a_pose_is_read_and_drawn(here: Path, run: Run) -> None:
    points = np.zeros((1, 1, 17, 3), np.float32)
    points[0, 0, :2] = (0.5, 0.25, 0.75), (0.25, 0.75, 0.5)
    Path("model.tflite").write_bytes(constant_model(points))
    ran = run("-m", "model.tflite", "-i", "half.png", "--output_image", "drawn.png")
    assert ran.code == 0
    assert "INFO: 0.75: nose, x 10, y 10" in ran.lines
    assert "INFO: 0.5: left eye, x 30, y 5" in ran.lines
    before, after = map(pixels_of, ("half.png", "drawn.png"))
    assert (before[10, 12:20] != after[10, 12:20]).any()
    assert (before[15:] == after[15:]).all()

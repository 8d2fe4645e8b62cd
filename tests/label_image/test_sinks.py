# SPDX-License-Identifier: Apache-2.0
"""What is written of many pictures: lines of JSON, rows of CSV, COCO's results; going on."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from label_image.expect import ExpectedBoxes
from label_image.sinks import Coco, Csv, Lines, kept_entries, lines_to
from tflite_opencl.console.errors import RunError

ROWS = {
    "image": "a, b.png",
    "results": [
        {"index": 1, "label": 'dog, "hound"', "score": 0.75},
        {"index": 0, "label": None, "score": 0.25},
    ],
}
BOX = {"left": 1.0, "top": 2.0, "right": 11.5, "bottom": 22.25}
BOXES = {
    "image": "x/000000000139.jpg",
    "detections": [{"index": 3, "label": "dog", "score": 0.5, "box": BOX}],
}
ERROR = {"image": "bad.png", "error": "cannot read picture bad.png"}


def csv_of(*entries: dict[str, Any]) -> list[list[str]]:
    written: list[str] = []
    sink = Csv(written.append)
    for entry in entries:
        sink.add(entry)
    return list(csv.reader(io.StringIO("\n".join(written))))


def test_csv_has_a_row_a_result() -> None:
    assert csv_of(ERROR, ROWS, ERROR, {"image": "c", "results": []}) == [
        ["image", "index", "label", "score"],
        ["a, b.png", "1", 'dog, "hound"', "0.75"],
        ["a, b.png", "0", "", "0.25"],
    ]


def test_csv_has_a_row_a_box_or_a_class_of_a_mask() -> None:
    header = ["image", "index", "label", "score", "left", "top", "right", "bottom"]
    row = ["x/000000000139.jpg", "3", "dog", "0.5", "1.0", "2.0", "11.5", "22.25"]
    assert csv_of(BOXES) == [header, row]
    segments = {"image": "a", "segments": [{"index": 1, "label": "sea", "share": 0.5}]}
    assert csv_of(segments) == [["image", "index", "label", "share"], ["a", "1", "sea", "0.5"]]


def test_a_model_without_rows_is_refused() -> None:
    with pytest.raises(RunError, match=r"^--csv: the model gives no results and no detections"):
        csv_of({"image": "a", "outputs": []})
    with pytest.raises(RunError, match=r"^--coco: the model gives no detections$"):
        Coco(print, None).add(ROWS)


def coco_of(expected: ExpectedBoxes | None, *entries: dict[str, Any]) -> list[dict[str, Any]]:
    written: list[str] = []
    sink = Coco(written.append, expected)
    for entry in entries:
        sink.add(entry)
    sink.end({})
    found: list[dict[str, Any]] = json.loads("\n".join(written))
    return found


def test_coco_is_a_list_of_boxes_in_pixels() -> None:
    other = {"image": "b.jpg", "detections": BOXES["detections"]}
    box = {"category_id": 3, "bbox": [1.0, 2.0, 10.5, 20.25], "score": 0.5}
    # A name that is a number is the picture's; others are counted.
    assert coco_of(None, BOXES, ERROR, other) == [{"image_id": 139, **box}, {"image_id": 3, **box}]
    assert coco_of(None, ERROR) == []


def test_coco_has_the_numbers_of_what_is_expected() -> None:
    content = {
        "images": [{"id": 5, "file_name": "000000000139.jpg"}],
        "annotations": [],
        "categories": [{"id": 18, "name": "dog"}],
    }
    zebra = {"index": 9, "label": "zebra", "score": 0.5, "box": BOX}
    entry = BOXES | {"detections": [zebra, *BOXES["detections"]]}
    (box,) = coco_of(ExpectedBoxes("f", content), entry)
    assert (box["image_id"], box["category_id"]) == (5, 18)


def lines(path: Path, *images: str, is_resumed: bool = False) -> None:
    with lines_to(str(path), io.StringIO(), "ab" if is_resumed else "wb") as write:
        sink = Lines(write, {"model": "m"})
        for image in images:
            sink.add({"image": image})
            assert path.read_text().endswith("\n")  # at once, and whole


def test_lines_are_there_at_once_and_a_run_goes_on_after_any_byte(tmp_path: Path) -> None:
    path = tmp_path / "l"
    lines(path, "a", "b", "c")
    whole = path.read_bytes()
    ends = [number + 1 for number, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        kept = [entry["image"] for entry in kept_entries(str(path), "m")]
        assert kept == ["a", "b", "c"][: sum(end <= length for end in ends)]
        lines(path, *"abc"[len(kept) :], is_resumed=True)
        assert path.read_bytes() == whole


def test_what_a_power_failure_left_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "l"
    lines(path, "a")
    path.write_bytes(path.read_bytes() + bytes(99))
    assert [entry["image"] for entry in kept_entries(str(path), "m")] == ["a"]
    assert path.read_bytes().endswith(b"}\n")


def test_a_new_run_begins_the_file_anew(tmp_path: Path) -> None:
    lines(tmp_path / "l", "a", "b")
    lines(tmp_path / "l", "c")
    assert [entry["image"] for entry in kept_entries(str(tmp_path / "l"), "m")] == ["c"]
    assert list(kept_entries(str(tmp_path / "none"), "m")) == []


@pytest.mark.parametrize("text", ["[]\n{}\n", "{}\nx\n", "old\nfile\n", "[" * 99999 + "\n{}\n"])
def test_another_file_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "l").write_text(text)
    with pytest.raises(RunError, match=r"^--resume: .*l, line 1 is no picture's"):
        list(kept_entries(str(tmp_path / "l"), "m"))
    assert (tmp_path / "l").read_text() == text


def test_lines_of_another_model_are_refused(tmp_path: Path) -> None:
    lines(tmp_path / "l", "a")
    with pytest.raises(RunError, match=r"is of the model m$"):
        list(kept_entries(str(tmp_path / "l"), "n"))

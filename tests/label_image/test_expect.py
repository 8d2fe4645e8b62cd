# SPDX-License-Identifier: Apache-2.0
"""What is in pictures by a file, and how much of it was found.

Mean average precision: values of pycocotools 2.0.11 for the same boxes, and its corner cases.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from label_image.expect import ByFile, GroundTruth, read_expected
from label_image.precision import OVERLAPS, MeanPrecision, Thing
from tflite_opencl.console.errors import RunError

LABELS = ("background", "cat", "dog, hound", "bird")


def picture(image: str, *indices: int, labels: Sequence[str] = LABELS) -> dict[str, Any]:
    rows = [
        {"index": index, "label": labels[index] if labels else None, "score": 0.5}
        for index in indices
    ]
    return {"image": image, "results": rows}


def read(tmp_path: Path, text: str, labels: Sequence[str] = LABELS, most: int = 5) -> GroundTruth:
    (tmp_path / "expected").write_text(text)
    return read_expected(str(tmp_path / "expected"), labels, most)


def test_classes_are_counted_without_the_background(tmp_path: Path) -> None:
    expected = read(tmp_path, "file,index,also_ok\na.png,0,\nsub/b.png,1,2 0\nc.png,2,\nd.png,1,\n")
    expected.add(picture("x/a.png", 1))
    expected.add(picture("x/b.png", 3, 1))
    expected.add(picture("x/c.png", 1, 2, 3))
    expected.add(picture("x/d.png", 1, 3))
    assert expected.text == "top-1 2 of 4 (50.0 %), top-5 3 of 4 (75.0 %)"
    assert expected.entry == {"pictures": 4, "top_1": 2, "top_5": 3}
    assert expected.is_met()


def test_without_a_background_the_index_is_the_model_s_own(tmp_path: Path) -> None:
    expected = read(tmp_path, "file,index\na.png,1\n", labels=LABELS[1:])
    expected.add(picture("a.png", 1, labels=LABELS[1:]))
    assert expected.entry["top_1"] == 1
    expected = read(tmp_path, "file,index\na.png,1\n", labels=())
    expected.add(picture("a.png", 1, labels=()))
    assert expected.entry["top_1"] == 1


@pytest.mark.parametrize("label", ["dog", "Hound", "dog, hound", '"dog,hound"'])
def test_classes_may_be_named(tmp_path: Path, label: str) -> None:
    text = label if "," not in label or label[0] == '"' else f'"{label}"'
    expected = read(tmp_path, f"label,file\n{text},a.png\n")
    expected.add(picture("a.png", 2))
    assert expected.entry["top_1"] == 1


def test_fewer_than_five_results_tell_no_top_5(tmp_path: Path) -> None:
    expected = read(tmp_path, "file,index\na.png,0\n", most=4)
    expected.add(picture("a.png", 1))
    assert expected.text == "top-1 1 of 1 (100.0 %)"


def test_pictures_that_are_not_in_the_file_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = read(tmp_path, "file,index\na.png,0\n")
    expected.add(picture("b.png", 1))
    expected.add({"image": "a.png", "error": "cannot read picture a.png"})
    assert not expected.is_met()
    expected.add(picture("a.png", 1))
    assert expected.is_met()
    none, some = caplog.messages
    assert none.startswith("--expect: none of the pictures is in ")
    assert some.startswith("--expect: 1 of 2 pictures are not in ")


def test_a_model_that_gives_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="gives classes of pictures, and the model gives none"):
        read(tmp_path, "file,index\na.png,0\n").add({"image": "a.png", "detections": []})
    with pytest.raises(RunError, match="gives boxes, and the model gives none"):
        read(tmp_path, json.dumps(COCO)).add(picture("a.png", 1))


@pytest.mark.parametrize(
    "text",
    ["", "a,b\n1,2\n", "file,index\na.png,x\n", "file,index\n,3\n", "file,label\na.png,\n", "{}",
     "[1]", '{"images": 3}', "{", '{"images": [{"id": 1}], "annotations": [], "categories": []}',
     "[" * 99_999, "file,index\n" + "a" * 200_000 + ",1\n"],
)  # fmt: skip
def test_other_files_are_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(RunError, match=r"^--expect: .*expected"):
        read(tmp_path, text)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"--expect: cannot read .*: No such file"):
        read_expected(str(tmp_path / "none"), LABELS, 5)


def test_files_are_found_by_the_longest_end_in_common() -> None:
    names = ByFile({"a/x.png": 1, "b/x.png": 2, "y.png": 3, "c/z.png": 4, "c/../w.png": 5})
    assert names.find("/data/b/x.png") == 2
    assert names.find("x.png") is None  # which one?
    assert names.find("elsewhere/x.png") is None
    assert names.find("other/y.png") == 3
    assert names.find("other/z.png") == 4
    assert names.find("./w.png") == 5


COCO = {
    "images": [{"id": 7, "file_name": "a.png"}, {"id": 9, "file_name": "b.png"}],
    "annotations": [
        {"image_id": 7, "category_id": 18, "bbox": [0, 0, 10, 10], "iscrowd": 0},
        {"image_id": 9, "category_id": 17, "bbox": [0, 0, 10, 10]},
        {"image_id": 1, "category_id": 17, "bbox": [0, 0, 10, 10]},  # of no picture
    ],
    "categories": [{"id": 17, "name": "cat"}, {"id": 18, "name": "Dog"}],
}


def detection(label: str | None, right: float, index: int = 3) -> dict[str, Any]:
    box = {"left": 0.0, "top": 0.0, "right": right, "bottom": 10.0}
    return {"index": index, "label": label, "score": 0.5, "box": box}


def test_boxes_give_the_mean_average_precision(tmp_path: Path) -> None:
    expected = read(tmp_path, json.dumps(COCO))
    expected.add({"image": "x/a.png", "detections": [detection("dog", 12.0)]})
    expected.add({"image": "b.png", "detections": [detection("zebra", 10.0)]})
    assert expected.text == "mAP@[.5:.95] 0.3500, mAP@.5 0.5000, mAP@.75 0.5000, of 2 pictures"
    assert expected.entry == {
        "pictures": 2, "map": pytest.approx(0.35), "map_50": pytest.approx(0.5),
        "map_75": pytest.approx(0.5),
    }  # fmt: skip


def test_boxes_without_labels_are_of_the_category_of_their_number(tmp_path: Path) -> None:
    expected = read(tmp_path, json.dumps(COCO))
    expected.add({"image": "b.png", "detections": [detection(None, 10.0, 17)]})
    assert expected.entry["map"] == pytest.approx(1.0)


def test_pictures_with_nothing_to_find_have_no_precision(tmp_path: Path) -> None:
    expected = read(tmp_path, json.dumps(COCO | {"annotations": []}))
    expected.add({"image": "a.png", "detections": [detection("dog", 10.0)]})
    assert expected.text == "nothing to find in 1 pictures"
    assert expected.entry == {"pictures": 1, "map": None}


Boxes = Sequence[tuple[Any, ...]]
# (category, box, score) that were found, (category, box, is a crowd) that are there.
PICTURES: Sequence[tuple[Boxes, Boxes]] = [
    (
        [
            (1, (10, 10, 20, 20), 0.9),
            (1, (40, 40, 10, 10), 0.8),
            (1, (11, 10, 20, 20), 0.7),
            (2, (0, 0, 30, 30), 0.6),
        ],
        [(1, (10, 10, 20, 20)), (1, (42, 41, 10, 10)), (2, (0, 0, 28, 31))],
    ),
    (
        [
            (1, (5, 5, 10, 10), 0.95),
            (1, (50, 50, 8, 8), 0.4),
            (2, (60, 60, 20, 20), 0.5),
            (3, (1, 1, 5, 5), 0.99),
        ],
        [(1, (50, 50, 10, 9)), (1, (0, 0, 30, 30), True), (2, (63, 60, 20, 20))],
    ),
    ([], [(1, (0, 0, 9, 9))]),
]
PYCOCOTOOLS = [0.8452970297029703] * 2 + [0.6905940594059405] * 3
PYCOCOTOOLS += [0.38118811881188114] * 4 + [0.1287128712871287]


def at_each(pictures: Sequence[tuple[Boxes, Boxes]]) -> list[float]:
    precision = MeanPrecision()
    for found, truths in pictures:
        there = [Thing(*each[:2], is_crowd=len(each) > 2) for each in truths]
        precision.add([Thing(*each) for each in found], there)
    return precision.at_each().tolist()


def test_the_precision_is_that_of_pycocotools() -> None:
    assert at_each(PICTURES) == pytest.approx(PYCOCOTOOLS, abs=1e-12)
    assert np.mean(at_each(PICTURES)) == pytest.approx(0.54158416, abs=1e-8)


def test_the_order_of_pictures_without_equal_scores_does_not_count() -> None:
    assert at_each(PICTURES[::-1]) == pytest.approx(PYCOCOTOOLS, abs=1e-12)


THING = (1, (0, 0, 10, 10))


@pytest.mark.parametrize(
    ("found", "truths", "mean"),
    [
        ([(1, (0, 0, 10, 10), 0.5)], [THING], 1.0),
        ([(2, (0, 0, 10, 10), 0.5)], [THING], 0.0),
        ([], [THING], 0.0),
        # A second box on the same thing is wrong, but comes after all things are found.
        ([(1, (0, 0, 10, 10), 0.5), (1, (0, 0, 10, 10), 0.4)], [THING], 1.0),
        # A wrong box that comes first halves the precision.
        ([(1, (0, 0, 10, 10), 0.5), (1, (50, 0, 10, 10), 0.6)], [THING], 0.5),
        # Five of six parts are common: right at the seven overlaps up to 0.8.
        ([(1, (0, 0, 10, 12), 0.5)], [THING], 0.7),
        # A crowd takes any number of boxes, which count neither way.
        ([(1, (0, 0, 2, 2), 0.9), (1, (3, 3, 2, 2), 0.8)], [(*THING, True)], np.nan),
        # A box with no area is nothing.
        ([(1, (5, 5, 0, 0), 0.9)], [(1, (5, 5, 0, 0))], 0.0),
    ],
)
def test_a_single_picture(found: Boxes, truths: Boxes, mean: float) -> None:
    assert np.mean(at_each([(found, truths)])) == pytest.approx(mean, abs=1e-9, nan_ok=True)


def test_nothing_to_find_is_no_number() -> None:
    assert np.isnan(at_each([([(1, (0, 0, 9, 9), 0.5)], [])])).all()
    assert len(at_each([])) == len(OVERLAPS)


def test_the_hundred_best_boxes_of_a_class_count() -> None:
    worse = [(1, (50, 50, 5, 5), 0.9)] * 99
    assert np.mean(at_each([([*worse, (1, (0, 0, 10, 10), 0.1)], [THING])])) == pytest.approx(0.01)
    assert np.mean(at_each([([*worse, *worse, (1, (0, 0, 10, 10), 0.1)], [THING])])) == 0

# SPDX-License-Identifier: Apache-2.0
"""YOLOs' outputs and CenterNets' heat maps, made of boxes that are known, are read as these."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate.inspect import Quantization
from label_image.embedded_metadata import EmbeddedMetadata
from label_image.heads.cells import cells, peaks
from label_image.scene import Detection, Scene
from tests.support.model import t
from tests.support.views import name_of, scene_of, scene_of_arrays, thing, view_of

Floats = NDArray[np.float32]
SIZE = (100, 200)  # of the picture; the input has 64 x 64
CELLS = 64 + 16 + 4
# In the picture's pixels.
DOG, CAT = thing(2, 0.75, 50, 25, 150, 75), thing(0, 0.5, 0, 0, 50, 50)
BOTH = [DOG, CAT]


def rows(count: int, boxes: list[Detection], before: int = 4, classes: int = 3) -> Floats:
    """Return rows of x, y, width, height and scores, each box in three rows and once shifted."""
    made = np.zeros((count, before + classes), np.float32)
    made[:, :4] = (0.99, 0.99, 0.01, 0.01)
    for number, box in enumerate(boxes):
        left, top, right, bottom = np.array(box.box) / (200, 100, 200, 100)
        centre = ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
        for copy in range(3):
            row = made[10 * number + copy]
            row[:4] = np.array(centre) + 0.004 * copy
            row[4:before] = 1
            row[before + box.index] = box.score - 0.125 * copy
    return made


def found(scene: Scene) -> list[Detection]:
    """Return the boxes with pixels rounded to a thousandth, and scores too."""
    assert scene.boxes is not None
    return [
        thing(box.index, *(round(float(n), 3) for n in (box.score, *box.box)))
        for box in scene.boxes
    ]


def test_v8_as_it_is_and_transposed() -> None:
    made = rows(CELLS, BOTH)[np.newaxis]
    for order in (made, made.transpose(0, 2, 1)):
        assert name_of(view_of([t(order.shape)])) == "detection:yolo8"
        assert found(scene_of_arrays(order, size=SIZE)) == BOTH


def test_pixels_of_the_input_are_known_by_the_strides_that_they_are_multiplied_by() -> None:
    made = rows(CELLS, BOTH)
    made[:, :4] *= 64
    assert found(scene_of_arrays(made.T[np.newaxis], size=SIZE, factor=32)) == BOTH


def test_parts_stay_parts_whatever_a_cell_of_no_importance_says() -> None:
    made = rows(CELLS, BOTH)
    made[50, :4] = (0.5, 0.5, 9.0, 0.5)
    made[51, 4:] = 0.001
    assert found(scene_of_arrays(made[np.newaxis], size=SIZE)) == BOTH
    made[50, 4:] = 1.0019  # a score of 1, as a coarse scale stores it
    boxes = found(scene_of_arrays(made[np.newaxis], size=SIZE))
    assert [box.score for box in boxes] == [1.002, 0.75, 0.5]


def test_logits_of_sums_of_products_become_scores() -> None:
    made = rows(CELLS, BOTH)
    scores = np.clip(made[:, 4:], 1e-4, 1)
    made[:, 4:] = np.log(scores / (1 - scores))
    assert found(scene_of_arrays(made.T[np.newaxis], size=SIZE, last="CONV_2D")) == BOTH


def test_quantised_outputs_are_dequantised() -> None:
    made = rows(CELLS, BOTH).T[np.newaxis]
    output = t(made.shape, "uint8", 1 / 250, 3)
    values = np.round(made * 250 + 3).astype(np.uint8)
    boxes = found(scene_of(view_of([output], size=SIZE), values))
    assert isinstance(output.quantization, Quantization)
    assert [box.index for box in boxes] == [2, 0]
    assert np.allclose([b.box for b in boxes],
                       [b.box for b in BOTH], atol=1)  # fmt: skip


def test_v5_has_three_boxes_a_cell_and_a_score_that_it_is_a_thing() -> None:
    made = rows(3 * CELLS, BOTH, before=5)
    made[:, 4] *= 0.5
    made[:, 5:] = np.minimum(1, 2 * made[:, 5:])  # 0.75 cannot be told twice
    scene = scene_of_arrays(made[np.newaxis], size=SIZE)
    assert name_of(view_of([t((1, 3 * CELLS, 8))])) == "detection:yolo5"
    assert [(box.index, box.score) for box in found(scene)] == [(2, 0.5), (0, 0.5)]
    assert found(scene)[0].box == pytest.approx(DOG.box, abs=3)


def test_yolox_counts_from_its_cells() -> None:
    made = rows(CELLS, [], before=5, classes=80)
    made[:, :] = 0
    places, strides = cells((64, 64), (8, 16, 32))
    number = 64 + 5  # of the second level: column 1, row 1
    assert (places[number].tolist(), strides[number].tolist()) == ([1, 1], [16])
    made[number, :5] = (0.5, 1, np.log(2), np.log(1), 0.5)
    made[number, 5 + 7] = 1
    scene = scene_of_arrays(made[np.newaxis], size=SIZE)
    # The middle is (24, 32) of 64 x 64, the size 32 x 16.
    assert found(scene) == [thing(7, 0.5, 25, 37.5, 125, 62.5)]
    assert name_of(view_of([t(made[np.newaxis].shape)])) == "detection:yolox"
    other = view_of([t((1, CELLS, 9))])
    assert name_of(other) == "detection:yolo8"
    assert name_of(other, "detection:yolox") == "detection:yolox"
    assert name_of(view_of([t((1, CELLS, 9))], labels=["a"] * 4)) == "detection:yolox"


@pytest.mark.parametrize("scale", [1, 64], ids=["parts", "pixels"])
def test_v10_has_chosen(scale: float) -> None:
    made = np.zeros((1, 300, 6), np.float32)
    made[0, 0] = (0, 0, 0.25 * scale, 0.5 * scale, 0.5, 0)
    made[0, 1] = (0.25 * scale, 0.25 * scale, 0.75 * scale, 0.75 * scale, 0.75, 2)
    made[0, 2] = (0.25 * scale, 0.25 * scale, 0.75 * scale, 0.75 * scale, 0.125, 2)
    assert name_of(view_of([t(made.shape)])) == "detection:yolo10"
    factor = None if scale == 1 else 32.0
    assert found(scene_of_arrays(made, size=SIZE, factor=factor)) == BOTH
    assert name_of(view_of([t((1, 30, 6))])) is None
    assert name_of(view_of([t((1, 30, 6))]), "detection") == "detection:yolo10"


def test_numbers_for_masks_are_no_scores() -> None:
    made = np.concatenate([rows(CELLS, BOTH), np.full((CELLS, 32), 9, np.float32)], axis=1)
    masks = np.zeros((1, 16, 16, 32), np.float32)
    scene = scene_of_arrays(made.T[np.newaxis], masks, size=SIZE)
    assert found(scene) == BOTH
    assert scene.outputs == {0, 1}


def test_metadata_s_threshold_counts() -> None:
    made = rows(CELLS, BOTH)[np.newaxis]
    assert found(scene_of_arrays(made, size=SIZE, embedded=EmbeddedMetadata(threshold=0.6))) == [
        DOG
    ]


NO_YOLOS: list[tuple[int, ...]] = [
    (1, CELLS + 2, 7), (1, CELLS, 4), (2, CELLS, 7), (CELLS, 7), (1, 1, CELLS, 7)
]  # fmt: skip


@pytest.mark.parametrize("shape", NO_YOLOS)
def test_other_shapes_are_none(shape: tuple[int, ...]) -> None:
    name = name_of(view_of([t(shape)], labels=["a"]))
    assert name is None or not name.startswith("detection")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_without_a_number_are_left_out(value: float) -> None:
    made = rows(CELLS, BOTH)
    made[10, :4] = value
    boxes = found(scene_of_arrays(made[np.newaxis], size=SIZE))
    assert DOG in boxes
    assert all(np.isfinite(box.box).all() for box in boxes)


def test_of_boxes_of_two_classes_both_stay() -> None:
    twins = [DOG, thing(1, 0.625, *DOG.box)]
    assert found(scene_of_arrays(rows(CELLS, twins)[np.newaxis], size=SIZE)) == twins


@pytest.mark.parametrize("names", [("hm", "wh", "reg"), ("a", "b", "c"), ("hm", "offset", "size")])
def test_centernet_s_peaks(names: tuple[str, str, str]) -> None:
    scores, sizes, offsets = (np.zeros((1, 16, 16, n), np.float32) for n in (3, 2, 2))
    scores[0, 8, 4, 1] = 0.75
    scores[0, 8, 5, 1] = 0.5  # beside the peak
    scores[0, 2, 2, 0] = 0.5
    sizes[0, 8, 4], offsets[0, 8, 4] = (8, 4), (0.5, 0)
    sizes[0, 2, 2] = (4, 4)
    outputs = [scores, sizes, offsets] if names[1] != "offset" else [scores, offsets, sizes]
    view = view_of([t(o.shape, name=n) for o, n in zip(outputs, names, strict=True)], size=SIZE)
    assert name_of(view) == "detection:centernet"
    found = scene_of_arrays(*outputs, size=SIZE) if names[1] != "offset" else None
    if found is not None:
        assert found.boxes == [
            thing(1, 0.75, 6.25, 37.5, 106.25, 62.5),
            thing(0, 0.5, 0, 0, 50, 25),
        ]


def test_peaks_are_of_each_class() -> None:
    scores = np.zeros((4, 4, 2), np.float32)
    scores[0, 0], scores[0, 1], scores[3, 3] = (3, 1), (2, 2), (1, 1)
    found = peaks(scores)
    assert sorted(found[found > 0].tolist()) == [1, 1, 2, 3]

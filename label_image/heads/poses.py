# SPDX-License-Identifier: Apache-2.0
"""Keypoints of bodies: MoveNet for one and for several people, PoseNet, and YOLO poses.

Sources: tfhub.dev/google/movenet (its pages on outputs); tensorflow/tfjs-models posenet
(decode_single_pose); ultralytics nn/modules/head.py (Pose).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from label_image.heads.cells import of_columns, order_of, rows_of
from label_image.heads.view import (
    LEAST_SCORE,
    Ambiguity,
    Floats,
    Head,
    View,
    as_scores,
    corners,
    non_max_suppression,
    parts,
)
from label_image.scene import Point, Pose, Scene

# COCO's, in the order that all of these models use.
NAMES = (
    "nose", "left eye", "right eye", "left ear", "right ear", "left shoulder", "right shoulder",
    "left elbow", "right elbow", "left wrist", "right wrist", "left hip", "right hip", "left knee",
    "right knee", "left ankle", "right ankle",
)  # fmt: skip
_COUNT = len(NAMES)
_SEVERAL = 3 * _COUNT + 5  # numbers per pose: its keypoints, its box and its score


def pose(view: View, points: Floats, score: float | None = None) -> Pose:
    """Return a pose in picture pixels, clipped; its score defaults to the mean of its keypoints'.

    Shapes: points (n, 3): x and y relative to the picture, score
    """
    height, width = view.size
    names = NAMES if len(points) == _COUNT else [str(number) for number in range(len(points))]
    usable = np.nan_to_num(points.astype(np.float64), posinf=0, neginf=0)
    places = np.clip(usable[:, :2] * (width, height), 0, (width, height))
    made = tuple(
        Point(name, float(certainty), float(x), float(y))
        for name, (x, y), certainty in zip(names, places, usable[:, 2], strict=True)
    )
    return Pose(float(usable[:, 2].mean()) if score is None else score, made)


def _fits_movenet(view: View, is_asked: bool) -> bool:
    return len(view.outputs) == 1 and (
        view.shapes[0] == (1, 1, _COUNT, 3)
        or (len(view.shapes[0]) == 3 and (view.shapes[0][0], view.shapes[0][2]) == (1, _SEVERAL))
    )


def _read_movenet(view: View, found: bool) -> Scene:
    values = view.real(0)
    if values.ndim == 4:
        poses = [pose(view, values[0, 0][:, [1, 0, 2]])]
    else:
        rows = values[0][np.argsort(-values[0, :, -1], kind="stable")]
        poses = [
            pose(view, row[: 3 * _COUNT].reshape(-1, 3)[:, [1, 0, 2]], float(row[-1]))
            for row in rows[rows[:, -1] >= view.least(LEAST_SCORE)]
        ]
    return Scene(poses=poses, outputs=frozenset({0}))


def _find_posenet(view: View, is_asked: bool) -> tuple[int, int] | None:
    """Return the indices of the outputs with one heat map per keypoint, and with offsets."""
    shapes = view.shapes
    for scores, shape in enumerate(shapes):
        if len(shape) == 4 and (shape[0], shape[3]) == (1, _COUNT):
            wanted = (*shape[:3], 2 * _COUNT)
            if wanted in shapes:
                return scores, shapes.index(wanted)
    return None


def _posenet_means(view: View, places: tuple[int, int]) -> Sequence[Ambiguity]:
    return (Ambiguity(places[0], usual=True),)


def _read_posenet(view: View, places: tuple[int, int]) -> Scene:
    scores, offsets = (view.real(number)[0] for number in places)
    (ambiguity,) = _posenet_means(view, places)
    scores = as_scores(view, ambiguity, scores)
    height, width, count = scores.shape
    best = scores.reshape(-1, count).argmax(axis=0)
    rows, columns = np.unravel_index(best, (height, width))
    points = np.arange(count)
    high, wide = view.input_size
    # The centres of the first and last cells lie on the input's edges.
    down, right = (high - 1) / max(1, height - 1), (wide - 1) / max(1, width - 1)
    y = (rows * down + offsets[rows, columns, points]) / high
    x = (columns * right + offsets[rows, columns, count + points]) / wide
    found = np.stack([x, y, scores[rows, columns, points]], axis=1).astype(np.float32)
    # Displacements, in further outputs, separate several people.
    return Scene(poses=[pose(view, found)], outputs=frozenset(range(len(view.outputs))))


def _point_sizes(view: View) -> tuple[int, int]:
    """Return the number of keypoints of a YOLO, and of numbers per keypoint."""
    count, numbers = view.embedded.points if len(view.embedded.points) == 2 else (_COUNT, 3)
    return count, numbers


def _fits_yolo(view: View, is_asked: bool) -> bool:
    count, numbers = _point_sizes(view)
    order = order_of(view, 1)
    is_such = order is not None and order[1] >= 5 + count * numbers and numbers in (2, 3)
    return is_such and is_asked and len(view.outputs) == 1


def _yolo_means(view: View, found: bool) -> Sequence[Ambiguity]:
    """Return the possible meanings of the scores, the boxes, the keypoints and their scores."""
    count, numbers = _point_sizes(view)
    order = order_of(view, 1)
    first = (order[1] if order else 0) - count * numbers
    made = [of_columns(view, 4), *(of_columns(view, n, kind="places") for n in (0, first))]
    return made + [of_columns(view, first + 2)] * (numbers == 3)


def _read_yolo(view: View, found: bool) -> Scene:
    rows = rows_of(view)
    count, numbers = _point_sizes(view)
    first = rows.shape[1] - count * numbers
    of_score, of_box, of_point, *of_certainty = _yolo_means(view, found)
    scores = as_scores(view, of_score, rows[:, 4:first]).max(axis=1)
    points = rows[:, first:].reshape(len(rows), count, numbers)
    boxes = parts(view, of_box, rows[:, :4])
    places = parts(view, of_point, points[:, :, :2].reshape(len(rows), -1))
    certainty = np.ones((len(rows), count), np.float32)
    for ambiguity in of_certainty:
        certainty = as_scores(view, ambiguity, points[:, :, 2])
    least = view.least(LEAST_SCORE)
    stay = non_max_suppression(corners(boxes), scores, np.zeros(len(rows), np.int64), least)
    poses = []
    for number in stay:
        body = np.column_stack([places[number].reshape(-1, 2), certainty[number]])
        poses.append(pose(view, body, float(scores[number])))
    return Scene(poses=poses, outputs=frozenset({0}))


HEADS = (
    Head("pose:movenet", _fits_movenet, _read_movenet, mean=0.0, std=1.0),
    Head("pose:posenet", _find_posenet, _read_posenet, ambiguities=_posenet_means),
    Head("pose:yolo8", _fits_yolo, _read_yolo, mean=0.0, std=255.0, ambiguities=_yolo_means),
)

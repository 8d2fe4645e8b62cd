# SPDX-License-Identifier: Apache-2.0
"""What a model says of a picture: its class, things in boxes, points, or each pixel's class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflite_opencl.common.labels import Row, format_row, format_score

ENTRIES = {  # what Scene.entry has of each task
    "classification": "results", "detection": "detections", "pose": "poses",
    "segmentation": "segments", "embedding": "embedding",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Box:
    """A thing in a picture."""

    index: int  # its class, as the labels count
    score: float
    # In pixels of the picture, and inside it.
    left: float
    top: float
    right: float
    bottom: float

    @property
    def sides(self) -> dict[str, float]:
        """Give the sides by their names."""
        return {side: getattr(self, side) for side in ("left", "top", "right", "bottom")}


@dataclass(frozen=True, slots=True)
class Point:
    """A place of a body or of another thing that has joints."""

    name: str
    score: float
    x: float  # in pixels of the picture, and inside it
    y: float


@dataclass(frozen=True, slots=True)
class Pose:
    """Somebody's points."""

    score: float
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Share:
    """A class of a mask."""

    index: int
    part: float  # of all pixels


@dataclass(frozen=True, slots=True)
class Scene:
    """What a model says of a picture, the most certain or largest first; None: not its task."""

    rows: Sequence[Row] | None = None
    boxes: Sequence[Box] | None = None
    poses: Sequence[Pose] | None = None
    mask: NDArray[np.int64] | None = field(default=None, repr=False)  # (h, w): classes; -1: none
    embedding: NDArray[np.float32] | None = field(default=None, repr=False)  # (n,)
    outputs: frozenset[int] = frozenset()  # the numbers of the outputs that say so

    @property
    def is_drawable(self) -> bool:
        """Whether it says where in the picture something is."""
        return self.boxes is not None or self.poses is not None or self.mask is not None

    @property
    def shares(self) -> list[Share]:
        """Give the classes of the mask, the largest first."""
        if self.mask is None:
            return []
        found, counts = np.unique(self.mask, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        parts = [Share(int(found[i]), float(counts[i] / self.mask.size)) for i in order]
        return [share for share in parts if share.index >= 0]

    def mask_in(self, size: Sequence[int]) -> NDArray[np.int64]:
        """Return the mask in another height and width: each pixel is that of the nearest."""
        assert self.mask is not None
        rows, columns = (
            (np.arange(count) * 2 + 1) * own // (2 * count)
            for count, own in zip(size, self.mask.shape, strict=True)
        )
        found: NDArray[np.int64] = self.mask[rows[:, np.newaxis], columns]
        return found

    def of_classes(self, classes: frozenset[int]) -> Scene:
        """Return what is of these classes alone; poses and embeddings have none."""
        rows, boxes, mask = self.rows, self.boxes, self.mask
        if rows is not None:
            rows = [row for row in rows if row.index in classes]
        if boxes is not None:
            boxes = [box for box in boxes if box.index in classes]
        if mask is not None:
            mask = np.where(np.isin(mask, list(classes)), mask, -1)
        return replace(self, rows=rows, boxes=boxes, mask=mask)

    def lines(self, labels: Sequence[str], most: int) -> list[str]:
        """Return lines for people, of `most` classes, things or poses."""
        if self.rows is not None:
            return [format_row(row, labels) for row in self.rows[:most]]
        if self.embedding is not None:
            norm = format_score(float(np.linalg.norm(self.embedding.astype(np.float64))))
            return [f"an embedding: {self.embedding.size} numbers, L2 norm {norm}"]
        if self.mask is not None:
            return [
                f"{100 * share.part:.1f} %: {named(share.index, labels)}"
                for share in self.shares[:most]
            ]
        lines = []
        for box in (self.boxes or ())[:most]:
            sides = ", ".join(f"{side} {pixels:.0f}" for side, pixels in box.sides.items())
            lines.append(f"{format_score(box.score)}: {named(box.index, labels)}, {sides}")
        for number, pose in enumerate((self.poses or ())[:most], 1):
            lines.append(f"{format_score(pose.score)}: pose {number}")
            for point in pose.points:
                place = f"x {point.x:.0f}, y {point.y:.0f}"
                lines.append(f"{format_score(point.score)}: {point.name}, {place}")
        return lines or ["nothing is found"]

    def entry(self, labels: Sequence[str], most: int) -> dict[str, Any]:
        """Return all for JSON, of classes the best `most`."""
        entry: dict[str, Any] = {}
        if self.rows is not None:
            entry["results"] = [
                {"index": row.index, "label": label_of(row.index, labels), "score": row.score}
                for row in self.rows[:most]
            ]
        if self.boxes is not None:
            entry["detections"] = [
                {
                    "index": box.index, "label": label_of(box.index, labels), "score": box.score,
                    "box": box.sides,
                }
                for box in self.boxes
            ]  # fmt: skip
        if self.poses is not None:
            entry["poses"] = [
                {"score": pose.score, "points": [asdict(point) for point in pose.points]}
                for pose in self.poses
            ]
        if self.mask is not None:
            entry["segments"] = [
                {"index": share.index, "label": label_of(share.index, labels), "share": share.part}
                for share in self.shares
            ]
        if self.embedding is not None:
            entry["embedding"] = self.embedding.tolist()
        return entry


def label_of(index: int, labels: Sequence[str]) -> str | None:
    """Return the name of a class; None: there is none."""
    return labels[index] if 0 <= index < len(labels) else None


def named(index: int, labels: Sequence[str]) -> str:
    """Return `15 person`, or the number alone."""
    label = label_of(index, labels)
    return str(index) if label is None else f"{index} {label}"

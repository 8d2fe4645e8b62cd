# SPDX-License-Identifier: Apache-2.0
"""Decoded results of a picture: classes, boxes, poses, a mask, or an embedding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tflite_opencl.harness.labels import format_score

# Labels that mark class 0 as the background, which is no object.
BACKGROUND = ("???", "background")
ENTRIES = {  # the keys of Scene.entry for each task
    "classification": "results", "detection": "detections", "pose": "poses",
    "segmentation": "segments", "embedding": "embedding",
}  # fmt: skip


class Sides(NamedTuple):
    """A box in pixels, clipped to the picture."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Class:
    """A class of a picture."""

    label: str  # its index, if it has no name
    score: float
    index: int


@dataclass(frozen=True, slots=True)
class Detection:
    """A detected object."""

    label: str  # its class name, or the index if it has none
    score: float
    box: Sides
    index: int  # of its class in the labels


@dataclass(frozen=True, slots=True)
class Area:
    """A class of a mask."""

    label: str
    part: float  # fraction of all pixels
    index: int


@dataclass(frozen=True, slots=True)
class Mask:
    """A picture's class per pixel."""

    classes: NDArray[np.int64]  # (h, w); -1: none
    areas: Sequence[Area]  # the largest first

    def scale_to(self, size: Sequence[int]) -> Mask:
        """Return the mask resized to a height and width by nearest neighbour."""
        rows, columns = (
            (np.arange(count) * 2 + 1) * own // (2 * count)
            for count, own in zip(size, self.classes.shape, strict=True)
        )
        return Mask(self.classes[rows[:, np.newaxis], columns], self.areas)


@dataclass(frozen=True, slots=True)
class Point:
    """A keypoint of a body or of another jointed object."""

    name: str
    score: float
    x: float  # in pixels, clipped to the picture
    y: float


@dataclass(frozen=True, slots=True)
class Pose:
    """The keypoints of one body."""

    score: float
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Scene:
    """The results of a picture, highest score or largest area first; None: not of its task.

    All are None for outputs of no known kind.
    """

    rows: Sequence[Class] | None = None
    boxes: Sequence[Detection] | None = None
    poses: Sequence[Pose] | None = None
    mask: Mask | None = field(default=None, repr=False)
    embedding: NDArray[np.float32] | None = field(default=None, repr=False)  # (n,)
    outputs: frozenset[int] = frozenset()  # the outputs that these results come from
    names: int = 0  # number of named classes: the first ones

    @property
    def is_drawable(self) -> bool:
        """Whether the results have positions in the picture."""
        return self.boxes is not None or self.poses is not None or self.mask is not None

    def of_classes(self, classes: frozenset[int]) -> Scene:
        """Return only the results of these classes; poses and embeddings have none."""
        rows, boxes, mask = self.rows, self.boxes, self.mask
        if rows is not None:
            rows = [row for row in rows if row.index in classes]
        if boxes is not None:
            boxes = [box for box in boxes if box.index in classes]
        if mask is not None:
            kept = np.where(np.isin(mask.classes, list(classes)), mask.classes, -1)
            mask = Mask(kept, [area for area in mask.areas if area.index in classes])
        return replace(self, rows=rows, boxes=boxes, mask=mask)

    def has_name(self, each: Class | Detection | Area) -> bool:
        """Whether its label is a name, not just an index."""
        return 0 <= each.index < self.names

    def name_of(self, each: Class | Detection | Area) -> str:
        """Return `15 person`, or just the index."""
        return f"{each.index} {each.label}" if self.has_name(each) else each.label

    def lines(self, most: int) -> list[str]:
        """Return lines for people, with at most `most` classes, objects or poses."""
        if self.rows is not None:
            return [f"{format_score(row.score)}: {self.name_of(row)}" for row in self.rows[:most]]
        if self.embedding is not None:
            norm = format_score(float(np.linalg.norm(self.embedding.astype(np.float64))))
            return [f"an embedding: {self.embedding.size} numbers, L2 norm {norm}"]
        if self.mask is not None:
            areas = self.mask.areas[:most]
            return [f"{100 * area.part:.1f} %: {self.name_of(area)}" for area in areas]
        lines = []
        for thing in (self.boxes or ())[:most]:
            sides = ", ".join(f"{side} {at:.0f}" for side, at in thing.box._asdict().items())
            lines.append(f"{format_score(thing.score)}: {self.name_of(thing)}, {sides}")
        for number, pose in enumerate((self.poses or ())[:most], 1):
            lines.append(f"{format_score(pose.score)}: pose {number}")
            lines += [
                f"{format_score(point.score)}: {point.name}, x {point.x:.0f}, y {point.y:.0f}"
                for point in pose.points
            ]
        is_empty = self.is_drawable and not lines
        return ["nothing is found"] if is_empty else lines

    def entry(self, most: int) -> dict[str, Any]:
        """Return everything for JSON, limited to the best `most` classes."""

        def of(each: Class | Detection | Area, **more: Any) -> dict[str, Any]:
            label = each.label if self.has_name(each) else None
            return {"index": each.index, "label": label, **more}

        entry: dict[str, Any] = {}
        if self.rows is not None:
            entry["results"] = [of(row, score=row.score) for row in self.rows[:most]]
        if self.boxes is not None:
            entry["detections"] = [
                of(thing, score=thing.score, box=thing.box._asdict()) for thing in self.boxes
            ]
        if self.poses is not None:
            entry["poses"] = [asdict(pose) for pose in self.poses]
        if self.mask is not None:
            entry["segments"] = [of(area, share=area.part) for area in self.mask.areas]
        if self.embedding is not None:
            entry["embedding"] = self.embedding.tolist()
        return entry


def mask_of(classes: NDArray[np.int64], label: Callable[[int], str]) -> Mask:
    """Return the mask of classes (h, w), where -1 is ignored; `label`: a class's."""
    found, counts = np.unique(classes, return_counts=True)
    order = [i for i in np.argsort(-counts, kind="stable") if found[i] >= 0]
    parts = counts / classes.size
    return Mask(classes, [Area(label(int(n := found[i])), float(parts[i]), int(n)) for i in order])

# SPDX-License-Identifier: Apache-2.0
"""--expect: ground truth from a file, and the model's accuracy against it.

With a CSV file of classes, accuracy is computed; with boxes in COCO's JSON, mean average
precision. Both read the pictures' JSON objects.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from label_image.precision import MeanPrecision, Thing
from label_image.scene import BACKGROUND
from tflite_opencl.console.errors import RunError, one_line
from tflite_opencl.console.parsing import PARSING

TOP = 5
log = logging.getLogger("label_image")

T = TypeVar("T")
Entry = Mapping[str, Any]  # a picture's JSON object


class ByFile(Generic[T]):
    """Values keyed by picture files, which may have moved to other folders."""

    def __init__(self, values: Mapping[str, T]) -> None:
        self._values = {_parts(name): value for name, value in values.items()}
        names = Counter(parts[-1] for parts in self._values)
        self._by_last = {
            parts[-1]: value for parts, value in self._values.items() if names[parts[-1]] == 1
        }

    def find(self, path: str) -> T | None:
        """Return the value of the file with the longest common path suffix."""
        parts = _parts(path)
        for start in range(len(parts)):
            if parts[start:] in self._values:
                return self._values[parts[start:]]
        return self._by_last.get(parts[-1])


def _parts(path: str) -> tuple[str, ...]:
    return tuple(os.path.normpath(path).split(os.sep))


class GroundTruth:
    """The ground truth of the pictures, and the results matched so far.

    Attributes:
        pictures: those that the file lists.
    """

    def __init__(self, path: str, key: str, what: str) -> None:
        """`key`: of the results in a picture's object; `what`: what the file lists, for errors."""
        self._path, self._key, self._what = path, key, what
        self._missing = self.pictures = 0

    def add(self, entry: Entry) -> None:
        """Count a picture; unreadable ones do not count.

        Raises: RunError: the model's results are of another kind than the file's.
        """
        if "error" in entry:
            return
        self.require(entry)
        is_there = self._count(entry)
        self.pictures += is_there
        self._missing += not is_there

    def require(self, kinds: Collection[str]) -> None:
        """Raise RunError if the model gives other kinds of results."""
        if self._key not in kinds:
            raise RunError(f"--expect: {self._path} gives {self._what}, and the model gives none")

    def _count(self, entry: Entry) -> bool:
        """Count a picture, and return whether the file lists it."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """Return the accuracy as text."""
        raise NotImplementedError

    @property
    def entry(self) -> dict[str, Any]:
        """Return the same for JSON."""
        raise NotImplementedError

    def is_met(self) -> bool:
        """Log how many pictures the file lacks; return whether it has any."""
        if self._missing and not self.pictures:
            log.error("--expect: none of the pictures is in %s", self._path)
            return False
        if self._missing:
            missing = f"{self._missing} of {self._missing + self.pictures} pictures are not in"
            log.warning("--expect: %s %s", missing, self._path)
        return True


_Right = frozenset[int] | str  # the correct classes, or the name of one


class ExpectedClasses(GroundTruth):
    """The class of each picture."""

    def __init__(self, path: str, classes: Mapping[str, _Right], first: int, most: int) -> None:
        """`first`: the index of the first class after the background. `most`: results."""
        super().__init__(path, "results", "classes of pictures")
        self._classes, self._first = ByFile(classes), first
        self._right = np.zeros(TOP, np.int64)  # hits among the best 1, 2, ... results
        self._tops = [1, TOP] if most >= TOP else [1]

    def _count(self, entry: Entry) -> bool:
        expected = self._classes.find(entry["image"])
        if expected is None:
            return False
        for place, row in enumerate(entry["results"][:TOP]):
            if self._is_right(row, expected):
                self._right[place:] += 1
                break
        return True

    def _is_right(self, row: Entry, expected: _Right) -> bool:
        if isinstance(expected, frozenset):
            return row["index"] - self._first in expected
        name = _name(row["label"] or "")
        return expected in (name, *name.split(", "))

    @property
    def text(self) -> str:
        return ", ".join(
            f"top-{top} {self._right[top - 1]} of {self.pictures} "
            f"({100 * self._right[top - 1] / max(1, self.pictures):.1f} %)"
            for top in self._tops
        )

    @property
    def entry(self) -> dict[str, Any]:
        shares = {f"top_{top}": int(self._right[top - 1]) for top in self._tops}
        return {"pictures": self.pictures, **shares}


class ExpectedBoxes(GroundTruth):
    """The objects in each picture, in COCO's format."""

    def __init__(self, path: str, content: Any) -> None:
        """Raises: KeyError, TypeError, ValueError: the content is not in that format."""
        super().__init__(path, "detections", "boxes")
        self._truths: dict[int, list[Thing]] = {image["id"]: [] for image in content["images"]}
        for each in content["annotations"]:
            box = [float(side) for side in each["bbox"]]
            truth = Thing(int(each["category_id"]), box, is_crowd=bool(each.get("iscrowd")))
            if len(box) == 4 and each["image_id"] in self._truths:
                self._truths[each["image_id"]].append(truth)
        self._ids = ByFile({image["file_name"]: image["id"] for image in content["images"]})
        self._categories = {
            str(each["name"]).strip().casefold(): int(each["id"]) for each in content["categories"]
        }
        self._precision = MeanPrecision()

    def image_id(self, path: str) -> int | None:
        """Return a picture's id in the file; None: it is not listed."""
        return self._ids.find(path)

    def category(self, row: Entry) -> int | None:
        """Return the id of a result's category, by name; without labels by class."""
        if row["label"] is None:
            return int(row["index"])
        return self._categories.get(row["label"].strip().casefold())

    def _count(self, entry: Entry) -> bool:
        number = self.image_id(entry["image"])
        if number is None:
            return False
        found = [
            Thing(category, box_of(row), row["score"])
            for row in entry["detections"]
            if (category := self.category(row)) is not None
        ]
        self._precision.add(found, self._truths[number])
        return True

    @property
    def text(self) -> str:
        each = self._precision.at_each()
        if np.isnan(each).any():
            return f"nothing to find in {self.pictures} pictures"
        return (
            f"mAP@[.5:.95] {each.mean():.4f}, mAP@.5 {each[0]:.4f}, mAP@.75 {each[5]:.4f}, of "
            f"{self.pictures} pictures"
        )

    @property
    def entry(self) -> dict[str, Any]:
        each = self._precision.at_each()
        if np.isnan(each).any():
            return {"pictures": self.pictures, "map": None}
        means = {
            "map": float(each.mean()),
            "map_50": float(each[0]),
            "map_75": float(each[5]),
        }
        return {"pictures": self.pictures, **means}


def box_of(row: Entry) -> list[float]:
    """Return a result's box in COCO's form: left, top, width and height in pixels."""
    box = row["box"]
    return [box["left"], box["top"], box["right"] - box["left"], box["bottom"] - box["top"]]


def read_expected(path: str, labels: Sequence[str], most: int) -> GroundTruth:
    """Read the file; `labels`: the model's, to index classes; `most`: results per picture.

    Raises: RunError: it cannot be read, or is neither a CSV file of classes nor COCO's JSON.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            text = file.read()
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise RunError(f"--expect: cannot read {path}: {why}") from error
    if text.lstrip()[:1] in ("{", "["):
        try:
            return ExpectedBoxes(path, json.loads(text))
        except PARSING as error:
            raise RunError(
                f"--expect: {path} is not COCO's JSON with images, annotations and categories"
            ) from error
    first = int(bool(labels) and labels[0].strip() in BACKGROUND)
    try:
        return ExpectedClasses(path, _classes(path, text), first, most)
    except PARSING as error:
        raise RunError(f"--expect: {path} is no CSV file: {one_line(error)}") from error


def _classes(path: str, text: str) -> dict[str, _Right]:
    rows = csv.DictReader(io.StringIO(text, newline=""))
    columns = rows.fieldnames or ()
    if "file" not in columns or not {"index", "label"} & set(columns):
        raise RunError(f"--expect: {path} has no columns file and index, or file and label")
    found: dict[str, _Right] = {}
    for row in rows:
        indices, name = row.get("index") or "", row.get("label") or ""
        try:
            right = frozenset(map(int, f"{indices} {row.get('also_ok') or ''}".split()))
        except ValueError:
            right = frozenset()
        if not row["file"] or not (right or name) or (indices.strip() and not right):
            raise RunError(f"--expect: {path}, line {rows.line_num}: no file, or no class")
        found[row["file"]] = right if indices.strip() else _name(name)
    return found


def _name(text: str) -> str:
    return ", ".join(part.strip() for part in text.casefold().split(","))

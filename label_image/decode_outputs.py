# SPDX-License-Identifier: Apache-2.0
"""Interprets a model: the format of its picture input, and the head that decodes its outputs.

The only interface of the command and of predictors.py to heads/.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from delegate.inspect import Tensor
from label_image.decoder import Format
from label_image.heads import anchors, cells, final_boxes, poses
from label_image.heads.classes import CLASSIFICATION, EMBEDDING, SEGMENTATION
from label_image.heads.view import KINDS, Array, Head, View
from label_image.scene import ENTRIES, Scene
from tflite_opencl.console.errors import RunError
from tflite_opencl.harness.labels import gives_scores
from tflite_opencl.models.build import sizes
from tflite_opencl.pictures.pixel_encoding import has_usual_range, pixel_range, stored_by

log = logging.getLogger("label_image")

_MIDDLE = 127.5  # label_image's own mean and standard deviation
_REAL = ("float32", "float16", "int16")  # inputs that these always apply to
_COARSEST = 0.2  # the coarsest quantisation step that still separates scores


# Tried in this order: the first match wins.
HEADS: Sequence[Head] = (
    final_boxes.SSD,
    *cells.YOLOS,
    final_boxes.YOLO10,
    final_boxes.EFFICIENTDET,
    *anchors.HEADS,
    *poses.HEADS,
    cells.CENTERNET,
    SEGMENTATION,
    EMBEDDING,
    CLASSIFICATION,
)
TASKS = tuple(dict.fromkeys(name for head in HEADS for name in (head.task, head.name)))

DRAWN = ("detection", "pose", "segmentation")  # tasks whose results have positions in the picture


def head_of(view: View, task: str | None = None) -> Head | None:
    """Return the model's head; None: its outputs match none.

    `task`: one of TASKS, as requested.
    """
    if view.graph.outputs[0] in view.graph.inputs:
        return None  # an input passed through is not a result
    if task is None:
        own = None if view.embedded.task is None else head_of(view, view.embedded.task)
        return own or next((head for head in HEADS if head.find(view, False)), None)
    heads = [head for head in HEADS if task in (head.name, head.task)]
    fitting = (head for asked in (False, True) for head in heads if head.find(view, asked))
    return next(fitting, None)


def read(view: View, task: str | None = None) -> Scene:
    """Decode a run's outputs; an empty scene if no head matches. `task`: as `head_of`."""
    head = head_of(view, task)
    if head is None:
        return Scene()
    with np.errstate(all="ignore"):  # NaN and infinity are filtered out at the end
        return replace(head.read(view, head.find(view, True)), names=len(view.labels))


def possible(view: View) -> list[str]:
    """Return the names of all heads that match the shapes."""
    return [head.name for head in HEADS if head.find(view, True)]


@dataclass(frozen=True, slots=True)
class Meaning:
    """How a model's picture input and its outputs are interpreted."""

    view: View  # before a run
    task: str | None = None  # one of TASKS, as requested
    mean: float | None = None  # for float inputs; None: the model's own, or 127.5
    std: float | None = None
    classes: frozenset[int] = frozenset()  # classes to show; empty: all

    @property
    def input(self) -> Tensor:
        """The picture input, or the first input."""
        return self.view.input

    @property
    def head(self) -> Head | None:
        """The head that decodes the outputs, as far as known before a run."""
        return head_of(self.view, self.task)

    @property
    def format(self) -> Format:
        """The tensor that a picture is converted to."""
        embedded, head = self.view.embedded, self.head
        usual = (None, None) if head is None else (head.mean, head.std)
        mean, std = (
            (asked,) if asked is not None else own or (_MIDDLE if trained is None else trained,)
            for asked, own, trained in zip(
                (self.mean, self.std), (embedded.mean, embedded.std), usual, strict=True
            )
        )
        stored = stored_by(self.input, mean, std, self._says_range)
        return Format(self.input.shape, self.input.dtype, mean, std, *stored)

    @property
    def _says_range(self) -> bool:
        """Whether the user or the model specifies the normalisation."""
        return self.mean is not None or self.std is not None or bool(self.view.embedded.mean)

    @property
    def _is_normalised(self) -> bool:
        """Whether mean and deviation apply: 8-bit inputs may take pixels unchanged."""
        return self.input.dtype in _REAL or self.format.scale > 0

    @property
    def kinds(self) -> Sequence[str]:
        """The result keys of a picture's JSON object, as far as known before a run."""
        return () if self.head is None else (ENTRIES[self.head.task],)

    def scene(self, outputs: Sequence[Array], size: Sequence[int] | None = None) -> Scene:
        """Decode a run's outputs for the picture.

        `size`: the picture's height and width; None: the input's.
        """
        if not outputs:
            return Scene()
        scene = read(self.view.after(outputs, size), self.task)
        return scene.of_classes(self.classes) if self.classes else scene

    @property
    def _metadata_text(self) -> str:
        """Describe the metadata in use; "": none."""
        view, embedded, parts = self.view, self.view.embedded, []
        if embedded.labels and view.labels is embedded.labels:
            parts.append(f"{len(embedded.labels)} labels ({embedded.labels_from})")
        if self._is_normalised:
            for word, asked, own in (
                ("mean", self.mean, embedded.mean),
                ("standard deviation", self.std, embedded.std),
            ):
                if asked is None and own:
                    parts.append(f"{word} {', '.join(f'{number:g}' for number in own)}")
        if embedded.calibration is not None:
            parts.append("calibrated scores")
        if embedded.threshold is not None and view.threshold is None:
            parts.append(f"scores from {embedded.threshold:g}")
        if embedded.task is not None and self.task is None:
            parts.append(f"its task ({embedded.task})")
        return "; ".join(parts)

    def check(self, labels_from: str, is_picture_fed: bool = True) -> None:
        """Before a run, report the model's metadata and missing labels.

        `labels_from`: their origin, for messages. `is_picture_fed`: whether the input gets a
        picture, not values from a file.
        Raises: RunError: the model has no head for the requested task.
        """
        if text := self._metadata_text:
            log.info("the model carries %s", text)
        if is_picture_fed:
            self._say_range()
        view, head = self.view, self.head
        if head is None and self.task is not None:
            shapes = ", ".join(f"{sizes(t.shape)} {t.dtype}" for t in view.outputs)
            could = ", ".join(possible(view)) or "none of " + ", ".join(TASKS)
            raise RunError(f"no {self.task} is in the outputs, {shapes}: they may be {could}")
        if head is None:
            return
        are_usual = (self.mean, self.std) == (None, None) and not view.embedded.mean
        if self.input.dtype in _REAL and are_usual and head.mean is not None:
            log.info(
                "pixels for %s: mean %g, standard deviation %g (--input_mean, --input_std)",
                head.name, head.mean, head.std,
            )  # fmt: skip
        self._say_what_outputs_mean(head)
        if head.task in ("pose", "embedding"):
            return
        self._say_whose_names(head, labels_from)

    def _say_range(self) -> None:
        """Report how pixels map to an 8-bit input, unless they are stored unchanged."""
        found = pixel_range(self.input)
        if found is None:
            return
        if self.format.scale:
            log.info(
                "pixels are normalised, and stored by the input's scale %g and zero point %d",
                self.format.scale, self.format.zero_point,
            )  # fmt: skip
        elif not (self._says_range or has_usual_range(self.input)):
            log.warning(
                "pixels of 0 to 255 are %.3g to %.3g to the model: if it was trained with another "
                "range, --input_mean and --input_std say it",
                *found,
            )  # fmt: skip

    def _say_what_outputs_mean(self, head: Head) -> None:
        """Report ambiguous outputs, and scores too coarse to be useful."""
        view = self.view
        for ambiguity in dict.fromkeys(head.ambiguities(view, head.find(view, True))):
            is_second, step = view.resolve(ambiguity), view.value_range(ambiguity).step
            is_other = ambiguity.usual if is_second is None else is_second
            if is_second is None:
                kinds = KINDS[ambiguity.kind]
                log.info(
                    "%s: nothing in the model tells whether output %d has %s or %s: they are taken "
                    "for %s",
                    head.name, ambiguity.number, *kinds, kinds[is_other],
                )  # fmt: skip
            if ambiguity.kind == "scores" and not is_other and step > _COARSEST:
                log.warning(
                    "%s: the scores of output %d are stored in steps of %.3g: the model cannot "
                    "tell them apart (quantise them with a scale of their own)",
                    head.name, ambiguity.number, step,
                )  # fmt: skip

    def _say_whose_names(self, head: Head, labels_from: str) -> None:
        """Report missing class names, or names from an unexpected source."""
        view = self.view
        classes = head.classes(view)
        count = max((number for number, label in enumerate(view.labels, 1) if label), default=0)
        if not count:
            is_sure = head.name != "classification" or gives_scores(view.graph)
            other = "" if is_sure else "; --task embedding if it has none"
            log.info("no labels: classes are shown by number (--labels FILE names them%s)", other)
        elif classes not in (None, count):
            log.warning(
                "%s has %d labels and the model has %d classes: the names may be wrong",
                labels_from, count, classes,
            )  # fmt: skip

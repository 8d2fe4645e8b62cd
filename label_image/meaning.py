# SPDX-License-Identifier: Apache-2.0
"""What a model's input takes of a picture, and what its outputs say of it.

The command and the classes of python.py read models by it alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from delegate.inspect import Graph, Tensor, infer
from label_image.carried import Carried
from label_image.decoder import Format
from label_image.heads.registry import TASKS, head_of, possible, read
from label_image.heads.view import Head, View
from label_image.scene import ENTRIES, Scene
from tflite_opencl.common.errors import RunError
from tflite_opencl.common.feeds import Feeds, scale_of, shape_text
from tflite_opencl.common.labels import gives_scores

log = logging.getLogger("label_image")

_MIDDLE = 127.5  # label_image's own mean and standard deviation
_REAL = ("float32", "int16")  # inputs that they apply to


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a model's input takes, and what its outputs say."""

    graph: Graph
    feeds: Feeds
    labels: Sequence[str]
    labels_from: str = ""  # where they come from, for people
    are_labels_given: bool = False  # by the user or by the model, not by a file that lay around
    task: str | None = None  # one of TASKS, which somebody asked for
    mean: float | None = None  # for float inputs; None: the model's own, or 127.5
    std: float | None = None
    carried: Carried = field(default_factory=Carried)
    threshold: float | None = None  # the least score that is shown; None: the model's own
    classes: frozenset[int] = frozenset()  # what is shown; empty: all

    @property
    def main_input(self) -> Tensor:
        """The input that takes the picture, or the first."""
        return self.graph.inputs[self.feeds.main]

    @property
    def format(self) -> Format:
        """The tensor that a picture becomes."""
        tensor, carried = self.main_input, self.carried
        head = head_of(self.view(), self.task)
        usual = (None, None) if head is None else (head.mean, head.std)
        mean, std = (
            (asked,) if asked is not None else own or (_MIDDLE if trained is None else trained,)
            for asked, own, trained in zip(
                (self.mean, self.std), (carried.mean, carried.std), usual, strict=True
            )
        )
        return Format(tensor.shape, tensor.dtype, mean, std, *scale_of(tensor))

    def view(self, outputs: Sequence[Tensor] | None = None) -> View:
        """Return what heads see; `outputs`: in the shapes of a run; None: before any."""
        if outputs is None:
            outputs = infer(self.graph).outputs
        carried, labels = self.carried, self.labels
        if self.threshold is not None:
            carried = replace(carried, threshold=self.threshold)
        view = View(self.graph, outputs, self.main_input, labels, self.are_labels_given, carried)
        return replace(view, size=view.input_size)

    @property
    def kinds(self) -> Sequence[str]:
        """What a picture's JSON object has of its outputs, as far as that is known before a run."""
        head = head_of(self.view(), self.task)
        return () if head is None else (ENTRIES[head.name.partition(":")[0]],)

    def scene(
        self, outputs: Sequence[NDArray[Any]], size: Sequence[int] | None = None
    ) -> Scene | None:
        """Return what a run's outputs say of the picture; None: they are of no known kind.

        `size`: the picture's height and width; None: the input's.
        """
        if not outputs:
            return None
        view = replace(self.view(tensors_of(self.graph, outputs)), arrays=outputs)
        scene = read(view if size is None else replace(view, size=size), self.task)
        return scene.of_classes(self.classes) if scene and self.classes else scene

    @property
    def _carried_text(self) -> str:
        """Give what the model carries and this uses; "" for nothing."""
        carried, parts = self.carried, []
        if carried.labels and self.labels is carried.labels:
            parts.append(f"{len(carried.labels)} labels ({carried.labels_from})")
        if self.main_input.dtype in _REAL:
            for word, asked, own in (
                ("mean", self.mean, carried.mean),
                ("standard deviation", self.std, carried.std),
            ):
                if asked is None and own:
                    parts.append(f"{word} {', '.join(f'{number:g}' for number in own)}")
        if carried.calibration is not None:
            parts.append("calibrated scores")
        if carried.threshold is not None and self.threshold is None:
            parts.append(f"scores from {carried.threshold:g}")
        if carried.task is not None and self.task is None:
            parts.append(f"its task ({carried.task})")
        return "; ".join(parts)

    def _say_what_is_usual(self, head: Head) -> None:
        """Log which mean and standard deviation are taken because such models have them."""
        if self.main_input.dtype not in _REAL or (self.mean, self.std) != (None, None):
            return
        if head.mean is not None and not self.carried.mean:
            log.info(
                "pixels for %s: mean %g, standard deviation %g (--input_mean, --input_std)",
                head.name, head.mean, head.std,
            )  # fmt: skip

    def check(self) -> None:
        """Say before a run what the model carries, and which labels are missing.

        Raises: RunError: the model has no head of the task that was asked for.
        """
        if text := self._carried_text:
            log.info("the model carries %s", text)
        view = self.view()
        head = head_of(view, self.task)
        if head is None and self.task is not None:
            shapes = ", ".join(f"{shape_text(t.shape)} {t.dtype}" for t in view.outputs)
            could = ", ".join(possible(view)) or "none of " + ", ".join(TASKS)
            raise RunError(f"no {self.task} is in the outputs, {shapes}: they may be {could}")
        if head is None:
            return
        self._say_what_is_usual(head)
        if head.name.startswith(("pose", "embedding")):
            return
        classes = head.classes(view)
        count = max((number for number, label in enumerate(self.labels, 1) if label), default=0)
        if not count:
            is_sure = head.name != "classification" or gives_scores(view.graph)
            other = "" if is_sure else "; --task embedding if it has none"
            log.info("no labels: classes are shown by number (--labels FILE names them%s)", other)
        elif classes not in (None, count):
            log.warning(
                "%s has %d labels and the model has %d classes: the names may be wrong",
                self.labels_from, count, classes,
            )  # fmt: skip


def tensors_of(graph: Graph, outputs: Sequence[NDArray[Any]]) -> list[Tensor]:
    """Return the model's output tensors in the shapes they had in a run."""
    return [
        replace(tensor, shape=output.shape)
        for tensor, output in zip(graph.outputs, outputs, strict=True)
    ]

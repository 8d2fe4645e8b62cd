# SPDX-License-Identifier: Apache-2.0
"""All heads by name, and which one a model has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from label_image.heads import anchors, centernet, chosen, poses, yolo
from label_image.heads.classes import CLASSIFICATION, EMBEDDING, SEGMENTATION, has_its_norm
from label_image.heads.view import Head, View
from label_image.scene import Scene

# In the order in which they are asked: the first that fits is a model's.
HEADS: Sequence[Head] = (
    chosen.SSD,
    *yolo.HEADS,
    chosen.YOLO10,
    chosen.EFFICIENTDET,
    *anchors.HEADS,
    *poses.HEADS,
    centernet.HEAD,
    SEGMENTATION,
    EMBEDDING,
    CLASSIFICATION,
)
TASKS = tuple(dict.fromkeys(name for head in HEADS for name in (head.task, head.name)))

DRAWN = ("detection", "pose", "segmentation")  # tasks whose results are places in the picture


def head_of(view: View, task: str | None = None) -> Head | None:
    """Return the head that a model has; None: its outputs are no known ones.

    `task`: one of TASKS, which somebody asked for.
    """
    if view.graph.outputs[0] in view.graph.inputs:
        return None  # what a model passes on is no result of it
    if task is None:
        told = None if view.carried.task is None else head_of(view, view.carried.task)
        return told or next((head for head in HEADS if head.find(view, False)), None)
    heads = [head for head in HEADS if task in (head.name, head.task)]
    fitting = (head for asked in (False, True) for head in heads if head.find(view, asked))
    return next(fitting, None)


def read(view: View, task: str | None = None) -> Scene | None:
    """Return what a run's outputs say; None: they are of no known kind. `task`: as `head_of`."""
    head = head_of(view, task)
    if head is CLASSIFICATION and task is None and has_its_norm(view):
        head = EMBEDDING
    if head is None:
        return None
    with np.errstate(all="ignore"):  # what is no number is left out in the end
        return replace(head.read(view, head.find(view, True)), names=len(view.labels))


def possible(view: View) -> list[str]:
    """Return the names of all heads that the shapes allow."""
    return [head.name for head in HEADS if head.find(view, True)]

# SPDX-License-Identifier: Apache-2.0
"""What heads share: a model as they see it, and what a head is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Tensor
from label_image.carried import Carried
from label_image.scene import Scene
from tflite_opencl.common.feeds import scale_of
from tflite_opencl.common.pictures.image import layout_of

Array = NDArray[Any]
Floats = NDArray[np.float32]

# First labels of files that count the background, which a detector's classes do not.
BACKGROUND = ("???", "background")


@dataclass(frozen=True, slots=True)
class View:
    """A model as its heads see it."""

    graph: Graph
    outputs: Sequence[Tensor]  # the graph's, in the shapes that they had in a run
    fed: Tensor  # the input with the picture
    labels: Sequence[str] = ()
    are_labels_given: bool = False  # by the user or by the model, not by a file that lay around
    carried: Carried = field(default_factory=Carried)
    size: Sequence[int] = (1, 1)  # height and width of the picture
    arrays: Sequence[Array] = ()  # what a run gave; () before one

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Give the outputs' shapes."""
        return [tensor.shape for tensor in self.outputs]

    @property
    def input_size(self) -> tuple[int, int]:
        """Give the height and width of the input, (0, 0) where it takes no picture."""
        layout = layout_of(self.fed.shape)
        return (0, 0) if layout is None else (layout.height, layout.width)

    @property
    def first_label(self) -> int:
        """Give the number of the label of a detector's class 0."""
        return int(bool(self.labels) and self.labels[0].strip() in BACKGROUND)

    def least(self, default: float) -> float:
        """Return the least score that is shown; `default`: where nobody and no model says so."""
        own = self.carried.threshold
        return default if own is None else own

    def real(self, number: int) -> Floats:
        """Return what a run gave in the output with this number as real numbers."""
        scale, zero_point = scale_of(self.outputs[number])
        output = self.arrays[number]
        values = output.astype(np.float32)
        if scale and output.dtype.kind in "iu":
            values = (values - np.float32(zero_point)) * np.float32(scale)
        return values


@dataclass(frozen=True, slots=True)
class Head:
    """A way to read a model's outputs.

    Attributes:
        name: what --task calls it. find: which outputs are what, or whether a model has this head;
            what is false says that it has not. The second argument says that somebody asked for it,
            so that a shape that others may have, too, is enough.
        read: a model after a run, what was found -> what its outputs say. classes: how many there
            are, where shapes tell.
        mean, std: what such models are trained with, as far as all of them are: of pixels for
            float inputs; None: not known.
    """

    name: str
    find: Callable[[View, bool], Any]
    read: Callable[[View, Any], Scene]
    classes: Callable[[View], int | None] = lambda view: None
    mean: float | None = None
    std: float | None = None

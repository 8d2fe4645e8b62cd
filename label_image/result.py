# SPDX-License-Identifier: Apache-2.0
"""What a run's outputs say of a picture: lines for people, objects for JSON, files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from label_image.compare import Distances, distance_entry
from label_image.drawing import drawn, write_drawn, write_found
from label_image.errors import writing
from label_image.meaning import Meaning
from label_image.outputs import describe, tensors_of, write_outputs
from tflite_opencl.common.words import printable


class Result:
    """What the outputs of one path say of one picture.

    Attributes:
        scene: what is found; None: the outputs are of no known kind.
    """

    def __init__(
        self,
        meaning: Meaning,
        outputs: Sequence[NDArray[Any]],
        size: Sequence[int] | None,
        most: int,
    ) -> None:
        """`outputs`: none after Ctrl-C. `size`: the picture's height and width. `most`: results."""
        self._labels, self._most, self._outputs = meaning.labels, most, outputs
        self._tensors = tensors_of(meaning.graph, outputs) if outputs else []
        self.scene = meaning.scene(outputs, size)
        self._described = describe(outputs, self._tensors, self.scene)
        self._found = [] if self.scene is None else self.scene.lines(self._labels, most)
        told = frozenset[int]() if self.scene is None else self.scene.outputs
        self._others = [each for each in self._described if each.number not in told]

    @property
    def is_drawable(self) -> bool:
        """Whether it says where in the picture something is."""
        return self.scene is not None and self.scene.is_drawable

    @property
    def lines(self) -> list[str]:
        """Give label_image's lines: what was found, then the outputs that do not say it."""
        return self._found + [line for each in self._others for line in each.lines]

    def row(self, path: str) -> str:
        """Return the same as one line, a tab between any two."""
        return "\t".join(
            map(printable, [path, *self._found, *(each.text for each in self._others)])
        )

    def entry(self, distances: Distances | None) -> dict[str, Any]:
        """Return the same for JSON; `distances`: OpenCL's outputs' from others."""
        entry = {} if self.scene is None else self.scene.entry(self._labels, self._most)
        if self._described:
            entry["outputs"] = [
                each.entry | distance_entry(distances, each.number) for each in self._described
            ]
        return entry

    def write(self, folder: str, picture: NDArray[np.uint8] | None, most: int) -> list[str]:
        """Write the outputs, and the picture with `most` things in it; return the files' names.

        Raises: RunError: they cannot be written.
        """
        with writing(folder):
            names = write_outputs(folder, self._outputs, self._tensors)
            if picture is not None and self.scene is not None and self.is_drawable:
                names += write_found(folder, picture, self.scene, self._labels, most)
        return names

    def drawn(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the picture with what was found in it, or as it is. Shapes: (h, w, 3) -> same."""
        if self.scene is None or not self.is_drawable:
            return picture
        return np.asarray(drawn(picture, self.scene, self._labels, self._most))

    def draw(self, path: str, picture: NDArray[np.uint8]) -> None:
        """Write the picture with what was found in it. Raises: RunError: it cannot be written."""
        if self.scene is not None:
            with writing(path):
                write_drawn(path, picture, self.scene, self._labels, self._most)

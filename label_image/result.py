# SPDX-License-Identifier: Apache-2.0
"""A picture's results as lines for people, objects for JSON, and files."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Tensor
from label_image.compare import Distances, distance_entry
from label_image.console import writing
from label_image.decode_outputs import Meaning
from label_image.drawing import write_scene
from label_image.heads.view import Array
from tflite_opencl.cli.messages import printable
from tflite_opencl.console.files import replaced_file
from tflite_opencl.harness.feeds import scale_of
from tflite_opencl.interpreters.interpreter import by_picture
from tflite_opencl.models.build import sizes

_FIRST_VALUES = 8
_LONGEST_NAME = 100  # characters of a file's name, of the 255 that file systems allow


class Result:
    """The decoded outputs of one path for one picture.

    Attributes:
        scene: the results; empty if the outputs are of no known kind.
    """

    def __init__(
        self,
        meaning: Meaning,
        outputs: Sequence[Array],
        size: Sequence[int] | None,
        most: int,
        batch: int = 1,
    ) -> None:
        """`outputs`: none after Ctrl-C. `size`: the picture's height and width. `most`: results.

        `batch`: pictures in the outputs; this is the first one's result, and keeps the others.
        """
        self._most, self._outputs = most, outputs
        first, *others = by_picture(outputs, batch) if outputs else [outputs]
        self._others_of_batch = [Result(meaning, each, size, most) for each in others]
        outputs = first
        self._tensors = meaning.view.after(outputs, size).outputs if outputs else ()
        self.scene = meaning.scene(outputs, size)
        self._described = [
            OutputSummary(number, output, tensor)
            for number, (output, tensor) in enumerate(zip(outputs, self._tensors, strict=True))
            if number or self.scene.rows is None  # a classifier's row is complete
        ]
        self._found = self.scene.lines(most)
        self._others = [each for each in self._described if each.number not in self.scene.outputs]

    @property
    def lines(self) -> list[str]:
        """Return label_image's lines: the results, then the outputs that no head decodes."""
        own = self._found + [line for each in self._others for line in each.lines]
        if not self._others_of_batch:
            return own
        lines = ["picture 1 of the batch:", *own]
        for number, other in enumerate(self._others_of_batch, 2):
            lines += [f"picture {number} of the batch:", *other.lines]
        return lines

    def row(self, path: str) -> str:
        """Return the same as one tab-separated line."""
        return "\t".join(
            map(printable, [path, *self._found, *(each.text for each in self._others)])
        )

    def entry(self, distances: Distances | None) -> dict[str, Any]:
        """Return the same for JSON; `distances`: differences of OpenCL's outputs from others."""
        entry = self.scene.entry(self._most)
        if self._described:
            entry["outputs"] = [
                each.entry | distance_entry(distances, each.number) for each in self._described
            ]
        if self._others_of_batch:
            others = [each.entry(None) for each in self._others_of_batch]
            entry["batch"] = [self.scene.entry(self._most), *others]
        return entry

    def write(self, folder: str, picture: NDArray[np.uint8] | None, most: int) -> list[str]:
        """Write the outputs, and the picture with `most` results drawn; return the files' names.

        Raises: RunError: they cannot be written.
        """
        with writing(folder):
            names = write_outputs(folder, self._outputs, self._tensors)
            if picture is not None and self.scene.is_drawable:
                names += write_scene(folder, picture, self.scene, most)
        return names


class OutputSummary:
    """The summary of an output that is printed as it is.

    Attributes:
        number: index among the model's outputs.
    """

    def __init__(self, number: int, output: Array, tensor: Tensor) -> None:
        self.number, self._output, self._tensor = number, output, tensor
        kind = output.dtype.kind
        self._scale, self._zero_point = scale_of(tensor) if kind in "iu" else (0.0, 0)
        finite = output[np.isfinite(output)] if kind in "fc" else output
        self._not_finite = output.size - finite.size  # excluded from the range
        # Minimum and maximum; () for types without an order.
        is_ordered = kind in "biuf" and finite.size
        self._range = (finite.min().item(), finite.max().item()) if is_ordered else ()
        self._real_range = [self._scale * (value - self._zero_point) for value in self._range]
        self._first_values = output.reshape(-1)[:_FIRST_VALUES].tolist()

    @property
    def text(self) -> str:
        """Return shape, type and range: "1x640 int8, -128 to 93 (-81.6 to -1.1 ...)"."""
        text = f"{sizes(self._output.shape)} {self._tensor.dtype}"
        if self._range:
            text += f", {' to '.join(map(_value_text, self._range))}"
            if self._scale:
                low, high = self._real_range
                text += (
                    f" (dequantised {low:g} to {high:g}: scale {self._scale:g}, "
                    f"zero point {self._zero_point})"
                )
        if self._not_finite:
            text += f", {self._not_finite} of {self._output.size} values not finite"
        return text

    @property
    def lines(self) -> list[str]:
        """Return label_image's lines for it."""
        values = ", ".join(map(_value_text, self._first_values)) or "none"
        if len(self._first_values) < self._output.size:
            values += ", ..."
        start = f"output({self.number})"
        named = f"{start} {self._tensor.name}".rstrip()
        return [f"{named}: {self.text}", f"{start} values: {values}"]

    @property
    def entry(self) -> dict[str, Any]:
        """Return the same for JSON, with null for NaN and infinity."""
        least, greatest = map(_json_value, self._range or (None, None))
        entry: dict[str, Any] = {"name": self._tensor.name, "shape": list(self._output.shape)}
        entry |= {"dtype": self._tensor.dtype, "min": least, "max": greatest}
        if self._scale:
            low, high = self._real_range or (None, None)
            entry |= {"scale": self._scale, "zero_point": self._zero_point}
            entry |= {"min_dequantised": low, "max_dequantised": high}
        if self._not_finite:
            entry["not_finite"] = self._not_finite
        return entry | {"first_values": [*map(_json_value, self._first_values)]}


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _json_value(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int)) else str(value)


def write_outputs(folder: str, outputs: Sequence[Array], tensors: Sequence[Tensor]) -> list[str]:
    """Write each output as a .npy file named after its tensor, and return the files' names.

    Files are replaced atomically: a reader sees the old content or the new one.
    Raises: OSError: it cannot be written. ValueError: an output is not numeric.
    """
    os.makedirs(folder, exist_ok=True)
    names = file_names(tensors)
    for name, output in zip(names, outputs, strict=True):
        with replaced_file(os.path.join(folder, name), "wb") as file:
            np.lib.format.write_array(file, np.asarray(output), allow_pickle=False)
    return names


def file_names(tensors: Sequence[Tensor]) -> list[str]:
    """Return a file name for each tensor, unique even where case is ignored."""
    names: list[str] = []
    used: set[str] = set()
    for number, tensor in enumerate(tensors):
        stem = name = safe_name(tensor.name or f"output_{number}")
        copy = 1
        while name.lower() in used:
            copy += 1
            name = f"{stem}_{copy}"
        used.add(name.lower())
        names.append(f"{name}.npy")
    return names


def picture_folder(folder: str, number: int, picture: str) -> str:
    """Return the folder of the picture with this number, from 1: names may repeat."""
    return os.path.join(folder, f"{number:06}_{safe_name(os.path.basename(picture))}")


def safe_name(text: str) -> str:
    """Return the text with letters, digits, "_", "-" and "." only, and no leading "."."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:_LONGEST_NAME].lstrip(".")
    return name or "output"

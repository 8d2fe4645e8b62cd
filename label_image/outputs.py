# SPDX-License-Identifier: Apache-2.0
"""A model's outputs as they are: what is shown of them, and .npy files."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Tensor
from label_image.scene import Scene
from tflite_opencl.common.feeds import scale_of, shape_text
from tflite_opencl.common.files import replaced_file

_FIRST_VALUES = 8
_LONGEST_NAME = 100  # characters of a file's name, of the 255 that file systems allow


@dataclass(frozen=True, slots=True)
class Described:
    """What is shown of an output."""

    number: int  # among the model's outputs
    name: str  # the tensor's, which may be ""
    shape: tuple[int, ...]
    dtype: str
    range: tuple[Any, Any] | None  # least and greatest value; None: nothing has an order here
    real_range: tuple[float, float] | None  # the same as real numbers; None: not quantised
    scale: float  # 0: not quantised
    zero_point: int
    not_finite: int  # values that are NaN or infinite, left out of the range
    first_values: tuple[Any, ...]

    @property
    def text(self) -> str:
        """Give shape, type and range: "1x640 int8, -128 to 93 (-81.6 to -1.1 ...)"."""
        text = f"{shape_text(self.shape)} {self.dtype}"
        if self.range is not None:
            text += f", {_value_text(self.range[0])} to {_value_text(self.range[1])}"
        if self.real_range is not None:
            low, high = self.real_range
            text += (
                f" (dequantised {low:g} to {high:g}: scale {self.scale:g}, "
                f"zero point {self.zero_point})"
            )
        if self.not_finite:
            text += f", {self.not_finite} of {math.prod(self.shape)} values not finite"
        return text

    @property
    def lines(self) -> list[str]:
        """Give label_image's lines for it."""
        values = ", ".join(map(_value_text, self.first_values)) or "none"
        if len(self.first_values) < math.prod(self.shape):
            values += ", ..."
        start = f"output({self.number})"
        return [f"{start} {self.name}".rstrip() + f": {self.text}", f"{start} values: {values}"]

    @property
    def entry(self) -> dict[str, Any]:
        """Give the same for JSON, where what is not finite is null."""
        quantised = {
            "scale": self.scale,
            "zero_point": self.zero_point,
            "min_dequantised": None if self.real_range is None else self.real_range[0],
            "max_dequantised": None if self.real_range is None else self.real_range[1],
        }
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "min": None if self.range is None else _json_value(self.range[0]),
            "max": None if self.range is None else _json_value(self.range[1]),
            **(quantised if self.scale else {}),
            **({"not_finite": self.not_finite} if self.not_finite else {}),
            "first_values": [_json_value(value) for value in self.first_values],
        }


def tensors_of(graph: Graph, outputs: Sequence[NDArray[Any]]) -> list[Tensor]:
    """Return the model's output tensors in the shapes they had in a run."""
    return [
        replace(tensor, shape=output.shape)
        for tensor, output in zip(graph.outputs, outputs, strict=True)
    ]


def describe(
    outputs: Sequence[NDArray[Any]], tensors: Sequence[Tensor], scene: Scene | None
) -> list[Described]:
    """Return what to show of each output that is not a classifier's row."""
    has_rows = scene is not None and scene.rows is not None
    return [
        _described(number, output, tensor)
        for number, (output, tensor) in enumerate(zip(outputs, tensors, strict=True))
        if number or not has_rows
    ]


def _described(number: int, output: NDArray[Any], tensor: Tensor) -> Described:
    kind = output.dtype.kind
    scale, zero_point = scale_of(tensor) if kind in "iu" else (0.0, 0)
    finite = output[np.isfinite(output)] if kind in "fc" else output
    span = real_span = None
    if kind in "biuf" and finite.size:
        span = finite.min().item(), finite.max().item()
        if scale:
            low, high = (scale * (value - zero_point) for value in span)
            real_span = low, high
    return Described(
        number=number,
        name=tensor.name,
        shape=output.shape,
        dtype=tensor.dtype,
        range=span,
        real_range=real_span,
        scale=scale,
        zero_point=zero_point,
        not_finite=output.size - finite.size,
        first_values=tuple(output.reshape(-1)[:_FIRST_VALUES].tolist()),
    )


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _json_value(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (bool, int)) else str(value)


def write_outputs(
    folder: str, outputs: Sequence[NDArray[Any]], tensors: Sequence[Tensor]
) -> list[str]:
    """Write each output as a .npy file named after its tensor, and return the files' names.

    A reader sees a file's old content or the whole new one.
    Raises: OSError: it cannot be written. ValueError: an output holds no numbers.
    """
    os.makedirs(folder, exist_ok=True)
    names = file_names(tensors)
    for name, output in zip(names, outputs, strict=True):
        with replaced_file(os.path.join(folder, name), "wb") as file:
            np.lib.format.write_array(file, np.asarray(output), allow_pickle=False)
    return names


def file_names(tensors: Sequence[Tensor]) -> list[str]:
    """Return a file name for each tensor, all different, also where case does not count."""
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
    """Return the folder of the picture with this number, from 1: pictures may share their names."""
    return os.path.join(folder, f"{number:06}_{safe_name(os.path.basename(picture))}")


def safe_name(text: str) -> str:
    """Return the text with letters, digits, "_", "-" and "." only, and no "." in front."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:_LONGEST_NAME].lstrip(".")
    return name or "output"

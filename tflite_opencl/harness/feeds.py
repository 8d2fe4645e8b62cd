# SPDX-License-Identifier: Apache-2.0
"""Values of a model's inputs: the picture, a .npy file, random numbers, or zeros."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Tensor
from tflite_opencl.cli.messages import did_you_mean
from tflite_opencl.console.errors import CommandError, RunError, UsageError
from tflite_opencl.interpreters.runtime import TYPE_NUMBERS
from tflite_opencl.models.build import sizes
from tflite_opencl.oracle.values import Arrays, input_sets
from tflite_opencl.pictures.find_pictures import find_picture, read_picture
from tflite_opencl.pictures.image import to_input
from tflite_opencl.pictures.layout import (
    is_picture,
    layout_of,
    takes_alpha,
    why_no_picture,
)
from tflite_opencl.pictures.pixel_encoding import scale_of as scale_of
from tflite_opencl.pictures.pixel_encoding import stored_by

log = logging.getLogger("tflite_opencl")

_MAGIC = b"\x93NUMPY"  # Source: numpy/lib/format.py


class _FeedError(Exception):
    """What is wrong with a file; printed after its name."""


@dataclass(frozen=True, slots=True)
class Feeds:
    """Which input gets which values; all others get zeros."""

    picture: int | None  # the index of the picture input; None: there is none
    given: Mapping[int, NDArray[Any]]  # index of an input -> its values

    @property
    def main(self) -> int:
        """The index of the picture input, or of the first input."""
        return self.picture or 0

    @property
    def others(self) -> tuple[tuple[int, NDArray[Any]], ...]:
        """All values but the main input's, each with its input's index."""
        return tuple((number, self.given[number]) for number in self.given if number != self.main)


def feeds_of(graph: Graph, asked: Sequence[tuple[str, str]], is_image_asked: bool = False) -> Feeds:
    """Return the inputs' values; `asked`: the name or index of an input, and its .npy file.

    The picture goes to the first suitable input without a file. `is_image_asked`: the user
    gave a picture, so an input without a channel axis is suitable, too.
    Raises: RunError: an input has an unsupported type or size, or a file does not fit.
        UsageError: there is no such input.
    """
    for tensor in graph.inputs:
        if not _is_numeric(tensor):
            raise RunError(f"cannot handle input type {TYPE_NUMBERS.get(tensor.dtype, 0)} yet")
    given: dict[int, NDArray[Any]] = {}
    for name, path in asked:
        number = number_of(name, graph)
        if number in given:
            raise RunError(f"--input {name}: this input is given twice")
        given[number] = _read(name, path, graph.inputs[number])
    free = [number for number in range(len(graph.inputs)) if number not in given]
    takers = (n for n in free if takes_picture(graph.inputs[n], is_image_asked))
    picture = next(takers, None)
    if picture is not None or 0 in free:
        _check_size(graph.inputs[picture or 0])
    return Feeds(picture, given)


def why_not_fed(graph: Graph, feeds: Feeds) -> str:
    """Return why no input takes the picture, if none does."""
    shown = []
    for number, tensor in enumerate(graph.inputs):
        why = why_no_picture(tensor.shape, tensor.dtype, scale_of(tensor)[0])
        why = "--input gives its values" if number in feeds.given else why
        shown.append(f"{tensor.name or f'input {number}'} ({_kind(tensor)}): {why}")
    return "; ".join(shown) or "the model has no input"


def warn_of_zeros(graph: Graph, feeds: Feeds) -> None:
    """Log which inputs get zeros for lack of other values."""
    count = len(graph.inputs)
    zeros = [n for n in range(count) if n != feeds.picture and n not in feeds.given]
    if not zeros:
        return
    if feeds.picture == 0 and not feeds.given:
        text = "the model has %d inputs: the picture goes to the first, the others are zeros"
        log.warning(text, count)
        return
    shown = [tensor.name or f"input {number}" for number, tensor in enumerate(graph.inputs)]
    names = ", ".join(f"{shown[n]} ({_kind(graph.inputs[n])})" for n in zeros)
    to = f"the picture goes to {shown[feeds.main]}, " if feeds.picture is not None else ""
    log.warning("%szeros go to %s: --input NAME=FILE.npy gives other values", to, names)


def main_values(graph: Graph, feeds: Feeds) -> NDArray[Any]:
    """Return the first input's values if no input takes a picture."""
    first = graph.inputs[0]
    return feeds.given[0] if 0 in feeds.given else np.zeros(first.shape, first.dtype)


def _is_numeric(tensor: Tensor) -> bool:
    try:
        return np.dtype(tensor.dtype).kind in "biufc"
    except TypeError:  # strings, resources and types that numpy lacks
        return False


def takes_picture(tensor: Tensor, is_asked: bool = True) -> bool:
    """Whether an input can take a picture, ignoring open sizes; `is_asked`: see above."""
    # Unknown sizes are reported later, in an error of their own.
    shape = [max(1, size) for size in tensor.shape]
    return is_picture(shape, tensor.dtype, scale_of(tensor)[0], is_asked)


def _kind(tensor: Tensor) -> str:
    return f"{sizes(tensor.shape)} {tensor.dtype}"


def _check_size(tensor: Tensor) -> None:
    # An unknown batch is 1, as in the file's static shape; an unknown height or width never fits.
    shape = (*tensor.shape[:1], *(tensor.shape_signature or tensor.shape)[1:])
    if any(size < 1 for size in shape):
        shown = " x ".join(str(size) if size > 0 else "?" for size in shape)
        raise RunError(
            f"the model's input {shown} has no fixed size: give it one (--input NAME=FILE.npy, or "
            "--input_size), or convert it with fixed sizes"
        )


def number_of(name: str, graph: Graph) -> int:
    """Return an input's index, given its name or index; raises UsageError: there is none."""
    names = names_of(graph.inputs, graph.input_names)
    place = place_of(name, graph.inputs, graph.input_names)
    if place is not None:
        return place
    known = "one input: " if len(names) == 1 else "the inputs "
    meant = did_you_mean(name, names) or f"; the model has {known}{', '.join(names)}"
    raise UsageError(f"--input: there is no input {name}{meant}")


def place_of(name: str, tensors: Sequence[Tensor], named: Mapping[str, int]) -> int | None:
    """Return the index of a graph's input or output, given its name or index; None: none matches.

    `named`: the signature's names, which take precedence over tensor names.
    """
    for names in (names_of(tensors, named), names_of(tensors, {})):
        if name in names:
            return names.index(name)
    return int(name) if name.isdecimal() and int(name) < len(tensors) else None


def names_of(tensors: Sequence[Tensor], named: Mapping[str, int]) -> list[str]:
    """Return a name for each input or output: the signature's, its own, or its index.

    A name that the signature uses twice is returned twice.
    """
    left = [*named.items()]
    found = []
    for number, tensor in enumerate(tensors):
        own = next((each for each in left if each[1] == tensor.index), None)
        if own is not None:
            left.remove(own)
        found.append(own[0] if own else tensor.name or str(number))
    return found


def _read(name: str, path: str, tensor: Tensor) -> NDArray[Any]:
    where = f"--input {name}"
    try:
        with open(path, "rb") as file:
            try:
                shape, dtype = _header(file)
            except _FeedError:
                raise
            except Exception as error:  # numpy raises many types on damaged headers
                raise _FeedError("is a damaged .npy file") from error
            if shape != tensor.shape or dtype.newbyteorder("=") != np.dtype(tensor.dtype):
                raise RunError(
                    f"{where}: {path} holds {sizes(shape)} {dtype}, "
                    f"and this input takes {_kind(tensor)}"
                )
            if os.fstat(file.fileno()).st_size - file.tell() < math.prod(shape) * dtype.itemsize:
                raise _FeedError("is truncated")
            file.seek(0)
            array = np.lib.format.read_array(file, allow_pickle=False)
            return np.ascontiguousarray(array, tensor.dtype).reshape(shape)
    except FileNotFoundError as error:
        raise RunError(f"{where}: there is no file {path}") from error
    except OSError as error:
        raise RunError(f"{where}: cannot read {path}: {error.strerror or error}") from error
    except _FeedError as error:
        raise RunError(f"{where}: {path} {error}") from error


def _header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read the shape and type from a .npy file's header; the file is then at its data."""
    # np.load would also accept archives and pickles.
    if file.read(len(_MAGIC)) != _MAGIC:
        raise _FeedError("is no .npy file, as np.save writes it")
    file.seek(0)
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        major, minor = version
        raise _FeedError(f"is a .npy file of version {major}.{minor}: only 1.0 and 2.0 are read")
    if dtype.hasobject:
        raise _FeedError("holds pickled Python objects, which are never loaded")
    return shape, dtype


_MEAN = _STD = 127.5  # label_image's defaults


def inputs_for(graph: Graph, picture: str | None) -> Arrays:
    """Return the picture for the picture input, or else reproducible random numbers.

    Raises: CommandError: no input takes a picture. RunError: the model has an input of an
        unsupported type. PictureError: the picture cannot be read.
    """
    feeds_of(graph, ())  # rejects unsupported inputs
    return picture_inputs(graph, picture) if picture is not None else input_sets(graph)[0]


def picture_inputs(graph: Graph, name: str) -> Arrays:
    """Return the picture as the picture input, and zeros for the others."""
    number = feeds_of(graph, (), is_image_asked=True).picture
    if number is None:
        why = why_not_fed(graph, Feeds(None, {}))
        raise CommandError(f"no input of the model takes a picture: {why}")
    made = [np.zeros(each.shape, each.dtype) for each in graph.inputs]
    tensor = graph.inputs[number]
    pixels, layout = (
        read_picture(find_picture(name), takes_alpha(tensor.shape)),
        layout_of(tensor.shape),
    )
    batch = 1 if layout is None else layout.batch
    shape = (1, *tensor.shape[1:]) if batch > 1 else tensor.shape
    scale, zero_point = stored_by(tensor, (_MEAN,), (_STD,), is_said=False)
    one = to_input(pixels, shape, tensor.dtype, _MEAN, _STD, scale, zero_point)
    made[number] = np.repeat(one, batch, axis=0) if batch > 1 else one
    return made

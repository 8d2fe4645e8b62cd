# SPDX-License-Identifier: Apache-2.0
"""Fixes input sizes that a model leaves open, such as (1, -1, -1, 3).

They come from the inputs' .npy files, --input_size, the picture, or default to 224 x 224.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from delegate.inspect import Graph, Tensor, infer, with_input_shapes
from tflite_opencl.console.errors import RunError, UsageError
from tflite_opencl.harness.feeds import number_of, takes_picture
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.build import sizes
from tflite_opencl.pictures.image import STDIN, load_picture

log = logging.getLogger("tflite_opencl")

USUAL = (224, 224)
_MOST_BYTES = 1 << 31  # of all tensors at the picture's own size
_CHANNELS = (1, 3, 4)

Size = tuple[int, int]  # height and width


def with_file_shapes(graph: Graph, files: Sequence[tuple[str, str]]) -> Graph:
    """Return the graph with open inputs in the shapes of their .npy files.

    `files`: the name or index of an input, and its file; mismatches are ignored.
    """
    found = {}
    for name, path in files:
        number = number_of(name, graph)
        tensor = graph.inputs[number]
        # Errors in the file are reported when its values are read.
        with contextlib.suppress(Exception):
            shape = np.load(path, mmap_mode="r", allow_pickle=False).shape
            if is_open(tensor) and _fits(tensor, shape):
                found[number] = shape
    return with_input_shapes(graph, found)


def with_picture_size(
    graph: Graph,
    size: Size | None,
    picture: str | None = None,
    can_run: Callable[[Graph], bool] = lambda graph: True,
    files: Sequence[tuple[str, str]] = (),
) -> Graph:
    """Return the graph with a fixed size of the picture input; other inputs are unchanged.

    `size`: the requested one. `picture`: the file of the only picture, whose size is used if the
    model runs at it; None: there is none, or several. `files`: as in
    `with_file_shapes`: these inputs take no picture.
    Raises: UsageError: the model does not leave this size open.
    """
    given = {number_of(name, graph) for name, _ in files}
    takers = (
        number
        for number, tensor in enumerate(graph.inputs)
        if number not in given and takes_picture(tensor) and _open_axes(tensor) is not None
    )
    number = next(takers, None)
    if number is None:
        if size is not None:
            raise UsageError(
                "--input_size: no input of the model is a picture whose height and width it "
                f"leaves open: {', '.join(sizes(_signature(t)) for t in graph.inputs)}"
            )
        return graph
    if size is not None:
        return _sized(graph, number, size)
    own = None if picture in (None, STDIN) else _size_of(picture or "")
    if own is not None:
        with contextlib.suppress(UsageError):
            made = _sized(graph, number, own)
            if can_run(made):
                return made
    why = "" if own is None else f", and does not run at the picture's {own[0]}x{own[1]}"
    log.info(
        "the model leaves its height and width open%s: %dx%d is taken (--input_size)", why, *USUAL
    )
    return _sized(graph, number, USUAL)


def sized_graph(
    graph: Graph, model: str, size: Size | None, picture: str | None, runtime: Runtime
) -> Graph:
    """Return the graph of `with_picture_size`, in the picture's own size if that runs."""
    return with_picture_size(graph, size, picture, lambda sized: runs(sized, model, runtime))


def runs(graph: Graph, model: str | bytes, runtime: Runtime) -> bool:
    """Whether a model runs with the graph's input shapes, within a memory limit."""
    tensors = [each for node in infer(graph).nodes for each in node.outputs if each.data is None]
    if 4 * sum(math.prod(each.shape) for each in tensors) > _MOST_BYTES:
        return False
    if runtime.why_not:
        return True
    try:
        made = runtime.interpreter(model, 1, "builtin", graph=graph)
        made.allocate_tensors()
        # TFLite creates empty tensors if the input is smaller than a window.
        return all(math.prod(details["shape"]) for details in _details(made, tensors))
    except (RuntimeError, ValueError, RunError):
        return False


def _details(made: Any, tensors: Sequence[Tensor]) -> list[dict[str, Any]]:
    """Return an interpreter's details of these tensors; of another signature's graph none."""
    if not hasattr(made, "get_tensor_details"):
        return []
    indices = {each.index for each in tensors}
    return [each for each in made.get_tensor_details() if each["index"] in indices]


def is_open(tensor: Tensor) -> bool:
    """Whether the file leaves a size open, the rank excepted."""
    return any(size < 1 for size in _signature(tensor)[1:])


def _signature(tensor: Tensor) -> Sequence[int]:
    return tensor.shape_signature or tensor.shape


def _fits(tensor: Tensor, shape: Sequence[int]) -> bool:
    own = _signature(tensor)
    return len(own) == len(shape) and all(
        size == given or size < 1 <= given for size, given in zip(own, shape, strict=True)
    )


def _open_axes(tensor: Tensor) -> tuple[int, int] | None:
    """Return the axes of height and width if one of them is open; None: neither is."""
    own = _signature(tensor)
    if len(own) != 4:
        return None
    for channels, axes in ((3, (1, 2)), (1, (2, 3))):
        if own[channels] in _CHANNELS and min(own[axis] for axis in axes) < 1:
            return axes
    return None


def _sized(graph: Graph, number: int, size: Size) -> Graph:
    """Return the graph with one input resized. Raises: UsageError: it does not fit."""
    tensor = graph.inputs[number]
    axes = _open_axes(tensor)
    assert axes is not None
    shape = [max(1, length) for length in _signature(tensor)]
    for axis, length in zip(axes, size, strict=True):
        shape[axis] = length
    if not _fits(tensor, shape):
        shown = "x".join("?" if length < 1 else str(length) for length in _signature(tensor))
        raise UsageError(f"--input_size {size[0]}x{size[1]}: the model's input is {shown}")
    return with_input_shapes(graph, {number: shape})


def _size_of(path: str) -> Size | None:
    """Return a picture's height and width; None: it cannot be read, which is reported later."""
    with contextlib.suppress(Exception):
        height, width = load_picture(path).shape[:2]
        return height, width
    return None

# SPDX-License-Identifier: Apache-2.0
"""What a model is given: a picture, or random numbers."""

from __future__ import annotations

import numpy as np

from delegate.inspect import Graph
from tflite_opencl.common.errors import CommandError
from tflite_opencl.common.feeds import feeds_of, scale_of
from tflite_opencl.common.pictures.found import find_picture, read_picture
from tflite_opencl.common.pictures.image import to_input
from tflite_opencl.common.values import Arrays, input_sets

_MEAN = _STD = 127.5  # label_image's own


def inputs_for(graph: Graph, picture: str | None) -> Arrays:
    """Return the picture for the input that takes one, else the same random numbers each time.

    Raises:
        CommandError: no input takes a picture. OneLineError: the picture cannot be read, or the
            model has an input of a type that cannot be fed.
    """
    feeds_of(graph, ())  # complains of what cannot be fed
    return picture_inputs(graph, picture) if picture is not None else input_sets(graph)[0]


def picture_inputs(graph: Graph, name: str) -> Arrays:
    """Return the picture as the input that takes one, and zeros for the others."""
    feeds = feeds_of(graph, (), is_image_asked=True)
    if feeds.picture is None:
        raise CommandError("no input of the model takes a picture")
    pixels = read_picture(find_picture(name))
    made = []
    for number, tensor in enumerate(graph.inputs):
        if number == feeds.picture:
            scale, zero_point = scale_of(tensor)
            made.append(
                to_input(pixels, tensor.shape, tensor.dtype, _MEAN, _STD, scale, zero_point)
            )
        else:
            made.append(np.zeros(tensor.shape, tensor.dtype))
    return made

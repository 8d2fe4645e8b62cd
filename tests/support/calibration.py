# SPDX-License-Identifier: Apache-2.0
"""Calibration that wrote assets/efficientnet_lite0_ranges.txt: value ranges for one picture.

It is here because a test writes the file again; label_image only reads it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from delegate.inspect import Graph, write_model
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.pictures.image import load_picture, to_input

# Other pictures exceed the ranges of this one: tensors get this margin on both sides. Outputs of
# RELU6 need none.
HEADROOM = 1.2

# Ranges that need no picture: label_image's bytes are (x - 127) / 128, and a probability's scale
# is 1/256 because TFLite's int8 SOFTMAX accepts no other.
FIXED_RANGES = {"image": (-127 / 128, 1.0), "probabilities": (0.0, 255 / 256)}


def calibrate(graph: Graph, picture: Path) -> dict[str, tuple[float, float]]:
    """Return the range of every computed tensor of a float graph, for `quantize`.

    The picture is shown as it is, mirrored, upside down and inverted.
    """
    module = find_runtime().module
    # NOTE: only the values of a graph's outputs outlive the run; an ADD may overwrite its input.
    outputs = tuple(output for node in graph.nodes for output in node.outputs)
    interpreter = module.Interpreter(model_content=write_model(replace(graph, outputs=outputs)))
    interpreter.allocate_tensors()
    seen: dict[str, list[float]] = {output.name: [] for output in outputs}
    pixels = load_picture(picture)
    for view in (pixels, pixels[:, ::-1], pixels[::-1], 255 - pixels):
        (image,) = graph.inputs
        values = to_input(np.ascontiguousarray(view), image.shape, np.float32, mean=127, std=128)
        interpreter.set_tensor(image.index, values)
        interpreter.invoke()
        for output in outputs:
            result = interpreter.get_tensor(output.index)
            seen[output.name] += [float(result.min()), float(result.max())]
    ranges = {}
    for node in graph.nodes:
        low, high = min(seen[node.outputs[0].name]), max(seen[node.outputs[0].name])
        room = 1.0 if node.options.get("fused_activation_function") == "RELU6" else HEADROOM
        ranges[node.outputs[0].name] = (low * room, high * room)
    return ranges | FIXED_RANGES

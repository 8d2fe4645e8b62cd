# SPDX-License-Identifier: Apache-2.0
"""Views of models for tests of label_image's heads, and the scenes decoded from arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Tensor
from label_image.decode_outputs import head_of, read
from label_image.heads.view import View
from label_image.scene import Detection, Scene, Sides
from tests.support.model import const, graph_of, op, t


def view_of(
    outputs: Sequence[Tensor],
    fed: Tensor | None = None,
    last: str = "CUSTOM_OP",
    factor: float | None = None,
    **facts: Any,
) -> View:
    """Return the view of a model with one op, `last`, and these outputs.

    `factor`: of a final MUL for the first output; None: no MUL.
    """
    fed = fed or t((1, 64, 64, 3), "uint8", 1 / 255, 0)
    results = list(outputs)
    if factor is not None:
        results[0] = replace(results[0])
    nodes = [op(last, [fed], results, is_custom=True)]
    if factor is not None:
        nodes.append(op("MUL", [results[0], const(np.array(factor, np.float32))], [outputs[0]]))
    graph = graph_of(nodes, [fed], list(outputs))
    return View(graph, graph.outputs, graph.inputs[0], **facts)


def thing(index: int, score: float, *sides: float, label: str = "") -> Detection:
    """Return a detection; its default label is its index."""
    return Detection(label or str(index), score, Sides(*sides), index)


def name_of(view: View, task: str | None = None) -> str | None:
    """Return the name of a model's head."""
    head = head_of(view, task)
    return None if head is None else head.name


def scene_of(view: View, *outputs: NDArray[Any], task: str | None = None) -> Scene:
    """Return the scene that a model's head decodes from these outputs."""
    return read(replace(view, arrays=outputs), task)


def scene_of_arrays(*outputs: NDArray[Any], task: str | None = None, **facts: Any) -> Scene:
    """Return the same for a model whose outputs have the arrays' shapes and types."""
    tensors = [t(np.shape(output), str(output.dtype)) for output in outputs]
    return scene_of(view_of(tensors, **facts), *outputs, task=task)

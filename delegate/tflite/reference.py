# SPDX-License-Identifier: Apache-2.0
"""One node on the installed TFLite's reference kernels: who is right where a device's disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.graph.edit import of_one_node
from delegate.graph.ir import Graph, Node
from delegate.graph.kept import written
from delegate.launch import element_type
from delegate.target import Rules
from delegate.tflite.asking import package_outputs
from delegate.tflite.library import PACKAGES, rules
from delegate.tflite.writer import write_model


def reference_outputs(
    wanted: Rules, node: Node, inputs: Sequence[NDArray[Any]]
) -> list[NDArray[Any]] | None:
    """Return what the reference kernels of a runtime with these rules give, an array an output.

    None: none is installed, or it cannot run the node, as one that a pass has made.
    `inputs`: of each tensor that the node reads and that is no constant, in the node's order.
    """
    package = next((name for name in PACKAGES if rules(name) == wanted), None)
    if package is None or node.op.islower():
        return None
    try:
        model = write_model(_graph_of(node))
    except ValueError:
        return None
    found = package_outputs(package, model, [values.tobytes() for values in inputs])
    if found is None:
        return None
    outputs = zip(node.outputs, found, strict=True)
    return [np.frombuffer(content, element_type(tensor.dtype)) for tensor, content in outputs]


def _graph_of(node: Node) -> Graph:
    """Return a node's graph; what it makes of variable tensors is read of those after the run."""
    made = written(node)
    graph = of_one_node(replace(node, outputs=node.outputs[: len(node.outputs) - len(made)]))
    own = graph.nodes[0].inputs
    after = (own[node.inputs.index(tensor)] for tensor in made)
    return replace(graph, outputs=(*graph.outputs, *(t for t in after if t is not None)))

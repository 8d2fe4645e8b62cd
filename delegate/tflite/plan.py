# SPDX-License-Identifier: Apache-2.0
"""TFLite's plan against the parsed file: have the interpreter and the delegate the same model?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegate.errors import AbiMismatch
from delegate.graph.ir import Graph
from delegate.tflite.callbacks import Constants, PlannedNode, Shapes


def match_plan(
    graph: Graph, plan: Sequence[PlannedNode], shapes: Shapes, constants: Constants
) -> set[int]:
    """Return the indices of the file's nodes that no other delegate has taken yet.

    Raises:
        AbiMismatch: the interpreter has another model than the file.
    """
    _match_constants(graph, shapes, constants)
    present = set()
    for planned in plan:
        if planned.op == "DELEGATE":
            continue
        given = f"{planned.op} {planned.inputs} -> {planned.outputs}"
        if planned.index >= len(graph.nodes):
            raise _mismatch(f"node {planned.index}", given, "nothing")
        node = graph.nodes[planned.index]
        inputs = tuple(-1 if tensor is None else tensor.index for tensor in node.inputs)
        outputs = tuple(tensor.index for tensor in node.outputs)
        if (planned.op, planned.inputs, planned.outputs) != (node.op, inputs, outputs):
            known = f"{node.op} {inputs} -> {outputs}"
            raise _mismatch(f"node {planned.index}", given, known)
        present.add(planned.index)
    if len(present) == len(plan) < len(graph.nodes):  # and no delegate has the rest
        raise _mismatch("the model", f"{len(plan)} nodes", f"{len(graph.nodes)} nodes")
    return present


def _match_constants(graph: Graph, shapes: Shapes, constants: Constants) -> None:
    for tensor in graph.tensors:
        if tensor.data is None:
            continue
        if shapes.get(tensor.index) != tensor.shape:
            raise _mismatch(f"constant {tensor.index}", shapes.get(tensor.index), tensor.shape)
        if tensor.is_sparse:
            continue  # TFLite has it as it is stored
        own_bytes = tensor.data.reshape(-1).view(np.uint8)
        if not np.array_equal(constants.get(tensor.index, own_bytes), own_bytes):
            raise _mismatch(f"constant {tensor.index}", "of other values", "another")


def _mismatch(what: str, given: object, known: object) -> AbiMismatch:
    return AbiMismatch(
        f"{what} is {given} in the interpreter, {known} in the delegate's file: "
        "give both the same model"
    )

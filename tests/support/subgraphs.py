# SPDX-License-Identifier: Apache-2.0
"""Models of several subgraphs (signatures, IF, WHILE), which write_model refuses."""

from __future__ import annotations

from collections.abc import Sequence

from delegate.graph.ir import Graph, Tensor
from delegate.tflite.tree import Tree, packed
from delegate.tflite.writer import model_tree


def write_subgraphs(*graphs: Graph, signatures: Sequence[int] = ()) -> bytes:
    """Return the .tflite model of these subgraphs, the main one first.

    `signatures`: the numbers of subgraphs to run by name. Subgraph 1 is the signature "graph 1",
    and its inputs and outputs are x0, x1 and y0, y1.
    """
    tree = model_tree(*graphs)
    del tree["description"]
    if signatures:
        tree["signature_defs"] = [_signature(number, graphs[number]) for number in signatures]
    return packed(tree)


def _signature(number: int, graph: Graph) -> Tree:
    return {
        "inputs": _names("x", graph.inputs),
        "outputs": _names("y", graph.outputs),
        "signature_key": f"graph {number}",
        "subgraph_index": number,
    }


def _names(letter: str, tensors: Sequence[Tensor]) -> list[Tree]:
    return [
        {"name": f"{letter}{number}", "tensor_index": tensor.index}
        for number, tensor in enumerate(tensors)
    ]

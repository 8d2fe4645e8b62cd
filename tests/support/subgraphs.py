# SPDX-License-Identifier: Apache-2.0
"""Models of several subgraphs (signatures, IF, WHILE), which write_model refuses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegate.format.tree import Tree, packed
from delegate.format.writer import model_tree, with_bodies
from delegate.graph.ir import Graph, Tensor
from tests.support.model import const, graph_of, op, t


def write_subgraphs(*graphs: Graph, signatures: Sequence[int] = ()) -> bytes:
    """Return the .tflite model of these subgraphs, the main one first; nodes' bodies follow.

    `signatures`: subgraphs with a signature. That of subgraph 1 is "graph 1", and its inputs and
    outputs are x0, x1 and y0, y1.
    """
    tree = model_tree(*with_bodies(graphs))
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


def two_signatures() -> bytes:
    """Return a model with two signatures of one convolution, for 6x6 and for 4x4 pixels.

    "graph 0" returns 6x6x8 values, "graph 1" eight scores.
    """
    return write_subgraphs(*map(_convolution, (6, 4)), signatures=(0, 1))


def _convolution(side: int) -> Graph:
    rng = np.random.default_rng(5)
    weights = const(rng.integers(0, 255, (8, 3, 3, 3)).astype(np.uint8), 0.02, 120)
    bias = const(rng.integers(-99, 99, 8).astype(np.int32), 0.01)
    x = t((1, side, side, 3), "uint8", 0.5, 128, name="picture")
    tensor = t((1, side, side, 8), "uint8", 0.5, 128, name="values")
    flat = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    nodes = [op("CONV_2D", [x, weights, bias], [tensor], flat)]
    if side == 6:
        return graph_of(nodes, [x], [tensor])
    scores = t((1, 1, 1, 8), "uint8", 0.5, 128, name="scores")
    window = {"padding": "VALID", "filter_width": side, "filter_height": side}
    nodes += [op("AVERAGE_POOL_2D", [tensor], [scores], flat | window)]
    return graph_of(nodes, [x], [scores])

# SPDX-License-Identifier: Apache-2.0
"""Models of several subgraphs (signatures, IF, WHILE), which write_model refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers

from delegate.graph.ir import Graph, Tensor
from delegate.tflite import schema, writer


def write_subgraphs(*graphs: Graph, signatures: Sequence[int] = ()) -> bytes:
    """Return the .tflite model of these subgraphs, the main one first.

    `signatures`: the numbers of subgraphs to run by name. Subgraph 1 is the signature "graph 1",
    and its inputs and outputs are x0, x1 and y0, y1.
    """
    builder = flatbuffers.Builder(4096)
    nodes = [node for graph in graphs for node in graph.nodes]
    codes = tuple(dict.fromkeys((node.op, node.is_custom, node.version) for node in nodes))
    constants = [t for graph in graphs for t in graph.tensors if t.data is not None]
    buffers = {id(tensor): number for number, tensor in enumerate(constants, start=1)}
    model = {
        "version": schema.VERSION,
        "operator_codes": [writer.write_code(builder, *code) for code in codes],
        "subgraphs": [writer.write_subgraph(builder, graph, codes, buffers) for graph in graphs],
        "buffers": [
            writer.write_table(builder, "Buffer", {}),
            *(writer.write_buffer(builder, tensor) for tensor in constants),
        ],
        "signature_defs": [_signature(builder, number, graphs[number]) for number in signatures]
        or None,
    }
    builder.Finish(writer.write_table(builder, "Model", model), schema.FILE_IDENTIFIER)
    return bytes(builder.Output())


def _signature(builder: Any, number: int, graph: Graph) -> int:
    values = {
        "inputs": _names(builder, "x", graph.inputs),
        "outputs": _names(builder, "y", graph.outputs),
        "signature_key": f"graph {number}",
        "subgraph_index": number,
    }
    return writer.write_table(builder, "SignatureDef", values)


def _names(builder: Any, letter: str, tensors: Sequence[Tensor]) -> list[int]:
    return [
        writer.write_table(
            builder, "TensorMap", {"name": f"{letter}{number}", "tensor_index": tensor.index}
        )
        for number, tensor in enumerate(tensors)
    ]

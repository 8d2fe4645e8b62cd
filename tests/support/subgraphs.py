# SPDX-License-Identifier: Apache-2.0
"""Models of several subgraphs (IF, WHILE), which write_model refuses: made of its parts."""

from __future__ import annotations

import flatbuffers

from delegate.graph.ir import Graph
from delegate.tflite import schema, writer


def write_subgraphs(*graphs: Graph) -> bytes:
    """Return the .tflite model of these subgraphs, the main one first."""
    builder = flatbuffers.Builder(4096)
    nodes = [node for graph in graphs for node in graph.nodes]
    codes = tuple(dict.fromkeys((node.op, node.is_custom, node.version) for node in nodes))
    constants = [t for graph in graphs for t in graph.tensors if t.data is not None]
    buffers = {id(tensor): number for number, tensor in enumerate(constants, start=1)}
    model = {
        "version": schema.VERSION,
        "operator_codes": [writer._code(builder, *code) for code in codes],
        "subgraphs": [writer._subgraph(builder, graph, codes, buffers) for graph in graphs],
        "buffers": [
            writer._table(builder, "Buffer", {}),
            *(writer._buffer(builder, tensor) for tensor in constants),
        ],
    }
    builder.Finish(writer._table(builder, "Model", model), schema.FILE_IDENTIFIER)
    return bytes(builder.Output())

# SPDX-License-Identifier: Apache-2.0
"""Nodes on FLOAT16 tensors: computed in float32, with each result rounded to fp16.

TFLite's own kernels support float16 in CAST, DEQUANTIZE and some ops that move data; XNNPACK runs
the others. Such a node is defined by the same node on float32 tensors, so nothing else needs to
handle its type: halves.py lowers it so, and the oracle runs it so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.graph.ir import Node, Tensor

# Type conversions, which TFLite's own kernels support for float16.
CONVERSIONS = frozenset({"BITCAST", "CAST", "DEQUANTIZE", "QUANTIZE"})


def has_float16(node: Node) -> bool:
    """Whether a node computes with float16 tensors, which TFLite may have no kernel for."""
    ends = (*node.inputs, *node.outputs)
    return node.op not in CONVERSIONS and any(
        tensor is not None and tensor.dtype == "float16" and tensor.data is None for tensor in ends
    )


def widened(node: Node) -> Node | None:
    """Return a node's float32 version if it has float16 tensors, else None.

    Also None for nodes with state or a subgraph, and for fused nodes, which would round less
    often than the file says.
    """
    if not has_float16(node) or node.op.islower() or node.body is not None:
        return None
    ends = (*node.inputs, *node.outputs)
    if any(tensor is not None and (tensor.is_variable or tensor.state_name) for tensor in ends):
        return None
    wide = {t: _wide(t) for t in ends if t is not None and t.dtype == "float16"}
    inputs = tuple(None if t is None else wide.get(t, t) for t in node.inputs)
    return replace(node, inputs=inputs, outputs=tuple(wide.get(t, t) for t in node.outputs))


def _wide(tensor: Tensor) -> Tensor:
    data = None if tensor.data is None else tensor.data.astype(np.float32)
    return replace(tensor, dtype="float32", data=data)

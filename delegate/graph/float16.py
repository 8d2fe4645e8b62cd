# SPDX-License-Identifier: Apache-2.0
"""Nodes on FLOAT16 tensors: computed in float32, each result rounded to the nearest half.

TFLite's own kernels know float16 in CAST, DEQUANTIZE and some ops that move values; XNNPACK runs
the others. What such a node computes follows from the same node on float32 tensors, so that
nothing else needs to know its type: halves.py lowers it, and the oracle runs it, as that one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.graph.ir import Node, Tensor

# Ops that are about types, which TFLite's own kernels have of float16.
CONVERSIONS = frozenset({"BITCAST", "CAST", "DEQUANTIZE", "QUANTIZE"})


def has_float16(node: Node) -> bool:
    """Whether a node computes with float16 tensors, for which TFLite may have no kernel."""
    ends = (*node.inputs, *node.outputs)
    return node.op not in CONVERSIONS and any(
        tensor is not None and tensor.dtype == "float16" and tensor.data is None for tensor in ends
    )


def widened(node: Node) -> Node | None:
    """Return a node that has float16 tensors on float32 ones instead; None: it is no such node.

    Nor is one that keeps a state or runs a subgraph, or that a pass made of several nodes: that
    would round less often than the file says.
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

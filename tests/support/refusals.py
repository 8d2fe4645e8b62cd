# SPDX-License-Identifier: Apache-2.0
"""Refusals that many ops share: entries of the tables of `factories.refused`."""

from __future__ import annotations

from typing import Any

from delegate.inspect import Node
from tests.support.cases import changed

Refusal = tuple[Node, str]  # with the reason


def unquantised(node: Node, position: int, what: str = "") -> Refusal:
    """A tensor has no scale; `what`: its name in the reason, by default its type."""
    tensor = (*node.inputs, *node.outputs[:1])[position]
    assert tensor is not None
    reason = f"{what or tensor.dtype} without quantisation: scale and zero point are missing"
    return changed(node, position, quantization=None), reason


def rescaled(node: Node, position: int) -> Refusal:
    """A tensor of an op that only moves bytes has another scale, namely none."""
    changes = changed(node, position, quantization=None)
    return changes, "input and output differ in scale or zero point"


def sparse(node: Node, position: int, **fields: Any) -> Refusal:
    """An input is sparse; `fields`: further changes of the tensor."""
    reason = f"input {position} is sparse: only dense tensors are implemented"
    return changed(node, position, is_sparse=True, **fields), reason


def activated(node: Node, activation: str, option: str = "fused_activation_function") -> Refusal:
    """The fused activation is one that no convolution kernel has."""
    reason = f"fused activation {activation}: only NONE, RELU, RELU6, RELU_N1_TO_1"
    return changed(node, options={option: activation}), reason
